"""Processes that are forked by a zygote: the side that asks, and what the two say to each other.

A worker process imports for most of the time that it takes to start. A *zygote* (`zygote`) has
imported all of it, opens nothing, and forks whatever it is asked for. Its forks share the memory of
what was imported, as long as neither writes to it, and one that has died is soon back.

A request is answered before the next one is made. Forks stay in the table of processes until they
are asked for, so a number means the same process on both sides. They die with the zygote, and it
with the thread that has started it.

There is a zygote on Linux alone. Elsewhere (there is no fork on Windows, and libraries of macOS do
not survive one), and where the zygote says that it has something open, processes are executed, and
nothing else changes.

Rejected: workers as children of the supervisor itself, by `CLONE_PARENT` (glibc has no such fork,
and without its own the C library is in doubt about its threads) or by a subreaper (the supervisor
may be a program of the user's, which would have to bury what others leave behind).
`multiprocessing` with a fork server, which has one for a whole program, a path for its socket and
nothing of a process but a number.
"""

from __future__ import annotations

import importlib
import logging
import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from onyx.base.on_demand import OnDemand
from onyx.errors import OnyxError
from onyx.processes.programs import Executable, Process, ProcessEnd, execute, how

logger = logging.getLogger("onyx.supervisor")

ZYGOTE = "onyx.processes.zygote"
WORKER = "onyx.processes.worker_process"
DESCRIPTORS_MAX = 16
_LENGTH = struct.Struct("!I")
_DIES_WITH_ITS_ZYGOTE = ProcessEnd(-signal.SIGKILL, 0)


class Spawn(msgspec.Struct, tag=True, frozen=True):
    """Fork, and run a program. Bytes, because paths need not be text."""

    module: str
    arguments: list[bytes]
    environment: list[bytes]
    """Its variables, as `NAME=VALUE`."""
    folder: bytes
    """Empty: that of the zygote."""
    descriptors: list[int]
    """Under which numbers the fork has the descriptors that come with this."""
    zygote: bool
    """Whether the fork gets a zygote of its own."""


class WaitFor(msgspec.Struct, tag=True, frozen=True):
    """Say how a fork has ended."""

    pid: int


class ForkStarted(msgspec.Struct, tag=True, frozen=True):
    """The fork is there."""

    pid: int


class ForkRefused(msgspec.Struct, tag=True, frozen=True):
    """Why the zygote has not forked."""

    why: str


class ForkEnded(msgspec.Struct, tag=True, frozen=True):
    """What `wait4` has said."""

    status: int
    rss_max: int


Request = Spawn | WaitFor
Answer = ForkStarted | ForkRefused | ForkEnded
_REQUESTS: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class CannotFork(OnyxError):
    """The zygote has something open that a fork would not survive."""


class ZygoteGone(OnyxError):
    """The zygote has ended, and its forks with it."""


class Fork(Process):
    """A process that a zygote has forked."""

    def __init__(self, pid: int, descriptor: int, zygote: Zygote) -> None:
        """`descriptor`: of the process."""
        super().__init__(pid)
        self._descriptor = descriptor
        self._ends = select.poll()
        self._ends.register(descriptor, select.POLLIN)
        self._zygote = zygote

    def __del__(self) -> None:
        os.close(self._descriptor)

    def pause(self, seconds: float) -> None:
        """Let so much time pass, or less if it ends."""
        self._ends.poll(seconds * 1_000)

    def _send(self, number: int) -> None:
        signal.pidfd_send_signal(self._descriptor, number)

    def _look(self) -> ProcessEnd | None:
        # The zygote sleeps meanwhile: it is woken only for one that has ended.
        if not self._ends.poll(0):
            return None
        try:
            return self._zygote.usage_of(self.pid)
        except ZygoteGone:
            return _DIES_WITH_ITS_ZYGOTE


class Zygote:
    """A zygote that runs, or has run.

    Args:
        process: it.
        channel: where it is asked.
    """

    def __init__(self, process: Process, channel: socket.socket) -> None:
        self.process = process
        self.has_forked = False
        self._channel = channel
        self._lock = threading.Lock()

    def fork(self, program: Executable, zygote: bool = False) -> Process:
        """A fork that runs a program; waits until the zygote has imported what it is for.

        Args:
            program: what it runs.
            zygote: whether it gets a zygote of its own, to start others.

        Raises:
            CannotFork: it must not, or the system lets it not.
            ZygoteGone: it has ended.
        """
        given = (*(program.streams or ()), *program.descriptors)
        request = Spawn(
            program.module,
            [os.fsencode(each) for each in program.arguments],
            [os.fsencode(f"{name}={value}") for name, value in program.environment.items()],
            os.fsencode(program.folder or ""),
            [*range(3 if program.streams else 0), *program.descriptors],
            zygote,
        )
        answer = self._asked(request, given)
        if isinstance(answer, ForkRefused):
            raise CannotFork(answer.why)
        assert isinstance(answer, ForkStarted)
        self.has_forked = True
        try:
            return Fork(answer.pid, os.pidfd_open(answer.pid), self)
        except ProcessLookupError as error:
            raise ZygoteGone(str(error)) from error

    def usage_of(self, pid: int) -> ProcessEnd:
        """How a fork has ended that has.

        Raises:
            ZygoteGone: nobody knows.
        """
        answer = self._asked(WaitFor(pid))
        assert isinstance(answer, ForkEnded)
        return ProcessEnd.of(answer.status, answer.rss_max)

    def close(self) -> None:
        """End it, and with it all that it has forked."""
        self._channel.close()
        self.process.kill()
        self.process.wait()

    def _asked(self, request: Request, descriptors: Sequence[int] = ()) -> Answer:
        try:
            with self._lock:
                send(self._channel, request, descriptors)
                return _ANSWERS.decode(_received(self._channel)[0])
        except (OSError, EOFError) as error:
            raise ZygoteGone(str(error)) from error


