"""Whoever reaches the port of a group and is no member: refused, counted, and in nobody's way."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import grpc
import pytest
from msgspec.structs import replace
from tests.integration.transport.test_transport_contract import (
    HELLO,
    SETTINGS,
    A,
    World,
    collect,
    eventually,
    grpc_world,
    refusal,
)

from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.telemetry.labels import Refusal
from onyx.transport.frames import encoder
from onyx.transport.gate import PENDING_MAX
from onyx.transport.grpc_channel import METHOD, STREAMS_MAX
from onyx.transport.state_asking import METHOD as QUERY
from onyx.transport.state_asking import SERVICE
from onyx.transport.state_queries import StateQuery, encode_query

pytestmark = pytest.mark.server
CALLS = 2 * STREAMS_MAX


def refused(world: World) -> dict[Refusal, int]:
    return dict(world.far.transport.counters().refused_calls)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ([b"GET / HTTP/1.1\r\n\r\n"], Refusal.GARBAGE),
        ([os.urandom(3_000_000)], Refusal.GARBAGE),
        ([b""], Refusal.GARBAGE),
        ([encoder.hello_frame(replace(HELLO, tenancy="other"))], Refusal.TENANCY),
        ([encoder.hello_frame(replace(HELLO, protocol=1))], Refusal.PROTOCOL),
        ([encoder.hello_frame(replace(HELLO, target=GroupId("x")))], Refusal.GROUP),
        ([encoder.hello_frame(replace(HELLO, group=GroupId("x")))], Refusal.GROUP),
        (
            [encoder.hello_frame(replace(HELLO, group=GroupId("../x")))],
            Refusal.GARBAGE,
        ),
        ([], Refusal.SILENT),
    ],
)
def test_a_call_that_is_no_members_is_refused_with_the_reason_and_counted(
    first: list[bytes], reason: Refusal
) -> None:
    # Who says nothing is waited for, and who may be a member soon.
    patience_s = {Refusal.SILENT: 0.3, Refusal.GROUP: 2.0}.get(reason, 10.0)
    settings = replace(SETTINGS, heartbeat_timeout_s=patience_s)
    with grpc_world(settings) as world:
        assert refusal(world, *first) != "ended"
        assert refused(world) == {reason: 1}
        inbox = world.far.open()
        world.send([1])
        assert collect(inbox, 1) == [1]


def part(world: World) -> None:
    for side in (world.near, world.far):
        side.transport.connect({})


def meet(world: World) -> None:
    """The members dial each other anew, and a segment passes."""
    for side, other in ((world.near, world.far), (world.far, world.near)):
        side.transport.connect({other.group: other.transport.address})
    inbox = world.far.open()
    world.send([1])
    assert collect(inbox, 1) == [1]


@contextlib.contextmanager
def calling(address: str, calls: int, method: str, first: bytes | None) -> Iterator[list[str]]:
    """So many calls over as many connections as they need, each with its first message or silent,
    which are held open; how those ended that did."""
    done, ended = threading.Event(), []
    options = [("grpc.use_local_subchannel_pool", 1)]

    def requests() -> Iterator[bytes]:
        if first is not None:
            yield first
        done.wait()

    with contextlib.ExitStack() as stack:
        stack.callback(done.set)
        for number in range(calls):
            if number % 16 == 0:
                channel = stack.enter_context(grpc.insecure_channel(address, options=options))
            call = channel.stream_stream(method)(requests())
            call.add_done_callback(lambda each: ended.append(each.code().name))
        yield ended


@pytest.mark.short(2)
@pytest.mark.parametrize(
    ("method", "first"),
    [
        (METHOD, None),
        (METHOD, encoder.hello_frame(replace(HELLO, group=GroupId("stranger")))),
        (METHOD, b"garbage"),
        (f"/{SERVICE}/{QUERY}", None),
        (f"/{SERVICE}/{QUERY}", b"garbage"),
    ],
    ids=["silent", "of a group unknown", "garbage", "silent question", "garbage as a question"],
)
def test_calls_of_strangers_do_not_take_the_places_of_members(
    method: str, first: bytes | None
) -> None:
    with grpc_world() as world:
        part(world)
        address = world.far.transport.address
        with calling(address, CALLS, method, first) as ended:
            eventually(lambda: len(ended) >= CALLS - PENDING_MAX - 32, "refusals")
            meet(world)
            assert sum(refused(world).values()) >= CALLS - PENDING_MAX - 32
            threads = [each.name for each in threading.enumerate()]
            assert sum(name == "onyx-stream-reader" for name in threads) < PENDING_MAX + 64


@pytest.mark.parametrize(
    "says", [b"", b"\x16\x03\x01 garbage", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
def test_connections_that_speak_no_grpc_are_bounded_and_a_member_gets_in(says: bytes) -> None:
    with grpc_world() as world:
        part(world)
        host, _, port = world.far.transport.address.rpartition(":")
        connections = []
        try:
            for _ in range(200):
                each = socket.create_connection((host, int(port)), timeout=5)
                each.sendall(says)
                connections.append(each)
            meet(world)
        finally:
            for each in connections:
                each.close()


def test_a_question_for_another_group_is_refused_and_counted() -> None:
    question = StateQuery("other", A, PeerId("p"), JobId("j"), AllocationVersion(1), "w", b"", 10)
    with grpc_world() as world, grpc.insecure_channel(world.far.transport.address) as channel:
        call = channel.unary_stream(f"/{SERVICE}/{QUERY}")(encode_query(question), timeout=10)
        with pytest.raises(grpc.RpcError, match="was asked"):
            next(call)
        assert refused(world) == {Refusal.TENANCY: 1}
