"""A zygote: a process that has imported what others need, and forks them (`forking`).

    python -m onyx.processes.zygote DESCRIPTOR MODULE...

It imports the modules, and then does what it is asked for at the socket. It opens nothing: what
was open would be open in each fork. It has one thread: a fork has no other, so locks that others
hold would stay locked there for ever, and that is what libraries such as gRPC do not survive once
they are in use. Before each fork it looks whether that still holds, and refuses else. Modules of
users are imported by the forks, and may do as they like.

A fork is to differ from an executed process in nothing that anybody relies on: it has its own
session, variables, path of modules, signals, random numbers and descriptors, and the rest is
closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from onyx.base.parent import end_with_parent
from onyx.processes.ends import run_to_the_end
from onyx.processes.forking import (
    ForkEnded,
    ForkRefused,
    ForkStarted,
    Spawn,
    WaitFor,
    Zygote,
    hold,
    request,
    send,
)
from onyx.processes.programs import DirectChild, name_process

NAME = "onyx-zygote"
NOT_FOR_US = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Whoever asks a whole container to end means workers, which leave in an orderly way as long as
their zygote is there. It ends with who has started it."""
_THREADS = Path("/proc/self/task")
_as_started: dict[signal.Signals, Any] = {}
"""How these were handled before: a fork does the same, and so stays deaf to a terminal that closes
if `nohup` has started all."""


def main() -> None:
    """Import, and serve; in a fork: run its program."""
    channel, *modules = sys.argv[1:]
    _begin(int(channel), modules)


def fork_here(environment: Mapping[str, str], modules: Sequence[str]) -> Zygote | None:
    """A zygote that is a fork of this process: it has imported already what both need. None if this
    process has something open that a fork would not survive.

    Args:
        environment: its variables.
        modules: what it imports besides.
    """
    if open_here():
        return None
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # or both would write what waits there
    other = _split()
    if isinstance(other, Zygote):
        return other
    try:
        _leave_behind(other)
        os.environ.clear()
        os.environ.update(environment)
        _look_for_modules(os.environ.get("PYTHONPATH", ""))
        _begin(other.detach(), modules)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)  # whatever happens, it does not go on as its parent does


def _leave_behind(channel: socket.socket) -> None:
    """Have no more of the process that was forked than what was executed would have."""
    kept = channel.fileno()
    os.closerange(3, kept)
    os.closerange(max(3, kept + 1), os.sysconf("SC_OPEN_MAX"))
    for each in NOT_FOR_US:
        if callable(signal.getsignal(each)):
            is_interrupt = each == signal.SIGINT
            signal.signal(each, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    sys.modules["__main__"] = sys.modules[__name__]


def _begin(channel: int, modules: Sequence[str]) -> NoReturn:
    _ignore_signals()
    name_process(NAME)
    # Garbage of imports would leave holes on pages that are shared, to be written to by forks.
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    gc.freeze()
    # Only now: until this process has ended, nothing closes the descriptor.
    _run(serve(socket.socket(fileno=channel)))


def _run(module: str) -> NoReturn:
    """Run a program. Nothing is torn down: to free each object would copy all memory that is
    shared."""
    run_to_the_end(lambda: importlib.import_module(module).main())


def serve(channel: socket.socket) -> str:
    """Do what is asked for until nobody is there to ask. Returns in forks alone: the module that
    one is to run."""
    tie = _tie()
    while True:
        try:
            asked, received = request(channel)
        except (EOFError, OSError):
            os._exit(0)
        if isinstance(asked, WaitFor):
            _, status, usage = os.wait4(asked.pid, 0)
            send(channel, ForkEnded(status, usage.ru_maxrss))
            continue
        why = open_here()
        if why:
            send(channel, ForkRefused(why))
        else:
            try:
                pid = os.fork()
            except OSError as error:
                send(channel, ForkRefused(f"the system does not let it fork: {error.strerror}"))
            else:
                if pid == 0:
                    tie()
                    return _become(asked, channel, received)
                send(channel, ForkStarted(pid))
        for each in received:
            os.close(each)


def open_here() -> str:
    """What this process has that a fork of it would not survive; empty if nothing."""
    threads = [each for each in _THREADS.iterdir() if each.name != str(os.getpid())]
    if not threads:
        return ""
    names = set()
    for each in threads:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            names.add((each / "comm").read_text().strip())
    return (
        f"what the zygote has imported has started threads ({', '.join(sorted(names))}), which a "
        "fork does not have. "
        "Does a module that Python loads at its start (sitecustomize, a .pth file) start them, or "
        "a variable such as OPENBLAS_NUM_THREADS?"
    )


def _become(asked: Spawn, channel: socket.socket, received: Sequence[int]) -> str:
    """Make this fork what was asked for; the module that it is to run."""
    os.setsid()
    channel.close()
    _place(received, asked.descriptors)
    for each, handler in _as_started.items():
        signal.signal(each, handler)
    os.environ.clear()
    for variable in asked.environment:
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    if asked.folder:
        os.chdir(asked.folder)
    _look_for_modules(os.environ.get("PYTHONPATH", ""))
    sys.argv = [asked.module, *map(os.fsdecode, asked.arguments)]
    # `random` seeds itself in a fork, NumPy does not.
    drawing: Any = sys.modules.get("numpy.random")
    if drawing is not None:
        drawing.seed()
    if asked.zygote:
        other = _split()
        if isinstance(other, socket.socket):
            for number in asked.descriptors:
                if number > 2:
                    os.close(number)
            _ignore_signals()
            return serve(other)
        hold(other)
    gc.enable()
    return asked.module


def _split() -> Zygote | socket.socket:
    """Fork a zygote: it, or in it the socket at which it is asked."""
    ours, theirs = socket.socketpair()
    tie = _tie()
    pid = os.fork()
    if pid == 0:
        tie()
        os.setsid()
        ours.close()
        return theirs
    theirs.close()
    return Zygote(DirectChild(pid), ours)


def _tie() -> Callable[[], None]:
    """What a fork does first, to die with this process."""
    tie = end_with_parent()
    assert tie is not None, "there are zygotes on Linux only"
    return tie


def _ignore_signals() -> None:
    for each in NOT_FOR_US:
        _as_started[each] = signal.signal(each, signal.SIG_IGN)


def _place(received: Sequence[int], numbers: Sequence[int]) -> None:
    """Give descriptors the numbers that they are to have."""
    # First above all of these: one may have the number of another.
    above = max(numbers, default=2) + 1
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, above) for each in received]
    for each in received:
        os.close(each)
    for each, number in zip(moved, numbers, strict=True):
        os.dup2(each, number, inheritable=number <= 2)
        os.close(each)


def _look_for_modules(folders: str) -> None:
    """Look in these first, after the current one; they are often those of the zygote."""
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    first = sys.path[: not sys.flags.safe_path]
    more = filter(None, folders.split(os.pathsep))
    sys.path[:] = dict.fromkeys([*first, *more, *sys.path])
    importlib.invalidate_caches()


if __name__ == "__main__":
    main()
