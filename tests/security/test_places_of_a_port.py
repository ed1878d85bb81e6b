"""Slow bodies that would take all places, or all memory for bodies, of the port for HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.servers.fake_requests import FakeRequests

from onyx.front.app import App
from onyx.front.interface import Target
from onyx.requests.caller import Caller
from onyx.rights import of_its_author
from onyx.serving.shares import Held, Shares, address_of
from onyx.settings import HttpSettings, Settings
from onyx.telemetry.interface import NULL_GROUP

HERE = ("10.0.0.1", 1)


class Inputs(FakeRequests):
    """Any input is there."""

    async def find(self, job: str, task: str, is_new: bool, caller: Caller) -> Target:
        return Target(job, task)


class Port:
    """The function that is served, and clients of it."""

    def __init__(self, **http: Any) -> None:
        settings = of_its_author(Settings(http=replace(HttpSettings(port=0), **http)))
        self.app = App(settings, Inputs(), ManualClock(), NULL_GROUP)
        self._slow: list[asyncio.Task[int]] = []

    async def post(self, path: str, body: bytes, client: tuple[str, int], ends: bool = True) -> int:
        """The status of a request; `ends`: whether its body does."""
        parts = [{"type": "http.request", "body": body, "more_body": not ends}]
        codes: list[int] = []

        async def receive() -> Mapping[str, Any]:
            return parts.pop(0) if parts else await asyncio.Event().wait() or {}

        async def send(message: Mapping[str, Any]) -> None:
            codes.append(message.get("status", 0))

        scope = {
            "type": "http",
            "method": "POST",
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "client": client,
        }
        await self.app(scope, receive, send)
        return codes[0]

    async def beset(self, count: int, path: str, body: bytes, client: tuple[str, int]) -> int:
        """So many slow bodies; how many of them are held."""
        slow = [asyncio.create_task(self.post(path, body, client, False)) for _ in range(count)]
        self._slow += slow
        await asyncio.sleep(0.01)
        return sum(not each.done() for each in slow)

    async def end(self) -> None:
        for each in self._slow:
            each.cancel()
        await asyncio.wait(self._slow)
        assert self.app.active == 0


OTHERS = {
    "another input from the same address": ("/jobs/mine/in", HERE),
    "another input from elsewhere": ("/jobs/mine/in", ("10.0.0.2", 1)),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize(
    ("limits", "body"),
    [
        ({"requests_max": 100}, b" "),
        ({"bodies_bytes_max": 10_000}, b" " * 100),
    ],
    ids=["places", "memory"],
)
def test_slow_bodies_of_one_input_leave_room_for_others(
    limits: dict[str, int], body: bytes, other: str
) -> None:
    path, client = OTHERS[other]

    async def attack() -> tuple[int, list[int]]:
        port = Port(**limits)
        held = await port.beset(200, "/jobs/theirs/in", body, HERE)
        found = [await port.post(path, b"{}", client) for _ in range(150)]
        await port.end()
        return held, found

    held, found = asyncio.run(attack())

    assert 75 < held < 85
    assert found == [200] * 150


def test_slow_bodies_of_one_address_leave_room_for_others() -> None:
    async def attack() -> list[int]:
        port = Port(requests_max=100)
        for number in range(40):
            await port.beset(5, f"/jobs/theirs/{number}", b" ", HERE)
        found = [await port.post("/jobs/mine/in", b"{}", ("10.0.0.2", 1)) for _ in range(10)]
        await port.end()
        return found

    assert asyncio.run(attack()) == [200] * 10


def test_shares_are_given_back_and_each_next_holder_gets_some() -> None:
    shares = Shares(1_000, 4)
    held = [Held() for _ in range(5)]
    counts = []
    for number, each in enumerate(held):
        taken = 0
        while each.take(shares, str(number)):
            taken += 1
        counts.append(taken)

    assert counts[0] == 800
    assert all(counts)
    assert sum(counts) <= 1_000
    for each in held:
        with each:
            pass
    assert shares.held == 0
    assert held[0].take(shares, "x", 5_000)


@pytest.mark.parametrize(
    ("client", "holder"),
    [
        (("10.1.2.3", 5), "10.1.2.3"),
        (("::ffff:10.1.2.3", 5, 0, 0), "10.1.2.3"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::"),
        (None, ""),
    ],
)
def test_a_holder_is_an_address_or_a_network_of_ipv6(
    client: tuple[Any, ...] | None, holder: str
) -> None:
    assert address_of(client) == holder
