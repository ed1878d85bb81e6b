"""What the parts of one incarnation share: its process, its connections, its queue of events, its
lease and its threads for what may block.

The parts are made from one `Life` each, so that none is given a row of things which the next one is
given as well. None of this outlives the incarnation, but the process.

**The queue.** Callbacks of the log, timers, tasks and the transport post; the group's thread takes.
A full queue holds the thread that posts, which is how a group that cannot keep up slows down what
feeds it. Dropping was rejected: an entry of the log that is not applied makes the replica wrong.

**The lease.** Invariant: a group acts only while its session cannot have expired. The server
expires a session `timeout` after it last heard from the client, which is not before the client
*sent* the last request that was answered. Acting for 2/3 of the timeout after that moment is
therefore safe by a third of it, whatever the network does. Rejected: counting from the moment at
which the client notices the broken connection. A client whose packets are dropped may notice after
half of the timeout. The lease keeps an idle zombie quiet; it does not fence. A process that is
frozen inside a step wakes up after its lease: the fences hold then (see "Fencing" in
docs/architecture.md).

**Background.** A small pool of threads, and threads aside for hours. Each piece of work logs with
the fields (job, task) of the thread that asked for it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Thread
from typing import Any, Protocol, TypeVar

import msgspec

from onyx.base.seams import Clock
from onyx.errors import InvariantViolated, describe
from onyx.ids import GroupId, PeerId
from onyx.log.interface import GroupLog
from onyx.peer.context import ProcessContext
from onyx.peer.group import Event
from onyx.peer.group_telemetry import GroupTelemetry
from onyx.requests.mailboxes import MailboxRegistry
from onyx.telemetry.logs import locate, location
from onyx.transport.interface import Transport

logger = logging.getLogger("onyx.peer")

EVENTS_MAX = 10_000
"""Events that wait for a group's thread, above which who brings them waits."""

POST_PATIENCE_S = 1.0
"""A thread that waits for room looks this often whether the incarnation still lives."""

THREADS = 4

SAFE_PART = 2 / 3
"""Part of the session timeout for which an unconfirmed session still counts as held."""


class Life(msgspec.Struct, frozen=True):
    """One life of a group, as its parts see it."""

    context: ProcessContext
    """The process, which has other lives before and after."""
    log: GroupLog
    transport: Transport
    events: EventQueue
    """What happens, for the thread of the group."""
    lease: Lease
    """How long the parts may act without hearing from ZooKeeper."""
    background: Background
    """Runs what may block."""
    telemetry: GroupTelemetry
    mailboxes: MailboxRegistry
    """Where requests of clients are handed over to inputs."""
    replace_peer: Callable[[PeerId], None]
    """Gives up a virtual peer and offers a new one in its place."""

    @property
    def group(self) -> GroupId:
        """The id of the group in this life."""
        return self.log.group


def new_life(
    context: ProcessContext,
    log: GroupLog,
    transport: Transport,
    replace_peer: Callable[[PeerId], None],
) -> Life:
    """A life that begins; `log` and `transport` are of this incarnation alone."""
    return Life(
        context,
        log,
        transport,
        EventQueue(EVENTS_MAX),
        Lease(context.clock, log),
        Background(log.group),
        GroupTelemetry(log.group, context.metrics, context.recorder),
        MailboxRegistry(),
        replace_peer,
    )


# --- events -------------------------------------------------------------------------------------


class _Crash(msgspec.Struct, frozen=True):
    """A thread has ended because of a bug: this process cannot go on."""

    reason: str


