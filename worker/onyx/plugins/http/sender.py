"""Sends requests, some at once, each until it is answered for good.

One thread a request that is on its way, with a connection of its own. The task's thread submits and
looks at what is done; it never waits for a server.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from onyx.errors import contained, describe
from onyx.plugins.http.connection import (
    EndpointConnection,
    HttpAnswer,
    Tries,
    Verdict,
    asked_pause_s,
    pause_s,
)
from onyx.plugins.protocol import PluginContext

QUEUE_BYTES_MAX = 16_777_216
"""The size of requests that are not answered."""
QUEUE_REQUESTS_MAX = 10_000
PERMIT_POLL_S = 0.05
IDLE_POLL_S = 0.005
WATCH_INTERVAL_S = 0.25
"""How late a request that takes too long may be broken off."""
CLOSE_PATIENCE_S = 1.0
LOGGED_AFTER_S, LOGGED_EVERY_S = 3.0, 30.0
_LOGGER = logging.getLogger(__name__)
Exchange = Callable[[EndpointConnection, "HttpRequest"], HttpAnswer]


class HttpRequest(NamedTuple):
    """What is sent in one go, and again under the same key."""

    key: str
    body: bytes
    segments: int


class HttpRefusal(msgspec.Struct, frozen=True):
    """A request is not sent any more."""

    answer: HttpAnswer
    tries: int
    verdict: Verdict


class SentRequest:
    """A request on its way. A thread of the sender sets `refusal` and then `done`, once."""

    __slots__ = (
        "done",
        "first",
        "in_doubt",
        "letters",
        "refusal",
        "refused",
        "reported",
        "request",
    )

    def __init__(
        self, request: HttpRequest, refused: deque[SentRequest], in_doubt: bool, first: int
    ) -> None:
        self.request = request
        self.first = first
        """Segments of the requests that were given before it."""
        self.in_doubt = in_doubt
        """Whether somebody else may have sent it."""
        self.done = False
        self.refusal: HttpRefusal | None = None
        self.refused = refused
        """Gets this if it is refused."""
        self.reported = False
        """The task's: whether its refusal was reported, and letters are written."""
        self.letters = 0
        """The task's: how many dead letters have to be durable for it to be settled."""


