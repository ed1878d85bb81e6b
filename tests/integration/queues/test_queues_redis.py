"""The redis input and a real server: what is given again, lost answers, ends."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import redis
import trustme
from tests.support.jobs.live_inputs import Owner
from tests.support.servers.queue_servers import PASSWORD, RedisServer

from onyx.errors import OnyxError, Unavailable, UserError
from onyx.plugins.protocol import Cursor
from onyx.plugins.queues import redis_streams as module
from onyx.plugins.queues.redis_streams import RedisSource

pytestmark = pytest.mark.server


class Stream:
    """A stream of its own for a test."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.name = f"stream-{uuid.uuid4().hex[:8]}"
        self.owners: list[Owner] = []

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.server.port)

    def add(self, *values: Any, field: str = "value") -> list[str]:
        """Values as JSON; their ids."""
        return [
            self.client.xadd(
                self.name, {field: each if isinstance(each, bytes) else json.dumps(each)}
            ).decode()
            for each in values
        ]

    def numbers(self, first: int, end: int) -> list[dict[str, int]]:
        self.add(*({"n": n} for n in range(first, end)))
        return [{"n": n} for n in range(first, end)]

    def owner(
        self,
        before: Owner | None = None,
        context: Any = None,
        cursors: dict[str, Cursor] | None = None,
        **options: Any,
    ) -> Owner:
        given = {"server": self.server.address, "stream": self.name, "format": "json"} | options
        owner = Owner(
            "redis",
            given,
            before.store if before else None,
            len(self.owners) + 1,
            before.cursors() if before else cursors,
            **(context or {}),
        )
        self.owners.append(owner)
        return owner

    def pending(self, group: str = "onyx.flights.work") -> int:
        return int(self.client.xpending(self.name, group)["pending"])


@pytest.fixture
def stream(redis_server: RedisServer) -> Iterator[Stream]:
    made = Stream(redis_server)
    yield made
    for each in made.owners:
        each.close()


@pytest.mark.parametrize("arrow", [False, True])
def test_entries_are_read_once_and_acked(stream: Stream, arrow: bool) -> None:
    expected = stream.numbers(0, 50)
    owner = stream.owner(context={"batch_format": "arrow"} if arrow else None)
    assert owner.read(50) == expected
    owner.until(lambda: not stream.pending())
    assert stream.client.xlen(stream.name) == 50


def test_the_fields_of_an_entry_are_a_segment(stream: Stream) -> None:
    id = stream.client.xadd(stream.name, {"order": "7", "count": "two"}).decode()
    owner = stream.owner(format="fields", idField="id", timestampField="ms")
    at_ms = int(id.partition("-")[0])
    assert owner.read(1) == [{"order": "7", "count": "two", "id": id, "ms": at_ms}]


@pytest.mark.parametrize("arrow", [False, True])
@pytest.mark.parametrize(
    ("form", "value", "segments"),
    [
        ("text", "grün".encode(), [{"value": "grün"}]),
        ("bytes", b"\xff\x00", [{"value": b"\xff\x00"}]),
        ("arrow", None, [{"n": 1}, {"n": 2}]),
    ],
)
def test_formats(stream: Stream, form: str, value: Any, segments: Any, arrow: bool) -> None:
    if value is None:
        batch = pa.RecordBatch.from_pylist(segments)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        value = sink.getvalue().to_pybytes()
    (id,) = stream.add(value, field="body")
    context = {"batch_format": "arrow"} if arrow else None
    owner = stream.owner(context=context, format=form, valueField="body", idField="id")
    assert owner.read(len(segments)) == [each | {"id": id} for each in segments]


