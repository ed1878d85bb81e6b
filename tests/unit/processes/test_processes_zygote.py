"""Forks of a zygote are processes like any others, and nothing of them outlives who has asked."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any, ClassVar

import psutil
import pytest
from tests.support.servers.zygote_programs import MODULE

from onyx.processes import forking
from onyx.processes.child import worker_environment
from onyx.processes.forking import WORKER, Launcher
from onyx.processes.programs import Executable, Process, ProcessEnd
from onyx.settings import Settings

WAIT_S = 60.0
TOGETHER_S = 0.1
"""For so long one thread waits for another one to do the same."""


def own() -> dict[str, str]:
    """Variables that differ from those of the zygote. Other tests add folders to `sys.path`."""
    path = os.pathsep.join(["/own", *filter(None, sys.path)])
    return {"ONYX_TENANCY_ID": "own", "PYTHONPATH": path}


THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform != "linux", reason="there are zygotes on Linux only"),
]


@contextmanager
def a_launcher(*modules: str, forks: bool = True) -> Iterator[Launcher]:
    launcher = Launcher(environment(), modules)
    try:
        if not forks:
            launcher.close()
        yield launcher
    finally:
        launcher.close()


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with a_launcher(MODULE) as made:
        yield made


def environment(**more: str) -> dict[str, str]:
    return {**worker_environment(Settings()), **more}


class Started:
    """A program that has been started, and what it says."""

    every: ClassVar[list[Started]] = []

    def __init__(
        self, launcher: Launcher, name: str, folder: Path | None = None, **more: str
    ) -> None:
        there, here = os.pipe()
        program = Executable(MODULE, [name, str(here)], environment(**more), [here], folder)
        self.process = launcher.launch(program, zygote=name == "supervises")
        os.close(here)
        self._lines = os.fdopen(there, encoding="utf-8")
        self.every.append(self)

    def says(self) -> Any:
        return json.loads(self._lines.readline())

    def ends(self) -> list[Any]:
        """All that is left to say; nobody has the other end any more."""
        found = [json.loads(line) for line in self._lines]
        self.process.wait(WAIT_S)
        return found

    def close(self) -> None:
        self._lines.close()
        self.process.kill()
        self.process.wait(WAIT_S)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    while Started.every:
        Started.every.pop().close()


@pytest.mark.parametrize("moves", [False, True], ids=["here", "elsewhere"])
def test_a_fork_sees_what_an_executed_process_sees(
    launcher: Launcher, moves: bool, tmp_path: Path
) -> None:
    folder = tmp_path if moves else None
    with a_launcher(forks=False) as executing:
        executed, forked = (
            Started(each, "facts", folder, **own()).ends()[0] for each in (executing, launcher)
        )

    assert forked["environment"]["ONYX_TENANCY_ID"] == "own"
    assert forked["folder"] == str(folder or Path.cwd())
    assert "/own" in forked["path"]
    assert [(name, forked[name]) for name in executed if forked[name] != executed[name]] == []


def test_the_zygote_of_a_command_may_be_a_fork_of_it() -> None:
    with a_launcher(forks=False) as executing:
        executed = Started(executing, "facts", **own()).ends()[0]
        forked, is_fork_of_command = Started(executing, "begins", **own()).ends()

    assert is_fork_of_command
    assert [(name, forked[name]) for name in executed if forked[name] != executed[name]] == []


def test_what_a_fork_is_given_is_given_to_no_other(launcher: Launcher) -> None:
    first = Started(launcher, "patient")
    pid = first.says()

    assert Started(launcher, "facts").ends()[0]["descriptors"] == 5, "streams, pipe, folder"
    os.kill(pid, signal.SIGKILL)
    assert first.ends() == [], "the pipe of the first was open in it alone"


def test_forks_draw_different_random_numbers(launcher: Launcher) -> None:
    one, other = (Started(launcher, "draws").ends()[0] for _ in range(2))

    assert [mine for mine, its in zip(one, other, strict=True) if mine == its] == []


@pytest.mark.parametrize("forks", [True, False], ids=["forked", "executed"])
@pytest.mark.parametrize("end", ["0", "1", "3", "text", "-15"])
def test_the_end_of_a_program_is_known(end: str, forks: bool, launcher: Launcher) -> None:
    with a_launcher(forks=False) as executing:
        chosen = launcher if forks else executing
        process = chosen.launch(Executable(MODULE, ["ends", end], environment()))

        assert process.wait(WAIT_S) == (1 if end == "text" else int(end))
        assert process.ended is not None
        assert process.ended.memory_bytes > 2**20
        process.kill()


@pytest.mark.parametrize("forks", [True, False], ids=["forked", "executed"])
def test_threads_that_ask_at_once_are_answered_alike(
    forks: bool, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry of a process that has ended can be asked for once, and a zygote that is asked for
    it again would end, with all that it has forked."""
    with a_launcher(forks=False) as executing:
        chosen = launcher if forks else executing
        process = chosen.launch(Executable(MODULE, ["ends", "3"], environment()))
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            process.pause(0.01)
        look, both = type(process)._look, Barrier(2)

        def looks(self: Process) -> ProcessEnd | None:
            with suppress(BrokenBarrierError):
                both.wait(TOGETHER_S)
            return look(self)

        monkeypatch.setattr(type(process), "_look", looks)
        with ThreadPoolExecutor(2) as threads:
            asked = [threads.submit(process.poll) for _ in range(2)]
        assert [each.result() for each in asked] == [3, 3]