class EventQueue:
    """Post from any thread; `next` only on the group's thread."""

    def __init__(self, events_max: int) -> None:
        """Above `events_max` events whoever posts waits."""
        self._events: queue.Queue[Event | _Crash] = queue.Queue(events_max)
        self._timers: list[threading.Timer] = []
        self._closed = False

    def post(self, event: Event) -> None:
        """Queue an event. Waits while the queue is full; drops the event after `close`."""
        self._put(event)

    def post_after(self, delay_s: float, event: Event) -> None:
        """Post an event after `delay_s` seconds. Only on the group's thread."""
        timer = threading.Timer(delay_s, self.post, (event,))
        timer.daemon = True
        timer.start()
        self._timers = [each for each in self._timers if each.is_alive()]
        self._timers.append(timer)

    def crash(self, error: BaseException) -> None:
        """A thread of this incarnation has ended because of a bug: `next` raises."""
        self._put(_Crash(f"a thread of the group has ended: {describe(error)}"))

    def next(self, timeout_s: float) -> Event | None:
        """The oldest event; None when none comes within `timeout_s`.

        Raises:
            InvariantViolated: a thread of the incarnation has crashed.
        """
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(event, _Crash):
            raise InvariantViolated(event.reason)
        return event

    def close(self) -> None:
        """Release the threads that wait for room. Timers that have not elapsed are cancelled."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()

    def _put(self, event: Event | _Crash) -> None:
        while not self._closed:
            try:
                self._events.put(event, timeout=POST_PATIENCE_S)
                return
            except queue.Full:
                logger.warning("%d events wait for the group's thread", self._events.maxsize)


# --- the lease ----------------------------------------------------------------------------------


class ConfirmedSession(Protocol):
    """The session whose age decides."""

    @property
    def session_timeout_s(self) -> float:
        """The time-out as negotiated with the server."""
        ...

    def confirmed_s(self) -> float:
        """Monotonic time at which the last answered request was sent."""
        ...


class Lease:
    """The lease of one incarnation. Any thread may ask; the group's thread and the log change it.

    It ends in two ways. Time runs out: `permitted` looks at the clock at each call, because no
    event comes to a process that is frozen. Or the group says so: `pause`, which `resume` takes
    back, and `end`, which nothing takes back.
    """

    def __init__(self, clock: Clock, session: ConfirmedSession) -> None:
        self._clock = clock
        self._session = session
        self._paused = False
        self._ended = False

    def permitted(self) -> bool:
        """Whether this incarnation may act now. Each batch asks several times, so this does at once
        what `silent_s` does by way of others."""
        if self._paused or self._ended:
            return False
        # Who is frozen behind this line acts late all the same, however often the clock is read:
        # the fences hold then.
        now_s, session = self._clock.monotonic_s(), self._session
        return permitted(now_s, session.confirmed_s(), session.session_timeout_s)

    def silent_s(self) -> float | None:
        """Seconds for which the log has not answered, once time has run out; else None."""
        now_s, heard_s = self._clock.monotonic_s(), self._session.confirmed_s()
        held = permitted(now_s, heard_s, self._session.session_timeout_s)
        return None if held else now_s - heard_s

    def remaining_s(self) -> float:
        """Seconds until time runs out; 0 when it has."""
        return pause_delay_s(
            self._clock.monotonic_s(), self._session.confirmed_s(), self._session.session_timeout_s
        )

    def pause(self) -> None:
        """Permit nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """The session has survived a pause."""
        self._paused = False

    def end(self) -> None:
        """The incarnation is over: permit nothing any more."""
        self._ended = True


def pause_delay_s(now_s: float, confirmed_s: float, session_timeout_s: float) -> float:
    """Seconds from now until the group must pause; 0 when it is due already.

    Args:
        now_s: monotonic time.
        confirmed_s: monotonic time at which the last answered request was sent.
        session_timeout_s: as negotiated with the server.
    """
    return max(0.0, confirmed_s + session_timeout_s * SAFE_PART - now_s)


def permitted(now_s: float, confirmed_s: float, session_timeout_s: float) -> bool:
    """Whether the session cannot have expired yet. Arguments as above."""
    return now_s < confirmed_s + session_timeout_s * SAFE_PART


# --- work that may block ------------------------------------------------------------------------

T = TypeVar("T")

Pending = Future[None]

RunAside = Callable[[Callable[[], None]], Pending]
"""Runs something that may block, on a thread of its own."""


class Background:
    """Any thread may call."""

    def __init__(self, name: str) -> None:
        """`name` is in the names of the threads."""
        self._pool = ThreadPoolExecutor(THREADS, f"onyx-background-{name}")
        self._running: set[Future[Any]] = set()

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` soon. The future has its result or what it raised."""
        where = location()

        def located() -> T:
            locate(where)
            return work()

        future = self._pool.submit(located)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def aside(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on a thread of its own, which does not keep the process from ending. The
        future has its result or what it raised."""
        where, future = location(), Future[T]()

        def located() -> None:
            locate(where)
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        Thread(target=located, name="onyx-aside", daemon=True).start()
        return future

    def wait(self, timeout_s: float) -> None:
        """Wait until what runs or is queued now has ended, at most `timeout_s`."""
        wait(tuple(self._running), timeout_s)

    def stop(self) -> None:
        """Begin nothing more. Does not wait."""
        self._pool.shutdown(wait=False, cancel_futures=True)
