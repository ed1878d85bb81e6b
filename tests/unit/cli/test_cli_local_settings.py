"""Settings of the workers of `onyx run`: options, then variables, then what suits who watches."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onyx.cli.commands import run as command
from onyx.cli.local_run import fewest_peers, peers_of_processes, settings_for
from onyx.model.job import CatalogEntry, Job
from onyx.settings import TelemetrySettings

JOB = Job("job", (), ())


def telemetry(
    monkeypatch: pytest.MonkeyPatch, option: str | None, **given: str
) -> TelemetrySettings:
    for name in ("LOG_LEVEL", "METRICS_PORT", "LOG_FAILURES"):
        monkeypatch.delenv(f"ONYX_TELEMETRY_{name}", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(f"ONYX_TELEMETRY_{name}", value)
    return settings_for(JOB, [], option).telemetry


def test_without_options_and_variables_it_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    found = telemetry(monkeypatch, None)
    assert (found.log_level, found.metrics_port, found.log_failures) == ("WARNING", None, False)


def test_variables_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"LOG_LEVEL": "INFO", "METRICS_PORT": "9123", "LOG_FAILURES": "true"}
    found = telemetry(monkeypatch, None, **given)
    assert (found.log_level, found.metrics_port, found.log_failures) == ("INFO", 9123, True)


def test_the_option_is_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert telemetry(monkeypatch, "DEBUG", LOG_LEVEL="INFO").log_level == "DEBUG"


def test_sigterm_interrupts_a_run_and_nothing_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def log(*_: object) -> Iterator[None]:
        signal.raise_signal(signal.SIGTERM)
        yield

    monkeypatch.setattr(command, "local_log", log)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        command.run(Path("job.yaml"))
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (CatalogEntry("f", "function", fn="m:f", max_peers=8), ["spec.catalog[1].maxPeers"]),
        (CatalogEntry("f", "function", fn="m:f", min_peers=8, max_peers=8), []),
        (CatalogEntry("f", "function", fn="m:f", max_peers=1), []),
        (CatalogEntry("f", "function", fn="m:f"), []),
    ],
    ids=["more", "all", "one", "any"],
)
def test_a_limit_that_a_run_does_not_reach_is_said(entry: CatalogEntry, said: list[str]) -> None:
    ends = (CatalogEntry("read", "input", plugin="p"), CatalogEntry("write", "output", plugin="p"))
    job = Job("j", (("read", "f"), ("f", "write")), (ends[0], entry, ends[1]))
    assert [each.path for each in fewest_peers(job)] == said


@pytest.mark.parametrize(
    ("peers", "processes", "least", "expected"),
    [(None, 1, 1, [3]), (None, 3, 1, [3, 3, 3]), (None, 2, 4, [6, 6]), (4, 3, 1, [2, 1, 1])],
)
def test_each_process_has_peers_for_all_tasks_unless_their_number_is_given(
    peers: int | None, processes: int, least: int, expected: list[int]
) -> None:
    tasks = (
        CatalogEntry("read", "input", plugin="files", min_peers=least),
        CatalogEntry("work", "function", fn="m:f", min_peers=least),
        CatalogEntry("write", "output", plugin="files", min_peers=least),
    )
    job = Job("job", (("read", "work"), ("work", "write")), tasks)
    assert peers_of_processes(job, peers, processes) == expected