class Sender:
    """The requests of one task."""

    def __init__(
        self,
        context: PluginContext,
        connect: Callable[[], EndpointConnection],
        exchange: Exchange,
        concurrency: int,
        retries_max: int | None,
        retry_s_max: float,
    ) -> None:
        """
        Args:
            exchange: sends a request once; never raises.
        """
        self._context = context
        self._connect = connect
        self._exchange = exchange
        self._concurrency = concurrency
        self._retries_max = retries_max
        self._retry_s_max = retry_s_max
        self._lock = threading.Lock()
        self._submitted = threading.Condition(self._lock)
        """What threads of the sender wait for."""
        self._done = threading.Condition(self._lock)
        """What the task's thread waits for."""
        self._queue: deque[SentRequest] = deque()
        self._idle = 0
        self._open = 0
        """Requests that are not done."""
        self._open_bytes = 0
        self._counts: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []
        self._connections: list[EndpointConnection] = []
        self._stopped = threading.Event()
        self._not_before_s = 0.0
        """Until then the server wants no request."""
        self._answered_s: float | None = None
        """Since when nothing was answered; None while all goes well."""
        self._logged_s = -LOGGED_EVERY_S
        self.trouble = ""
        """Why requests wait; empty while they do not."""
        self.failure: BaseException | None = None
        """A bug: a thread has ended."""

    @property
    def has_room(self) -> bool:
        """Whether more may be submitted."""
        return self._open < QUEUE_REQUESTS_MAX and self._open_bytes < QUEUE_BYTES_MAX

    def submit(self, sending: SentRequest) -> None:
        """Send a request when its turn comes. Those who submit ask for room before."""
        with self._lock:
            self._open += 1
            self._open_bytes += len(sending.request.body)
            self._queue.append(sending)
            if self._idle < len(self._queue) and len(self._threads) < self._concurrency:
                self._start()
            self._submitted.notify()

    def take_counts(self) -> Counter[str]:
        """`delivered`, `again`, `refused` since the last call."""
        if not self._counts:
            return Counter()
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return counts

    def await_change(self, seconds: float) -> None:
        """Return when a request is done, at the latest after this time."""
        with self._lock:
            self._done.wait(seconds if self._open else IDLE_POLL_S)

    def close(self) -> None:
        """Send nothing any more. What is on its way may still arrive."""
        self._stopped.set()
        with self._lock:
            self._queue.clear()
            self._submitted.notify_all()
        for connection in self._connections:
            connection.break_off()
        ends_s = time.monotonic() + CLOSE_PATIENCE_S
        for thread in self._threads:
            thread.join(max(0.0, ends_s - time.monotonic()))

    # --- threads -------------------------------------------------------------------------------

    def _start(self) -> None:
        connection = self._connect()
        if not self._threads:
            self._spawn(self._watch)
        self._connections.append(connection)
        self._threads.append(self._spawn(lambda: self._run(connection)))

    def _spawn(self, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(
            target=target, name=f"onyx-http-{self._context.task}", daemon=True
        )
        thread.start()
        return thread

    def _watch(self) -> None:
        """Break off what takes too long."""
        while not self._stopped.wait(WATCH_INTERVAL_S):
            for connection in tuple(self._connections):
                deadline_s = connection.deadline_s
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    connection.break_off()

    def _run(self, connection: EndpointConnection) -> None:
        try:
            while (sending := self._next()) is not None:
                refusal = self._delivered(connection, sending)
                if self._stopped.is_set():
                    break
                self._finish(sending, refusal)
        except BaseException as error:
            self.failure = contained(error)
            _LOGGER.error("sending of task %s: %s", self._context.task, describe(error))
        finally:
            connection.close()

    def _next(self) -> SentRequest | None:
        with self._lock:
            self._idle += 1
            while not self._queue and not self._stopped.is_set():
                self._submitted.wait()
            self._idle -= 1
            return None if self._stopped.is_set() else self._queue.popleft()

    def _delivered(
        self, connection: EndpointConnection, sending: SentRequest
    ) -> HttpRefusal | None:
        """Send a request until it is answered for good, or the sender is stopped."""
        tries = Tries(self._retries_max, sending.in_doubt)
        while self._await_turn():
            answer = self._exchange(connection, sending.request)
            verdict = tries.judged(answer)
            if verdict == "delivered":
                if answer.broken_off:
                    self._log(f"takes a request for delivered: {answer.words}")
                return None
            if verdict != "again":
                return HttpRefusal(answer, tries.count, verdict)
            self._put_off(answer, tries.count)
        return None

    def _await_turn(self) -> bool:
        """Wait until a request may be sent; False if none is any more."""
        while not self._stopped.is_set():
            wait_s = self._not_before_s - time.monotonic()
            if wait_s <= 0 and self._context.permitted():
                return True
            self._stopped.wait(max(wait_s, PERMIT_POLL_S))
        return False

    def _put_off(self, answer: HttpAnswer, tries: int) -> None:
        """Wait before the next try. What the server asks for holds for all requests."""
        now_s = time.monotonic()
        asked_s = asked_pause_s(answer.retry_after, time.time_ns() // 1_000_000)
        self._not_before_s = max(self._not_before_s, now_s + asked_s)
        with self._lock:
            self._counts["again"] += 1
            self.trouble = answer.words
            if self._answered_s is None:
                self._answered_s = now_s
            has_waited = now_s - self._answered_s >= LOGGED_AFTER_S
        if has_waited:
            self._log(f"sends again: {answer.words}")
        drawn = random.random()  # noqa: S311 - nothing secret
        self._stopped.wait(pause_s(tries, self._retry_s_max, drawn))

    def _log(self, what: str) -> None:
        """Log something of which there may be much."""
        now_s = time.monotonic()
        with self._lock:
            is_due = now_s >= self._logged_s + LOGGED_EVERY_S
            self._logged_s = now_s if is_due else self._logged_s
        if is_due:
            _LOGGER.warning("task %s %s", self._context.task, what)

    def _finish(self, sending: SentRequest, refusal: HttpRefusal | None) -> None:
        with self._lock:
            self._open -= 1
            self._open_bytes -= len(sending.request.body)
            self._counts["delivered" if refusal is None else "refused"] += 1
            self.trouble, self._answered_s = "", None
            if refusal is None:  # its segments may wait for those before them, its body need not
                sending.request = sending.request._replace(body=b"")
            else:
                sending.refusal = refusal
                sending.refused.append(sending)
            sending.done = True
            self._done.notify_all()
