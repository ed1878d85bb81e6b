"""Requests that a test answers, in place of the router and the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, cast

from tests.support.clocks import ManualClock

from onyx.ids import JobId
from onyx.model.job import CatalogEntry
from onyx.peer.router.inputs import InputAccess, InputTokens, RequestInput, RequestInputs
from onyx.requests.request import Answer, Append, Caller, RequestTarget, Status
from onyx.rights import of_its_author
from onyx.settings import Settings

JOB = "orders"
UNKNOWN = Answer(Status.UNKNOWN, "there is no such input")


class FakeRequests:
    """Implements `Requests`: job `orders` has the inputs `in` (http) and `bus` (requests). Who may
    use them is decided as in a worker."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._tokens = InputTokens(of_its_author(Settings()), self.clock)
        self.options: Mapping[str, Any] = {}
        """Of the input `in`; for its tokens those count that it has at the first request."""
        self.answer = Answer(Status.PROCESSED, segments=1)
        self.appended: list[Append] = []
        self.cancelled = 0
        self.follows = False
        """Whether the job has come in the place of another one."""
        self.hold = False
        """Whether requests wait for ever."""

    async def find(
        self, job: str, task: str, is_new: bool, caller: Caller
    ) -> RequestTarget | Answer:
        access = InputAccess(cast(RequestInputs, _Inputs(self)), self._tokens, at_once)
        found = await access.find(job, task, is_new, caller)
        return found if isinstance(found, Answer) else RequestTarget(found.job, found.task)

    async def append(self, append: Append) -> Answer:
        self.appended.append(append)
        try:
            while self.hold:
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.answer


class _Inputs:
    """Implements `RequestInputs`, as far as `InputAccess` asks."""

    def __init__(self, requests: FakeRequests) -> None:
        http = CatalogEntry("in", "input", plugin="http", options=requests.options)
        bus = CatalogEntry("bus", "input", plugin="requests")
        self._found = {
            each.name: RequestInput(JobId("the-id"), each, (), requests.follows, JOB)
            for each in (http, bus)
        }

    def known(self, job: str, task: str) -> None:
        return None

    def find(self, job: str, task: str, is_new: bool) -> RequestInput | Answer:
        return self._found.get(task or "in", UNKNOWN) if job == JOB else UNKNOWN

    def of(self, job: str) -> list[RequestInput] | None:
        return [*self._found.values()] if job == JOB else None

    def unheard_of(self, job: str, is_new: bool) -> Answer:
        return Answer(Status.UNKNOWN, f"there is no job {job!r}")


def at_once(run: Callable[[], Any]) -> Future[Any]:
    """Implements the background of a peer."""
    future: Future[Any] = Future()
    future.set_result(run())
    return future
