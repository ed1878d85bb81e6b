"""Answers to requests: waited for until their time at the latest, and put together of parts.

Their times are looked at together: a timer for each would cost more than the request. So an answer
that a request has timed out may be late by `LOOK_INTERVAL_S`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from onyx.base.event_loop import EventLoop
from onyx.base.seams import Clock
from onyx.errors import OnyxError, contained
from onyx.functions.returning import LOST
from onyx.ledger.outcomes import NOTHING, failure_text
from onyx.ledger.returns import Parts, ReturnPart, put_together
from onyx.requests.request import Answer, Status

LOOK_INTERVAL_S = 0.2
Resolve = Callable[[str], Callable[..., Any]]


class _Waiting(NamedTuple):
    due_s: float
    given_s: float
    """The time that its request gave."""
    obstacle: Callable[[], str]


class WaitingAnswers:
    """Safe from any thread."""

    def __init__(self, loop: EventLoop, clock: Clock) -> None:
        """`loop` is where it is looked which of them are due."""
        self._loop = loop
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[Future[Answer], _Waiting] = {}
        self._looks = False
        self._ended = False

    def open(self, timeout_s: float, obstacle: Callable[[], str]) -> Future[Answer] | None:
        """One more; None: the process ends. `obstacle` says at its time why there is no answer."""
        loop = self._loop.running()
        future: Future[Answer] = Future()
        due_s = self._clock.monotonic_s() + timeout_s
        with self._lock:
            if loop is None or self._ended:
                return None
            self._open[future] = _Waiting(due_s, timeout_s, obstacle)
            if self._looks:
                return future
            self._looks = True
        loop.call_soon_threadsafe(loop.call_later, LOOK_INTERVAL_S, self._look)
        return future

    def settle(self, future: Future[Answer], answer: Answer) -> None:
        """Give an answer, unless one was given before or nobody waits any more."""
        with self._lock:
            waits = self._open.pop(future, None) is not None
        if waits and future.set_running_or_notify_cancel():
            future.set_result(answer)

    def end(self, answer: Answer) -> None:
        """Give all of them this answer, and take no more."""
        with self._lock:
            self._ended = True
            left = list(self._open)
        for future in left:
            self.settle(future, answer)

    def _look(self) -> None:
        now_s = self._clock.monotonic_s()
        with self._lock:
            due = [(each, its) for each, its in self._open.items() if its.due_s <= now_s]
        for future, its in due:
            self.settle(future, timed_out(its.given_s, its.obstacle()))
        loop = self._loop.running()
        with self._lock:
            self._looks = bool(self._open) and loop is not None
            if loop is not None and self._looks:
                loop.call_later(LOOK_INTERVAL_S, self._look)


class LoopAnswers:
    """Answers of other threads for those who wait on the event loop.

    What comes while the loop is yet to wake up wakes it no more. To wake it is a call of the
    system, in which the loop takes the interpreter, and the journal answers all requests of a chunk
    at once: each of them would wait for the loop to be through with the one before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: list[tuple[asyncio.Future[Answer], Future[Answer]]] = []

    async def of(self, future: Future[Answer]) -> Answer:
        """The answer, on the loop; whoever goes away cancels the future."""
        if future.done():
            return future.result()
        loop = asyncio.get_running_loop()
        waits: asyncio.Future[Answer] = loop.create_future()
        future.add_done_callback(partial(self._came, loop, waits))
        try:
            return await waits
        finally:
            future.cancel()

    def _came(
        self,
        loop: asyncio.AbstractEventLoop,
        waits: asyncio.Future[Answer],
        future: Future[Answer],
    ) -> None:
        with self._lock:
            wakes = not self._found
            self._found.append((waits, future))
        if wakes and not loop.is_closed():
            loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        with self._lock:
            found, self._found = self._found, []
        for waits, future in found:
            if waits.done():
                continue
            if future.cancelled():
                waits.cancel()
            else:
                waits.set_result(future.result())


def timed_out(timeout_s: float, why: str = "") -> Answer:
    """The answer when the time of a request is over, with what kept it."""
    what = f"no answer within {timeout_s:g} s"
    return Answer(Status.TIMED_OUT, f"{what}: {why}" if why else what)


def together(answers: list[Answer]) -> Answer:
    """The answer to a request in parts: what has not been reached decides."""
    open_ = [each for each in answers if not each.status.final]
    if open_:
        return open_[0]
    parts: Parts = {}
    for each in answers:
        put_together(parts, each.parts.items())
    outcomes = sum((each.outcomes for each in answers), NOTHING).in_order()
    failed = outcomes.final_failures > 0
    return replace(
        answers[0],
        status=Status.FAILED if failed else answers[0].status,
        reason=failure_text(outcomes) if failed else "",
        segments=sum(each.segments for each in answers),
        parts=parts,
        values_lost=any(each.values_lost for each in answers),
        outcomes=outcomes,
    )


def needs_user_code(parts: Mapping[str, ReturnPart]) -> bool:
    """Whether a function of the user's puts values together."""
    return any(":" in part.aggregator for part in parts.values())


def with_values(answer: Answer, keys: Iterable[str], resolve: Resolve) -> Answer:
    """The answer with a value, or the reason why there is none, for each key.

    Args:
        keys: what functions of the job may give back.
        resolve: gives the function of the user's that puts values together, from a list of them.
    """
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    if answer.values_lost:
        # What is known is a part of it, or may be.
        return replace(answer, parts={}, values_lost=False, errors=dict.fromkeys(keys, LOST))
    for key, part in sorted(answer.parts.items()):
        if part.error:
            errors[key] = part.error
            continue
        try:
            values[key] = _value(part, resolve)
        except OnyxError as error:
            errors[key] = str(error)
        except BaseException as error:
            errors[key] = str(contained(error, part.aggregator))
    return replace(answer, values=values, parts={}, errors=errors)


def _value(part: ReturnPart, resolve: Resolve) -> Any:
    return resolve(part.aggregator)(part.value) if ":" in part.aggregator else part.value
