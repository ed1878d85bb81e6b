"""Requests that a test answers, in place of the router and the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from onyx.front.app import Target
from onyx.requests.append import Append
from onyx.requests.request import Answer, Status


class FakeRequests:
    """Implements `Requests`: job `orders` has the inputs `in` (http) and `bus` (requests)."""

    def __init__(self) -> None:
        self.options: Mapping[str, Any] = {}
        self.answer = Answer(Status.PROCESSED, segments=1)
        self.appended: list[Append] = []
        self.cancelled = 0
        self.follows = False
        """Whether the job has come in the place of another one."""
        self.hold = False
        """Whether requests wait for ever."""

    async def find(self, job: str, task: str, is_new: bool) -> Target | Answer:
        if job != "orders" or task not in ("in", "", "bus"):
            return Answer(Status.UNKNOWN, "there is no such input")
        plugin = "requests" if task == "bus" else "http"
        return Target("the-id", task or "in", plugin, self.options, self.follows, "orders")

    async def inputs(self, job: str) -> list[Target] | None:
        bus = Target("the-id", "bus", "requests", {}, self.follows, "orders")
        into = Target("the-id", "in", "http", self.options, self.follows, "orders")
        return [into, bus] if job == "orders" else None

    async def unheard_of(self, job: str, is_new: bool) -> Answer:
        return Answer(Status.UNKNOWN, f"there is no job {job!r}")

    async def append(self, append: Append) -> Answer:
        self.appended.append(append)
        try:
            while self.hold:
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.answer
