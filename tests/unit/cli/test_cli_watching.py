"""`onyx jobs --watch`: the same jobs again, in their place at a terminal, until Ctrl-C."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.log.memory_log import MemoryLog
from tests.unit.cli.test_cli_job_files import a_file

from onyx.cli.commands import jobs as command
from onyx.cli.job_file import read_job
from onyx.client.client import Client
from onyx.errors import UserError

Watch = Callable[..., list[str]]


@pytest.fixture
def client() -> Client:
    return Client(MemoryLog().client(), "balanced")


@pytest.fixture
def watch(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Watch:
    """What is printed by looks between which something happens, and Ctrl-C after the last."""

    def watched(*happens: Callable[[], object], job: str | None = None) -> list[str]:
        coming = iter(happens)

        def sleep(_: float) -> None:
            act = next(coming, None)
            if act is None:
                raise KeyboardInterrupt
            act()

        monkeypatch.setattr(command, "open_log", lambda _: client.log)
        monkeypatch.setattr(command, "sleep", sleep)
        command.jobs(job, watch=True)
        return capsys.readouterr().out.splitlines()

    return watched


def test_jobs_are_printed_again_where_nobody_watches(
    client: Client, watch: Watch, tmp_path: Path
) -> None:
    job = read_job(a_file(tmp_path, "flights"))
    lines = watch(lambda: client.submit(job), lambda: client.kill(client.named("flights")))
    states = [line.split()[1] for line in lines if line.endswith("flights")]
    assert lines[0].startswith("tenancy default has no jobs; others have theirs in ")
    assert states == ["waiting", "killed"]
    assert "\x1b" not in "".join(lines)


def test_at_a_terminal_they_are_drawn_in_their_place_as_far_as_there_is_room(
    client: Client, watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = os.terminal_size((60, 4))
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: size)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    submitted = [client.submit(read_job(a_file(tmp_path, name))) for name in ("a", "b", "c")]
    before, *screens = "\n".join(watch(lambda: client.kill(submitted[0].job))).split("\x1b[H")
    assert (before, len(screens)) == ("", 2)
    for screen, left_out in zip(screens, (5, 4), strict=True):
        *rows, rest = screen.split("\x1b[K\n")
        assert [len(row) <= 60 for row in rows] == [True] * 3
        assert (rows[-1], rest.strip()) == (f"    and {left_out} lines more", "\x1b[J")


def test_a_job_that_is_not_there_ends_it_at_once(watch: Watch) -> None:
    with pytest.raises(UserError, match="there is no job flights"):
        watch(job="flights")