def test_what_was_not_acked_when_its_worker_died_is_not_taken_twice(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unheard(self: RedisSource, handles: Any) -> None:
        raise Unavailable("the worker dies here")

    with monkeypatch.context() as patch:
        patch.setattr(RedisSource, "ack", unheard)
        expected = stream.numbers(0, 20)
        first = stream.owner()
        assert first.read(20) == expected
        assert stream.pending() == 20
    second = stream.owner(before=first)
    expected = stream.numbers(20, 30)
    assert second.read(10) == expected
    second.until(lambda: not stream.pending())


@pytest.mark.slow
def test_a_server_that_is_killed_is_waited_for(stream: Stream) -> None:
    expected = stream.numbers(0, 1_000)
    owner = stream.owner(prefetch=50)
    found = owner.read(100)
    stream.server.kill()
    try:
        owner.until(lambda: stream.server.address in owner.obstacles[0])
    finally:
        stream.server.start()
    found += owner.read(900)
    assert found == expected
    owner.until(lambda: not stream.pending() and not owner.obstacles[0])


def test_a_server_that_is_never_there_is_shown(tmp_path: Path) -> None:
    owner = Owner("redis", {"server": "127.0.0.1:1", "stream": "s"})
    owner.until(lambda: "127.0.0.1:1" in owner.obstacles[0])
    owner.close()


def test_several_consumers_share_a_stream(stream: Stream) -> None:
    expected = stream.numbers(0, 200)
    owner = stream.owner(partitions=3, prefetch=7)
    assert sorted(each["n"] for each in owner.read(200)) == [each["n"] for each in expected]


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 5), ("id", 3)])
def test_a_new_group_begins_where_the_job_says(stream: Stream, start: str, first: int) -> None:
    ids = stream.add(*({"n": n} for n in range(5)))
    owner = stream.owner(startFrom=ids[2] if start == "id" else start)
    owner.until(lambda: bool(stream.client.xinfo_groups(stream.name)))
    stream.add({"n": 5})
    assert owner.read(6 - first) == [{"n": n} for n in range(first, 6)]


def test_what_others_of_the_group_have_left_is_claimed(stream: Stream) -> None:
    expected = stream.numbers(0, 5)
    client = stream.client
    client.xgroup_create(stream.name, "shared", "0")
    client.xreadgroup("shared", "a-program-that-died", {stream.name: ">"})
    owner = stream.owner(group="shared", claimSeconds=0.05)
    assert owner.read(5) == expected
    owner.until(lambda: not stream.pending("shared"))


def test_acknowledged_entries_are_deleted_on_request(stream: Stream) -> None:
    expected = stream.numbers(0, 5)
    owner = stream.owner(delete=True)
    assert owner.read(5) == expected
    owner.until(lambda: not stream.client.xlen(stream.name))