def test_threads_and_hooks_at_the_end_are_heard(launcher: Launcher) -> None:
    assert Started(launcher, "late").ends() == ["thread", "hook"]


def test_forks_may_use_grpc(launcher: Launcher) -> None:
    started = [Started(launcher, "calls") for _ in range(2)]

    assert [each.ends() for each in started] == [["hello"]] * 2


def test_what_a_worker_imports_leaves_nothing_open() -> None:
    with a_launcher(WORKER, MODULE) as launcher:
        assert Started(launcher, "generators").ends() == [[]]
        started = Started(launcher, "patient")
        zygote = psutil.Process(started.says()).parent()

        assert zygote is not None
        assert zygote.num_threads() == 1
        assert zygote.num_fds() == 4  # streams, socket
        assert zygote.net_connections() == []


@pytest.mark.parametrize(
    "opens",
    [THREAD, "import grpc; channel = grpc.insecure_channel('127.0.0.1:1')"],
    ids=["thread", "gRPC"],
)
def test_a_zygote_with_threads_does_not_fork(
    opens: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "busy.py").write_text(opens)
    monkeypatch.syspath_prepend(tmp_path)
    caplog.set_level(logging.INFO)
    with a_launcher("busy") as launcher:
        started = Started(launcher, "facts")

        assert psutil.Process(started.process.pid).ppid() == os.getpid()
        assert started.ends()[0]["threads"] == 1
    assert "started one by one instead of forked" in caplog.text
    assert "has started threads (" in caplog.text


def test_forks_die_with_their_zygote_and_there_is_a_new_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with a_launcher() as launcher:
        first = Started(launcher, "patient")
        zygote = psutil.Process(first.says()).ppid()
        os.kill(zygote, signal.SIGKILL)

        assert first.ends() == []
        assert first.process.wait(WAIT_S) == -signal.SIGKILL
        second = Started(launcher, "patient")
        assert psutil.Process(second.says()).ppid() not in (zygote, os.getpid())
    assert f"the process that forks the others, {zygote}, ended with SIGKILL" in caplog.text


def test_a_zygote_that_cannot_import_is_not_started_again(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with a_launcher("not_there") as launcher:
        assert Started(launcher, "facts").ends()[0]["threads"] == 1
    assert "No module named 'not_there'" in capfd.readouterr().err
    assert "ended with code 1; they are started one by one instead" in caplog.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_to_everybody_reach_the_forks_alone(
    number: signal.Signals, launcher: Launcher
) -> None:
    started = Started(launcher, "patient")
    pid = started.says()
    os.kill(psutil.Process(pid).ppid(), number)
    os.kill(pid, number)

    assert started.process.wait(WAIT_S) in (-number, 1)
    assert Started(launcher, "draws").process.wait(WAIT_S) == 0


@pytest.mark.parametrize("forks", [True, False], ids=["forked", "executed"])
@pytest.mark.parametrize("victim", [0, 1], ids=["supervisor", "its zygote"])
def test_nothing_outlives_a_supervisor_or_its_zygote(
    victim: int, forks: bool, launcher: Launcher
) -> None:
    with a_launcher(forks=False) as executing:
        started = Started(launcher if forks else executing, "supervises")
        said = [started.says() for _ in range(2)]
        supervisor, zygote, child = next(each for each in said if isinstance(each, list))

        assert supervisor == started.process.pid
        assert psutil.Process(zygote).ppid() == supervisor
        os.kill((supervisor, zygote)[victim], signal.SIGKILL)
        if victim:
            psutil.wait_procs([psutil.Process(child)], WAIT_S)
            started.process.kill()
        assert started.ends() == [], "who has the pipe is gone"


def test_without_zygotes_everything_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "supported", lambda: False)
    with a_launcher() as launcher:
        started = Started(launcher, "facts")

        assert psutil.Process(started.process.pid).ppid() == os.getpid()
        assert started.ends()[0]["leads its session"]
