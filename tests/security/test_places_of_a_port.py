"""Requests and slow bodies that would take all places, or all memory for bodies, of the port for
HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import resource
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.patience import WAIT_S
from tests.support.servers.certificates import Secret
from tests.support.servers.fake_requests import FakeRequests
from tests.support.servers.gateways import answer, answers, connected, gateways

from onyx.gateway.app import App
from onyx.gateway.gateway import Gateway
from onyx.requests.request import Answer, Append, Caller, RequestTarget
from onyx.rights import of_its_author
from onyx.serving.shares import HeldShares, Shares, address_of
from onyx.settings import HttpSettings, Settings
from onyx.telemetry.interface import NULL_GROUP

HERE = ("10.0.0.1", 1)


class Inputs(FakeRequests):
    """Any input is there."""

    async def find(self, job: str, task: str, is_new: bool, caller: Caller) -> RequestTarget:
        return RequestTarget(job, task)


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
    held = [HeldShares() for _ in range(5)]
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


PLACES = HttpSettings().requests_max
ADDRESSES = [f"127.0.0.{number}" for number in range(2, 66)]
MIB = 1 << 20
OF_A_PLACE = 32 << 10
"""Bytes that a place may cost beside its body: buffers, parser, tasks."""
OF_BOTH_SIDES = 160 << 10
"""Bytes that a connection over TLS may cost, with what its client here holds."""


class Waiting(Inputs):
    """Any input is there, and its requests wait until a test lets them go."""

    def __init__(self) -> None:
        super().__init__()
        self._lets_go = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def append(self, append: Append) -> Answer:
        self._loop = asyncio.get_running_loop()
        self.appended.append(append)
        await self._lets_go.wait()
        return self.answer

    def let_go(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._lets_go.set)


class Clients:
    """Clients of a gateway, each with an input and, of many, an address of its own."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._count = gateway, 0

    def send(self, body: bytes, length: int = 0) -> socket.socket:
        """A request, of which so much of the body is sent at once."""
        self._count += 1
        source = (ADDRESSES[self._count % len(ADDRESSES)], 0)
        client = socket.create_connection(("127.0.0.1", self._gateway.port), WAIT_S, source)
        head = f"POST /jobs/orders/in-{self._count} HTTP/1.1\r\nhost: x\r\n"
        kind = f"content-type: application/json\r\ncontent-length: {length or len(body)}\r\n\r\n"
        client.sendall((head + kind).encode() + body)
        return client


def memory() -> int:
    """Bytes that this process holds, without what its allocator keeps for later."""
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def readable(clients: list[socket.socket]) -> list[socket.socket]:
    """Those to which something was said."""
    with selectors.DefaultSelector() as selector:
        for each in clients:
            selector.register(each, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(0)]  # type: ignore[misc]


def until(done: Callable[[], bool]) -> None:
    waiter = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if done():
            return
        waiter.wait(0.01)
    raise AssertionError("it did not come to pass")


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Enough for both sides of all places."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 5 * PLACES:
        pytest.skip("this process may not open so many sockets")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 5 * PLACES), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("room", [0, 8], ids=["connections are taken too", "connections are free"])
@pytest.mark.usefixtures("descriptors")
def test_when_all_places_are_taken_others_are_refused_until_one_is_free(room: int) -> None:
    waiting = Waiting()
    with contextlib.ExitStack() as stack:
        make = stack.enter_context(gateways(waiting))
        gateway = make(connections_max=PLACES + room)
        clients = Clients(gateway)
        before = memory()
        held = [stack.enter_context(clients.send(b"{}")) for _ in range(PLACES)]
        until(lambda: len(waiting.appended) == PLACES)
        assert memory() - before < PLACES * OF_A_PLACE

        for _ in range(3):
            with clients.send(b"{}") as another:
                said = answer(another) if room else answers(another)
            assert said.startswith(b"HTTP/1.1 429") if room else not said
        assert len(waiting.appended) == PLACES

        waiting.let_go()
        assert all(answer(each).startswith(b"HTTP/1.1 200") for each in held)
        with clients.send(b"{}") as another:
            assert answer(another).startswith(b"HTTP/1.1 200")
        for each in held:
            each.close()
        until(lambda: gateway.connections == 0)


@pytest.mark.usefixtures("descriptors")
def test_bodies_in_all_places_hold_no_more_memory_than_bodies_may() -> None:
    body, most = b" " * (MIB // 4), HttpSettings().bodies_bytes_max
    assert PLACES * len(body) == 2 * most
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(gateways(Inputs()))()
        clients = Clients(gateway)
        before = memory()
        slow = [stack.enter_context(clients.send(body, len(body) + 2)) for _ in range(PLACES)]
        until(lambda: PLACES // 2 <= len(readable(slow)) < PLACES)
        assert answer(readable(slow)[0]).startswith(b"HTTP/1.1 429")
        assert memory() - before < most + PLACES * OF_A_PLACE

        for each in slow:
            each.close()
        until(lambda: gateway.connections == 0)
        with clients.send(b"{}") as another:
            assert answer(another).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("descriptors")
def test_connections_over_tls_hold_little_before_they_say_anything(
    tmp_path: Path, authority: trustme.CA
) -> None:
    Secret(tmp_path, authority)
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    context.check_hostname = False
    files = {"cert_file": str(tmp_path / "tls.crt"), "key_file": str(tmp_path / "tls.key")}
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(gateways(Inputs()))(**files)
        before, count = memory(), 256
        for _ in range(count):
            raw = stack.enter_context(connected(gateway))
            stack.enter_context(context.wrap_socket(raw))
        assert gateway.connections == count
        assert memory() - before < count * OF_BOTH_SIDES
