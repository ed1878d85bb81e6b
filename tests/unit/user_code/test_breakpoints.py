"""The terminal of a run: who has it, and what breakpoint() does where there is none."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from pdb import Pdb

import pytest

from onyx.user_code import breakpoints
from onyx.user_code.breakpoints import FILE, DebuggerLeft, lending, listen_for_breakpoints


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    make, made = breakpoints._debugger, list[Pdb]()

    def kept(file: Path, terminal: bytes) -> Pdb:
        made.append(make(file, terminal))
        return made[-1]

    monkeypatch.setattr(breakpoints, "_debugger", kept)
    yield
    for each in made:  # whose files stay open to the end of a process
        each.stdin.close()
        each.stdout.close()


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard input is one; the other end of it."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        yield ours
    os.close(ours)


def is_free(file: Path) -> bool:
    with file.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.usefixtures("at_terminal")
def test_the_terminal_is_lent_to_who_asks_once_the_run_has_stopped_drawing(tmp_path: Path) -> None:
    stopped: list[bool] = []
    with lending(tmp_path, wanted=True) as loan:
        assert loan is not None
        assert not loan.look(lambda: stopped.append(is_free(tmp_path / FILE)))
        assert (stopped, is_free(tmp_path / FILE)) == ([], False)
        with (tmp_path / FILE).open("ab") as asking:
            asking.write(breakpoints.ASKS)
        for _ in range(2):
            assert loan.look(lambda: stopped.append(is_free(tmp_path / FILE)))
        assert (stopped, is_free(tmp_path / FILE)) == ([False], True)
    assert list(tmp_path.iterdir()) == []


def test_a_run_at_no_terminal_lends_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "in").open("w+") as file:
        monkeypatch.setattr(sys, "stdin", file)
        with lending(tmp_path, wanted=True) as loan:
            assert loan is None


@pytest.mark.usefixtures("hook")
def test_a_breakpoint_without_a_terminal_is_passed_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listen_for_breakpoints(str(tmp_path))
    with caplog.at_level(logging.WARNING):
        breakpoint()
    assert "test_breakpoints.py:" in caplog.text
    assert "onyx debug" in caplog.text


@pytest.mark.usefixtures("hook")
def test_a_debugger_that_the_user_has_chosen_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    listen_for_breakpoints(str(tmp_path))
    assert sys.breakpointhook is sys.__breakpointhook__


@pytest.mark.usefixtures("hook")
def test_the_debugger_reads_from_the_terminal_that_is_lent_and_has_it_meanwhile(
    tmp_path: Path, at_terminal: int
) -> None:
    with lending(tmp_path, wanted=True) as loan:
        assert loan is not None
        loan.look(lambda: None)
        fcntl.flock(loan._file, fcntl.LOCK_UN)
        listen_for_breakpoints(str(tmp_path))
        os.write(at_terminal, b"p here\np is_free(file)\np breakpoints.somebody_debugs()\nc\n")
        here, file = "it is " + "here", tmp_path / FILE
        assert is_free(file)
        breakpoint()
        assert is_free(file)
    typed = b""
    while typed.count(b"(Pdb) ") < 4:  # a terminal hands on what it has, piece by piece
        typed += os.read(at_terminal, 10_000)
    said = typed.decode()
    assert f"'{here}'" in said
    assert said.replace("\r\n", "\n").count("(Pdb) False\n(Pdb) True\n") == 1
    assert not breakpoints.somebody_debugs()


@pytest.mark.usefixtures("hook")
@pytest.mark.parametrize("typed", [b"q\n", b"\x04"])
def test_who_leaves_the_debugger_ends_the_run_with_the_terminal_in_hand(
    tmp_path: Path, at_terminal: int, monkeypatch: pytest.MonkeyPatch, typed: bytes
) -> None:
    class Ended(BaseException):
        """The process is."""

    was_free: list[bool] = []

    def stop() -> str:
        breakpoint()
        return "beyond it"

    def stand_still() -> None:
        was_free.append(is_free(tmp_path / FILE))
        raise Ended

    monkeypatch.setattr(breakpoints, "stand_still", stand_still)
    with lending(tmp_path, wanted=True) as loan:
        assert loan is not None
        loan.look(lambda: None)
        fcntl.flock(loan._file, fcntl.LOCK_UN)
        listen_for_breakpoints(str(tmp_path))
        os.write(at_terminal, typed)
        with pytest.raises(Ended):
            stop()
        with pytest.raises(DebuggerLeft, match="left the debugger"):
            loan.look(lambda: None)
    assert was_free == [False]