class Launcher:
    """Starts processes: by forks of a zygote, or one by one.

    Args:
        environment: of the zygote. Python and libraries read variables when they are imported, and
            a fork with other values has those of the zygote in such places.
        modules: what the zygote imports.
        shared: modules that this process needs as well. It has nothing open yet and never will
            have anything that a fork of it must not have: the zygote may be one, after it has
            imported these. None: the zygote is executed.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        modules: Sequence[str] = (WORKER,),
        shared: Sequence[str] | None = None,
    ) -> None:
        self._environment = environment
        self._modules = modules
        self._zygote = zygote(environment, modules, shared)

    def launch(self, program: Executable, zygote: bool = False) -> Process:
        """Start a program. It dies with the zygote, or the thread that calls this.

        Args:
            program: what is started.
            zygote: whether it will start others, and gets a zygote of its own for them if it is a
                fork.
        """
        while self._zygote is not None:
            try:
                return self._zygote.fork(program, zygote)
            except CannotFork as error:
                logger.info("processes are started one by one instead of forked: %s", error)
                self.close()
            except ZygoteGone:
                self._replace(self._zygote)
        return execute(program)

    def close(self) -> None:
        """End the zygote, and with it whatever it has forked."""
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def _replace(self, gone: Zygote) -> None:
        self.close()
        what = f"the process that forks the others, {gone.process.pid}, ended with"
        code = gone.process.returncode or 0
        if gone.has_forked:
            logger.warning("%s %s, and they with it; there is a new one", what, how(code))
            self._zygote = zygote(self._environment, self._modules)
        else:
            logger.warning("%s %s; they are started one by one instead", what, how(code))


_FORK_HERE: OnDemand[Callable[[Mapping[str, str], Sequence[str]], Zygote | None]] = OnDemand(
    f"{ZYGOTE}:fork_here"
)
_held: Zygote | None = None


def hold(given: Zygote) -> None:
    """This process is a fork, and has been given a zygote of its own."""
    global _held
    _held = given


def zygote(
    environment: Mapping[str, str], modules: Sequence[str], shared: Sequence[str] | None = None
) -> Zygote | None:
    """The zygote that this process was given, or one that is made, which dies with the thread
    that calls this; None where there is none. Arguments as of `Launcher`."""
    global _held
    if _held is not None:
        given, _held = _held, None
        return given
    if not supported():
        return None
    if shared is not None:
        for module in shared:
            importlib.import_module(module)
        forked = _FORK_HERE.load()(environment, modules)
        if forked is not None:
            return forked
    ours, theirs = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        arguments = [str(number), *modules]
        process = execute(Executable(ZYGOTE, arguments, environment, descriptors=(number,)))
    return Zygote(process, ours)


def supported() -> bool:
    """Whether processes of this system can be forked and told apart."""
    if sys.platform != "linux" or not Path("/proc/self/task").exists():
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def send(channel: socket.socket, message: Any, descriptors: Sequence[int] = ()) -> None:
    """Send one message, with descriptors of files."""
    data = msgspec.msgpack.encode(message)
    socket.send_fds(channel, [_LENGTH.pack(len(data))], descriptors)
    channel.sendall(data)


def request(channel: socket.socket) -> tuple[Request, list[int]]:
    """The next request and the descriptors that have come with it.

    Raises:
        EOFError: there is nobody any more who asks.
    """
    data, descriptors = _received(channel)
    return _REQUESTS.decode(data), descriptors


def _received(channel: socket.socket) -> tuple[bytes, list[int]]:
    head, descriptors, _, _ = socket.recv_fds(
        channel, _LENGTH.size, DESCRIPTORS_MAX, socket.MSG_CMSG_CLOEXEC
    )
    if len(head) < _LENGTH.size:
        raise EOFError("nobody is at the other end")
    (left,) = _LENGTH.unpack(head)
    parts = []
    while left:
        part = channel.recv(left)
        if not part:
            raise EOFError("nobody is at the other end")
        parts.append(part)
        left -= len(part)
    return b"".join(parts), descriptors
