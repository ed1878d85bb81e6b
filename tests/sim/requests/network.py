"""Requests that one worker hands over to another. A connection may break before the request has
arrived or before the answer has: then it is not known what became of it."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.windows.network import Link, Network

from onyx.ids import GroupId
from onyx.requests.request import Answer, Append, Status
from onyx.transport.appends.messages import (
    decode_answer,
    decode_append,
    encode_answer,
    encode_append,
)

if TYPE_CHECKING:
    from tests.sim.requests.process import RequestProcess

BROKEN = Answer(Status.UNAVAILABLE, "simulated: the connection was lost", 0.2)


@dataclass(slots=True, eq=False)
class Call:
    """A request on its way to another worker, and its answer on the way back."""

    target: GroupId
    append: bytes
    future: Future[Answer] = field(default_factory=Future)
    process: RequestProcess | None = None
    task: asyncio.Task[Answer] | None = None

    def answer(self, answer: Answer) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(answer)


class Calls:
    """All requests that are handed over now."""

    def __init__(self, network: Network, choice: random.Random) -> None:
        self._network = network
        self._choice = choice
        self._calls: list[Call] = []

    def send(self, target: GroupId, append: Append) -> Future[Answer]:
        call = Call(target, encode_append(append))
        self._calls.append(call)
        return call.future

    def deliver(self, share: float) -> None:
        """What is on its way arrives, with this probability."""
        calls, self._calls = self._calls, []
        self._calls += [each for each in calls if not self._advance(each, share)]

    def _advance(self, call: Call, share: float) -> bool:
        """Whether it is over."""
        process = self._network.processes.get(call.target)
        if process is None or (call.process is not None and process is not call.process):
            call.answer(BROKEN)
            return True
        if self._choice.random() >= share:
            return False
        lost = self._choice.random() < self._network.losses
        if call.task is None and not lost:
            call.process = process  # type: ignore[assignment]
            assert call.process is not None
            append = decode_append(call.append)
            call.task = call.process.loop.create_task(call.process.router.answer(append))
            return False
        if call.task is not None and not call.task.done():
            return False
        answer = BROKEN
        if call.task is not None and not lost:
            answer = decode_answer(encode_answer(call.task.result(), 1))[1]
        call.answer(answer)
        return True


class RequestLink(Link):
    """A `Transport` that hands over requests."""

    def __init__(self, network: Network, group: GroupId, calls: Calls) -> None:
        super().__init__(network, group)
        self._calls = calls

    def forward(self, address: str, append: Append) -> Future[Answer]:
        return self._calls.send(GroupId(address), append)
