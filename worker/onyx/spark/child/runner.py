"""Runs a stage in a Spark child and waits for it, no longer than allowed.

A run that is not wanted any more is cancelled: Spark ends its jobs, and the child stays warm. If it
does not obey in time, because the stage hangs in Python or the JVM is stuck, it is killed.

Children are kept warm: who asks again soon finds a JVM that has started. A child is for one master,
its settings, and the environment of this process. Requests for the same child take turns. One child
at most is kept idle, the one used last, for `IDLE_MAX_S`: a JVM holds a gigabyte. A child is kept
only after a run that ended well or was cancelled in time; what another one has left behind, nobody
knows. Children are started by a thread that lives as long as this process, because the kernel ends
them with the thread that started them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Thread, Timer
from typing import BinaryIO

import msgspec

from onyx.base.structs import UNREADABLE
from onyx.errors import Fenced, OnyxError, Unavailable, UserFunctionError
from onyx.spark.child.environment import environment, inherited
from onyx.spark.child.protocol import (
    Cancel,
    Ended,
    Go,
    Order,
    Progressed,
    Reply,
    Run,
    StageFailure,
    Writing,
    encoded,
    read_line,
)
from onyx.spark.child.request import StageRequest, Watch
from onyx.spark.processes import TAIL_TIMEOUT_S, ProcessGroup, spark_scratch
from onyx.spark.session.blame import Blame

_MODULE = "onyx.spark.child.serve"
_REPLIES: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)
IDLE_MAX_S = 120.0
"""How long a child without work is kept."""
POLL_INTERVAL_S = 0.5
"""How soon who waits or cancels is noticed."""
OBEY_S = 5.0
"""How long a child has to end a run that was cancelled."""
Key = tuple[str, frozenset[tuple[str, str]], frozenset[tuple[str, str]]]


class Loan:
    """A child for one run."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.keep = False
        """Whether the child may serve another run."""


class ChildKeeper:
    """The keeper of one process. Safe to use from several threads."""

    def __init__(self, idle_max_s: float = IDLE_MAX_S) -> None:
        self._idle_max_s = idle_max_s
        self._changed = Condition()
        self._busy: dict[Key, Child | None] = {}
        self._idle: tuple[Key, Child, Timer] | None = None
        self._starter = ThreadPoolExecutor(1, "onyx-spark-children")

    @contextlib.contextmanager
    def lent(self, request: StageRequest, wanted: Callable[[], bool]) -> Iterator[Loan]:
        """A child for one run, which ends afterwards unless `Loan.keep` is set.

        Raises:
            Fenced: `wanted` became false while another run had the child.
            SettingsError, Blocked: see `Child`.
        """
        taken = inherited()
        key = (request.master, frozenset(request.spark_conf.items()), frozenset(taken.items()))
        child = self._reserved(key, wanted)
        keep = False
        try:
            if child is None:
                child = self._starter.submit(Child, request.master, taken).result()
                self._busy[key] = child
            loan = Loan(child)
            try:
                yield loan
            finally:
                keep = loan.keep
        finally:
            self._give_back(key, child, keep)

    def end(self) -> None:
        """End all children, those that run as well."""
        with self._changed:
            children = [child for child in self._busy.values() if child is not None]
            if self._idle is not None:
                children.append(self._idle[1])
                self._idle[2].cancel()
                self._idle = None
        for child in children:
            child.end()

    def _reserved(self, key: Key, wanted: Callable[[], bool]) -> Child | None:
        """The idle child of a key, or None for a new one, when nobody else has one."""
        with self._changed:
            while key in self._busy:
                if not wanted():
                    raise Fenced("the task stopped before its Spark stage ran")
                self._changed.wait(POLL_INTERVAL_S)
            self._busy[key] = None
            idle, self._idle = self._idle, None
        if idle is None:
            return None
        kept, child, timer = idle
        timer.cancel()
        if kept == key and child.alive:
            self._busy[key] = child
            return child
        child.end()
        return None

    def _give_back(self, key: Key, child: Child | None, keep: bool) -> None:
        replaced = child
        with self._changed:
            del self._busy[key]
            if keep and child is not None:
                replaced = self._idle[1] if self._idle else None
                if self._idle:
                    self._idle[2].cancel()
                timer = Timer(self._idle_max_s, self._expire, (child,))
                timer.daemon = True
                self._idle = (key, child, timer)
                timer.start()
            self._changed.notify_all()
        if replaced is not None:
            replaced.end()

    def _expire(self, child: Child) -> None:
        with self._changed:
            if self._idle is None or self._idle[1] is not child:
                return
            self._idle = None
        child.end()


KEEPER = ChildKeeper()
"""The keeper of this process."""


def run_in_child(
    request: StageRequest, timeout_s: float, watch: Watch, keeper: ChildKeeper = KEEPER
) -> None:
    """Runs a stage to its end: `runner.run_in_child` in production."""
    failure, fresh = _run(keeper, request, timeout_s, watch)
    if failure is not None and failure.stale and not fresh:
        failure, _ = _run(keeper, request, timeout_s, watch)
    if failure is not None:
        raise Blame(failure.message, failure.by_user, failure.away).error()


