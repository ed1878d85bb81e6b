"""Settings of the workers of `onyx run`: options, then variables, then what suits who watches."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onyx.cli.commands import run as command
from onyx.cli.local_run import settings_for
from onyx.model.job import Job
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
