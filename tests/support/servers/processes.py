"""The processes that tests start: calling the command, ending what goes on."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

import psutil

from onyx.cli.command_table import COMMANDS, module_of
from onyx.processes.child import NAME, worker_environment
from onyx.processes.forking import WORKER, Launcher
from onyx.processes.programs import Executable, Process
from onyx.settings import Settings, to_environment

ONYX = "onyx.cli"
"""The command."""
PRELOADED = (
    *map(module_of, COMMANDS),
    *("onyx.cli.local_run", "onyx.cli.local_plans", WORKER),
    *("onyx.plugins.files.input", "onyx.plugins.files.output", "pyarrow.compute", "grpc._server"),
)
"""What most of these import. A test of what is imported when executes a process."""
STOP_S = 60.0
COMMAND_S = 90.0


@cache
def launcher() -> Launcher:
    """What starts commands and workers of tests: one zygote for all tests of this process. What it
    starts dies with the main thread. A test of how a command itself starts executes it."""
    assert threading.current_thread() is threading.main_thread()
    environment = {**worker_environment(Settings()), "PYTHONFAULTHANDLER": "1"}
    made = Launcher(environment, PRELOADED)
    atexit.register(made.close)
    return made


def onyx(settings: Settings, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command with these settings, as a person calls it on a worker's machine."""
    return ran(None, *arguments, environment=to_environment(settings))


def ran(
    folder: Path | None,
    *arguments: object,
    timeout_s: float = COMMAND_S,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """The command in a folder, to its end."""
    words = list(map(str, arguments))
    with (
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        streams = nothing.fileno(), output.fileno(), errors.fileno()
        program = Executable(
            ONYX, words, {**os.environ, **environment}, folder=folder, streams=streams
        )
        process = launcher().launch(program, zygote=True)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), errors.read())


@contextmanager
def running(
    folder: Path, *arguments: object, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[Process, TextIO]]:
    """The command in a folder, and what it prints; it is killed at the end, if it still runs."""
    ours, its = os.pipe()
    with open(os.devnull, "rb") as nothing, open(ours, encoding="utf-8") as output:
        program = Executable(
            ONYX,
            list(map(str, arguments)),
            {**os.environ, **environment},
            folder=folder,
            streams=(nothing.fileno(), its, its),
        )
        process = launcher().launch(program, zygote=True)
        os.close(its)
        try:
            yield process, output
        finally:
            process.kill()
            process.wait()


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    """The worker processes that it has started, the oldest first."""
    found = [each for each in process.children(recursive=True) if is_worker(each)]
    return sorted(found, key=lambda each: each.create_time())


def is_worker(process: psutil.Process) -> bool:
    """Whether it is one, and runs."""
    try:
        return process.name() == NAME and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def stop(process: subprocess.Popen[Any]) -> int:
    """SIGTERM; the exit code. One that does not end is killed, and fails the test."""
    process.terminate()
    try:
        return process.wait(STOP_S)
    finally:
        process.kill()
        process.wait()