def _run(
    keeper: ChildKeeper, request: StageRequest, timeout_s: float, watch: Watch
) -> tuple[StageFailure | None, bool]:
    """How it failed, if it did, and whether the child was a new one."""
    with keeper.lent(request, watch.wanted) as loan:
        fresh = loan.child.fresh
        try:
            failure = _converse(loan, request, timeout_s, watch).failure
        except ChildDied as error:
            raise Unavailable(f"the process of stage {request.stage} {error}") from error
        loan.keep = failure is None
        return failure, fresh


def _converse(loan: Loan, request: StageRequest, timeout_s: float, watch: Watch) -> Ended:
    """Begin the run and wait for its end, looking up now and then."""
    child = loan.child
    number = child.run(request)
    until_s = time.monotonic() + timeout_s
    while True:
        reply = child.reply(POLL_INTERVAL_S)
        if isinstance(reply, Ended) and reply.number == number:
            return reply
        if isinstance(reply, Writing):
            _permit(loan, number, watch)
        if isinstance(reply, Progressed):
            watch.seen(reply.progress)
        if (error := _must_end(until_s, timeout_s, watch)) is not None:
            loan.keep = _cancelled(child, number)
            raise error


def _permit(loan: Loan, number: int, watch: Watch) -> None:
    try:
        watch.begin_write()
    except OnyxError:
        loan.keep = _cancelled(loan.child, number)
        raise
    loan.child.send(Go(number))


def _must_end(until_s: float, timeout_s: float, watch: Watch) -> OnyxError | None:
    if not watch.wanted():
        return Fenced("this worker was declared dead, or its task stopped, while its stage ran")
    if time.monotonic() >= until_s:
        return UserFunctionError(
            f"the stage did not end within {timeout_s:g} s; raise `stageTimeout` if it needs longer"
        )
    return None


def _cancelled(child: Child, number: int) -> bool:
    """Cancel a run; whether the child has obeyed."""
    child.send(Cancel(number))
    until_s = time.monotonic() + OBEY_S
    try:
        while (left_s := until_s - time.monotonic()) > 0:
            reply = child.reply(left_s)
            if isinstance(reply, Ended) and reply.number == number:
                return True
    except Unavailable:
        pass
    return False


class ChildDied(Unavailable):
    """The process ended without a reply."""


class Child:
    """Made by the thread of a `ChildKeeper`; used by one thread at a time."""

    def __init__(self, master: str, taken: dict[str, str]) -> None:
        """
        Raises:
            SettingsError: the machine lacks a Java, a name for the user, or a temporary folder.
            Blocked: there is no room for Spark's files.
        """
        self._scratch = spark_scratch()
        try:
            command = [sys.executable, "-m", _MODULE, str(os.getpid())]
            self._process = ProcessGroup(
                command, environment(master, str(self._scratch.path), taken)
            )
        except BaseException:
            self._scratch.remove()
            raise
        self._runs = 0
        self._replies: queue.SimpleQueue[bytes | Unavailable] = queue.SimpleQueue()
        stdout = self._process.stdout
        self._reader = Thread(target=_forward, args=(stdout, self._replies), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The pid of the process."""
        return self._process.pid

    @property
    def fresh(self) -> bool:
        """Whether it has run nothing yet."""
        return self._runs == 0

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.alive

    def run(self, request: StageRequest) -> int:
        """Begin a run; its number."""
        self._runs += 1
        self._process.forget_lines()
        self.send(Run(self._runs, request))
        return self._runs

    def send(self, order: Order) -> None:
        """Send an order. A child that is gone is noticed by `reply`."""
        self._process.write(encoded(order))

    def reply(self, timeout_s: float) -> Reply | None:
        """The next reply; None if there is none in time.

        Raises:
            ChildDied: there will be none.
            Unavailable: the child has written something else.
        """
        try:
            line = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(line, Unavailable):
            raise line
        if not line:
            raise self._died()
        try:
            return _REPLIES.decode(line)
        except UNREADABLE as error:
            raise Unavailable(f"the Spark child has written no reply: {error}") from error

    def end(self) -> None:
        """Kill what is left of the process and of those it started. Idempotent."""
        self._process.end()
        self._reader.join(TAIL_TIMEOUT_S)
        self._scratch.remove()

    def _died(self) -> ChildDied:
        self.end()
        return ChildDied(
            f"ended with code {self._process.exit_code} and no reply; its last lines:\n  "
            f"{self._process.last_lines}"
        )


def _forward(stream: BinaryIO, replies: queue.SimpleQueue[bytes | Unavailable]) -> None:
    """Until the end of the stream, which is forwarded as an empty line."""
    with stream:
        try:
            while line := read_line(stream):
                replies.put(line)
        except Unavailable as error:
            replies.put(error)
    replies.put(b"")


atexit.register(KEEPER.end)