def test_an_entry_that_was_deleted_before_it_was_read_again_is_left_out(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = stream.add({"n": 0}, {"n": 1})
    client = stream.client
    client.xgroup_create(stream.name, "onyx.flights.work", "0")
    client.xreadgroup("onyx.flights.work", "onyx-0", {stream.name: ">"})
    client.xdel(stream.name, ids[0])
    owner = stream.owner()
    assert owner.read(1) == [{"n": 1}]
    owner.until(lambda: not stream.pending())


def test_what_a_process_without_rights_was_given_is_asked_for_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was declared dead, and has read as this consumer all the same."""
    monkeypatch.setattr(module, "AGAIN_S", 0.05)
    owner = stream.owner()
    owner.until(lambda: bool(stream.client.exists(stream.name)))
    client = stream.client
    owner.until(lambda: bool(client.xinfo_groups(stream.name)))
    (id,) = stream.add({"n": 1})
    client.xclaim(stream.name, "onyx.flights.work", "onyx-0", 0, [id], force=True)
    assert owner.read(1) == [{"n": 1}]


def test_a_group_that_is_gone_is_made_behind_the_last_entry(stream: Stream) -> None:
    expected = stream.numbers(0, 5)
    owner = stream.owner()
    assert owner.read(5) == expected
    owner.until(lambda: not stream.pending())
    stream.client.xgroup_destroy(stream.name, "onyx.flights.work")
    expected = stream.numbers(5, 8)
    assert owner.read(3) == expected


def test_a_bad_entry_ends_the_job_and_stays_in_the_stream(stream: Stream) -> None:
    (id,) = stream.add(b"{nonsense")
    owner = stream.owner()
    with pytest.raises(UserError, match=rf"message {id}: no json .*onBadRecord: deadLetter"):
        owner.read(1)
    assert stream.pending() == 1


@pytest.mark.parametrize("arrow", [False, True])
def test_a_bad_entry_is_a_segment_on_request(stream: Stream, arrow: bool) -> None:
    stream.add({"n": 1}, b"{nonsense", {"n": 2})
    context = {"batch_format": "arrow"} if arrow else None
    owner = stream.owner(context=context, onBadRecord="segment")
    found = owner.read(3)
    assert [each.get("n") for each in found] == [1, None, 2]
    assert found[1]["_raw"] == "{nonsense"


def test_a_key_that_is_no_stream_ends_the_job(stream: Stream) -> None:
    stream.client.set(stream.name, "text")
    owner = stream.owner()
    with pytest.raises(UserError, match="WRONGTYPE"):
        owner.read(1)


def test_without_a_journal_what_was_not_processed_is_given_to_the_next_owner(
    stream: Stream,
) -> None:
    expected = stream.numbers(0, 5)
    first = stream.owner(mode="native")
    assert first.read(5) == expected
    (reader,) = first.readers.values()
    reader.acked(np.array([0, 2, 3], dtype=np.uint64))
    first.until(lambda: stream.pending() == 2)
    cursors = first.cursors(1)
    first.close()
    second = stream.owner(mode="native", cursors=cursors)
    assert sorted(each["n"] for each in second.read(2)) == [1, 4]
    second.cursors()
    second.process_until(lambda: not stream.pending())


SOURCE = {"mode": "native", "onFailure": "source"}


def counts(stream: Stream) -> dict[str, int]:
    """How often each pending entry was given."""
    found = stream.client.xpending_range(stream.name, "onyx.flights.work", "-", "+", 100)
    return {each["message_id"].decode(): each["times_delivered"] for each in found}


def test_what_others_of_the_group_have_left_is_claimed_and_counted(stream: Stream) -> None:
    ids = stream.add({"n": 0}, {"n": 1})
    client, group = stream.client, "onyx.flights.work"
    client.xgroup_create(stream.name, group, "0")
    client.xreadgroup(group, "a-program-that-died", {stream.name: ">"})
    client.xclaim(stream.name, group, "a-program-that-died", 0, [ids[0]], retrycount=3)
    owner = stream.owner(**SOURCE, claimSeconds=0.05, maxDeliveries=3)
    assert owner.read(1) == [{"n": 1}]
    assert counts(stream) == {ids[0]: 3, ids[1]: 2}
    owner.process(0)
    owner.until(lambda: counts(stream) == {ids[0]: 3})
    [left] = client.xpending_range(stream.name, group, "-", "+", 9)
    assert left["consumer"] == b"a-program-that-died"


def test_what_may_succeed_later_is_given_again_and_counted(stream: Stream) -> None:
    ids = stream.add({"n": 0}, {"n": 1}, {"n": 2})
    owner = stream.owner(**SOURCE)
    owner.read(3)
    owner.process(0, 2)
    owner.give_back(1)
    assert owner.read(1) == [{"n": 1}]
    assert counts(stream) == {ids[1]: 2}
    owner.process(3)
    owner.process_until(lambda: not stream.pending())


def test_what_has_failed_for_good_is_left_to_whoever_looks_what_is_pending(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    monkeypatch.setattr(module, "LEASE_S", 0.1)
    ids = stream.add({"n": 0}, {"n": 1})
    owner = stream.owner(**SOURCE)
    owner.read(2)
    owner.process(0, failed="KeyError: 'who'")
    found: list[Any] = []

    def others_take() -> bool:
        owner._read_some(found, 1)
        _, claimed, *_ = stream.client.xautoclaim(
            stream.name, "onyx.flights.work", "undertaker", 300
        )
        return bool(claimed)

    owner.until(others_take)
    assert found == []
    assert counts(stream) == {ids[0]: 2, ids[1]: 1}, "and not what is worked on"


def test_what_is_worked_on_is_neither_left_nor_counted(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    monkeypatch.setattr(module, "LEASE_S", 0.1)
    ids = stream.add({"n": 0}, {"n": 1})
    owner = stream.owner(**SOURCE)
    owner.read(2)
    ends_s, found = time.monotonic() + 0.5, list[Any]()
    while time.monotonic() < ends_s:
        assert owner._read_some(found, 1) is False
        left = stream.client.xpending_range(stream.name, "onyx.flights.work", "-", "+", 9, idle=400)
        assert not left
    assert found == []
    assert counts(stream) == dict.fromkeys(ids, 1)
    owner.process(0, 1)
    owner.process_until(lambda: not stream.pending())


def test_an_entry_is_given_as_often_as_the_job_says(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    ids = stream.add({"n": 0}, {"n": 1})
    owner = stream.owner(**SOURCE, maxDeliveries=2)
    owner.read(2)
    owner.give_back(0)
    assert owner.read(1) == [{"n": 0}]
    owner.give_back(2)
    owner.process(1)
    owner.until(lambda: counts(stream) == {ids[0]: 2})
    owner.close()
    stream.owners.remove(owner)
    stream.add({"n": 2})
    assert stream.owner(**SOURCE, maxDeliveries=2).read(1) == [{"n": 2}]
    assert counts(stream)[ids[0]] == 2, "another owner does not give it either"


def test_another_owner_gives_once_more_what_had_failed(stream: Stream) -> None:
    ids = stream.add({"n": 0})
    owner = stream.owner(**SOURCE)
    owner.read(1)
    owner.process(0, failed="no")
    owner.close()
    stream.owners.remove(owner)
    assert stream.owner(**SOURCE).read(1) == [{"n": 0}]
    assert counts(stream) == {ids[0]: 2}


@pytest.mark.parametrize("arrow", [False, True])
def test_a_bad_entry_of_many_segments_fails_as_a_whole(stream: Stream, arrow: bool) -> None:
    batch = pa.RecordBatch.from_pylist([{"n": 1}, {"n": 2}])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    good = sink.getvalue().to_pybytes()
    ids = stream.add(good, good[:-40], b"", good)
    context = {"batch_format": "arrow"} if arrow else None
    owner = stream.owner(context=context, **SOURCE | {"format": "arrow"})
    assert owner.read(4) == [{"n": 1}, {"n": 2}] * 2
    owner.process(0, 1, 2, 3)
    owner.until(lambda: counts(stream) == {ids[1]: 1, ids[2]: 1})


def test_what_was_left_is_looked_at_page_by_page(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    monkeypatch.setattr(module, "LOOKED_AT_ONCE", 3)
    ids = stream.add(*({"n": n} for n in range(10)))
    owner = stream.owner(**SOURCE)
    owner.read(10)
    owner.process(*range(0, 10, 2), failed="no")
    owner.process(*range(1, 10, 2))
    stream.client.xclaim(stream.name, "onyx.flights.work", "onyx-0", 0, [ids[9]], force=True)
    assert owner.read(1) == [{"n": 9}], "a process without rights was given it as this consumer"
    left = dict.fromkeys(ids[::2], 1)
    stream.client.xack(stream.name, "onyx.flights.work", ids[9], ids[0])
    for _ in range(50):
        assert owner._read_some([], 1) is False
    assert counts(stream) == {id: 1 for id in left if id != ids[0]}
    owner.close()
    stream.owners.remove(owner)
    found = stream.owner(**SOURCE, prefetch=2).read(4)
    assert [each["n"] for each in found] == [2, 4, 6, 8]


@pytest.mark.parametrize("arrow", [False, True])
def test_a_bad_entry_is_one_that_has_failed(stream: Stream, arrow: bool) -> None:
    ids = stream.add({"n": 0}, b"{nonsense", {"n": 2})
    owner = stream.owner(context={"batch_format": "arrow"} if arrow else None, **SOURCE)
    assert owner.read(2) == [{"n": 0}, {"n": 2}]
    owner.process(0, 1)
    owner.process_until(lambda: counts(stream) == {ids[1]: 1})


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("secure-redis")
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
    certificate.private_key_pem.write_to_path(folder / "server.key")
    server = RedisServer(
        folder, "--requirepass", PASSWORD, "--port", "0", "--tls-port", "{}",
        "--tls-cert-file", str(folder / "server.pem"), "--tls-key-file", str(folder / "server.key"),
        "--tls-ca-cert-file", str(folder / "ca.pem"), "--tls-auth-clients", "optional",
    )  # fmt: skip
    yield server, folder
    server.kill()


def test_credentials_come_from_the_environment_or_a_file(
    secure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = secure
    ca = str(folder / "ca.pem")
    client = redis.Redis("127.0.0.1", server.port, password=PASSWORD, ssl=True, ssl_ca_certs=ca)
    client.xadd("s", {"n": "1"})
    (folder / "password").write_text(f"{PASSWORD}\n")
    monkeypatch.setenv("QUEUE_PASSWORD", PASSWORD)
    options = {"server": server.address, "stream": "s", "tls": True, "caFile": ca}
    options["certificateFile"] = str(folder / "server.pem")
    options["keyFile"] = str(folder / "server.key")
    for number, more in enumerate(
        ({"passwordEnv": "QUEUE_PASSWORD"}, {"passwordFile": str(folder / "password")})
    ):
        owner = Owner("redis", options | more | {"group": f"g{number}"})
        assert owner.read(1) == [{"n": "1"}]
        owner.close()


@pytest.mark.parametrize("more", [{}, {"passwordEnv": "QUEUE_PASSWORD"}])
def test_wrong_credentials_end_the_job(
    secure: Any, more: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_PASSWORD", "wrong")
    server, folder = secure
    secured = {"tls": True, "caFile": str(folder / "ca.pem")}
    owner = Owner("redis", {"server": server.address, "stream": "s", **secured, **more})
    with pytest.raises(OnyxError, match=r"is refused: .*look at username and password"):
        owner.read(1)
    owner.close()


def test_a_server_of_strangers_is_not_trusted(secure: Any) -> None:
    server, _ = secure
    owner = Owner("redis", {"server": server.address, "stream": "s", "tls": True})
    owner.until(lambda: "certificate verify failed" in owner.obstacles[0])
    owner.close()
