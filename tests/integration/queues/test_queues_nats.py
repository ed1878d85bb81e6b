"""The nats input and a real server: what is given again, lost connections, streams and rights."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nats
import numpy as np
import pyarrow as pa
import pytest
import trustme
from nats.js.api import StreamConfig
from tests.support.jobs.live_inputs import Owner
from tests.support.patience import WAIT_S
from tests.support.servers.queue_servers import PASSWORD, NatsServer

from onyx.errors import Unavailable, UserError
from onyx.plugins.protocol import Cursor
from onyx.plugins.queues.jetstream import JetStreamSource

pytestmark = pytest.mark.server


class Stream:
    """A stream of its own for a test, with the subjects `<name>.*`."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.name = f"stream-{uuid.uuid4().hex[:8]}"
        self.owners: list[Owner] = []
        self.run("add_stream", StreamConfig(name=self.name, subjects=[f"{self.name}.*"]))

    def run(self, method: str, *arguments: Any) -> Any:
        """A call of JetStream."""

        async def call() -> Any:
            client = await nats.connect(self.server.address, allow_reconnect=False)
            try:
                return await getattr(client.jetstream(), method)(*arguments)
            finally:
                await client.close()

        return asyncio.run(call())

    def add(self, *values: Any, subject: str = "a") -> None:
        """Values as JSON."""

        async def publish() -> None:
            client = await nats.connect(self.server.address, allow_reconnect=False)
            stream = client.jetstream()
            for each in values:
                data = each if isinstance(each, bytes) else json.dumps(each).encode()
                await stream.publish(f"{self.name}.{subject}", data)
            await client.close()

        asyncio.run(publish())

    def numbers(self, first: int, end: int, subject: str = "a") -> list[dict[str, int]]:
        self.add(*({"n": n} for n in range(first, end)), subject=subject)
        return [{"n": n} for n in range(first, end)]

    def owner(
        self,
        before: Owner | None = None,
        context: Any = None,
        cursors: dict[str, Cursor] | None = None,
        **options: Any,
    ) -> Owner:
        given = {"servers": self.server.address, "stream": self.name, "ackWaitSeconds": 1}
        owner = Owner(
            "nats",
            given | options,
            before.store if before else None,
            len(self.owners) + 1,
            before.cursors() if before else cursors,
            **(context or {}),
        )
        self.owners.append(owner)
        return owner

    def pending(self, durable: str = "onyx-flights-work-0") -> int:
        found = self.run("consumer_info", self.name, durable)
        return int(found.num_ack_pending + found.num_pending)


@pytest.fixture
def stream(nats_server: NatsServer) -> Iterator[Stream]:
    made = Stream(nats_server)
    yield made
    for each in made.owners:
        each.close()


@pytest.mark.parametrize("arrow", [False, True])
def test_messages_are_read_once_and_acked(stream: Stream, arrow: bool) -> None:
    expected = stream.numbers(0, 50)
    owner = stream.owner(context={"batch_format": "arrow"} if arrow else None)
    assert owner.read(50) == expected
    owner.until(lambda: not stream.pending())


def test_a_segment_says_what_its_message_was(stream: Stream) -> None:
    stream.add({"n": 1}, subject="b")
    owner = stream.owner(idField="id", subjectField="on", timestampField="ms")
    (found,) = owner.read(1)
    assert found.pop("ms") > 1_700_000_000_000
    assert found == {"n": 1, "id": "1", "on": f"{stream.name}.b"}


@pytest.mark.parametrize("arrow", [False, True])
def test_a_message_of_arrow_has_many_segments(stream: Stream, arrow: bool) -> None:
    batch = pa.RecordBatch.from_pylist([{"n": 1}, {"n": 2}])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream.add(sink.getvalue().to_pybytes())
    owner = stream.owner(
        format="arrow", idField="id", context={"batch_format": "arrow"} if arrow else None
    )
    assert owner.read(2) == [{"n": 1, "id": "1"}, {"n": 2, "id": "1"}]


def test_each_subject_is_a_partition(stream: Stream) -> None:
    expected = stream.numbers(0, 5, "a") + stream.numbers(5, 9, "b")
    stream.numbers(100, 105, "c")
    owner = stream.owner(subjects=[f"{stream.name}.a", f"{stream.name}.b"])
    assert len(owner.readers) == 2
    assert sorted(each["n"] for each in owner.read(9)) == [each["n"] for each in expected]


def test_what_was_not_acked_when_its_worker_died_is_not_taken_twice(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unheard(self: JetStreamSource, handles: Any) -> None:
        raise Unavailable("the worker dies here")

    with monkeypatch.context() as patch:
        patch.setattr(JetStreamSource, "ack", unheard)
        expected = stream.numbers(0, 20)
        first = stream.owner()
        assert first.read(20) == expected
        assert stream.pending() == 20
    second = stream.owner(before=first)
    expected = stream.numbers(20, 30)
    assert second.read(10) == expected
    second.until(lambda: not stream.pending())


def test_a_server_that_is_killed_is_waited_for(stream: Stream) -> None:
    expected = stream.numbers(0, 500)
    owner = stream.owner(prefetch=50)
    found = owner.read(100)
    stream.server.kill()
    try:
        owner.until(lambda: stream.server.address in owner.obstacles[0])
    finally:
        stream.server.start()
    found += owner.read(400)
    assert sorted(each["n"] for each in found) == [each["n"] for each in expected]
    owner.until(lambda: not stream.pending() and not owner.obstacles[0])


def test_a_server_that_is_never_there_is_shown() -> None:
    owner = Owner("nats", {"servers": "127.0.0.1:1", "stream": "s"})
    owner.until(lambda: "127.0.0.1:1" in owner.obstacles[0])
    owner.close()


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 5), ("4", 3)])
def test_a_new_consumer_begins_where_the_job_says(stream: Stream, start: str, first: int) -> None:
    stream.numbers(0, 5)
    owner = stream.owner(startFrom=start)
    owner.until(lambda: bool(stream.run("consumers_info", stream.name)))
    stream.add({"n": 5})
    assert owner.read(6 - first) == [{"n": n} for n in range(first, 6)]


def test_a_consumer_that_is_gone_is_made_behind_the_last_message(stream: Stream) -> None:
    expected = stream.numbers(0, 5)
    owner = stream.owner()
    assert owner.read(5) == expected
    owner.until(lambda: not stream.pending())
    stream.run("delete_consumer", stream.name, "onyx-flights-work-0")
    expected = stream.numbers(5, 8)
    assert owner.read(3) == expected


def test_a_stream_that_is_not_there_ends_the_job(nats_server: NatsServer) -> None:
    owner = Owner("nats", {"servers": nats_server.address, "stream": "none"})
    with pytest.raises(UserError, match=r"stream not found.*is the stream there\?"):
        owner.read(1)
    owner.close()


def test_a_bad_message_ends_the_job_and_stays_in_the_stream(stream: Stream) -> None:
    stream.add(b"{nonsense")
    owner = stream.owner()
    with pytest.raises(UserError, match=r"message 1: no json .*onBadRecord: deadLetter"):
        owner.read(1)
    assert stream.pending() == 1


def test_a_bad_message_is_a_segment_on_request(stream: Stream) -> None:
    stream.add({"n": 1}, b"{nonsense", {"n": 2})
    found = stream.owner(onBadRecord="segment").read(3)
    assert [each.get("n") for each in found] == [1, None, 2]
    assert found[1]["_raw"] == "{nonsense"


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


@contextmanager
def advisories(stream: Stream, kind: str) -> Iterator[list[dict[str, Any]]]:
    """What the server says of the consumers of a stream meanwhile, a second later too."""
    heard: list[dict[str, Any]] = []
    begun, ended = threading.Event(), threading.Event()

    async def listen() -> None:
        client = await nats.connect(stream.server.address, allow_reconnect=False)

        async def hear(message: Any) -> None:
            heard.append(json.loads(message.data))

        await client.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.{stream.name}.>", cb=hear)
        await client.flush()
        begun.set()
        while not ended.is_set():
            await asyncio.sleep(0.01)
        await client.close()

    thread = threading.Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    assert begun.wait(WAIT_S)
    try:
        yield heard
    finally:
        ended.set()
        thread.join()


def deliveries(stream: Stream) -> tuple[int, int]:
    """Of the consumer: messages that it waits for, and those that it has given again."""
    found = stream.run("consumer_info", stream.name, "onyx-flights-work-0")
    return int(found.num_ack_pending), int(found.num_redelivered)


def test_what_may_succeed_later_is_given_again_and_counted(stream: Stream) -> None:
    stream.numbers(0, 3)
    owner = stream.owner(**SOURCE)
    owner.read(3)
    owner.process(0, 2)
    owner.give_back(1)
    assert owner.read(1) == [{"n": 1}]
    assert deliveries(stream) == (1, 1)
    owner.process(3)
    owner.process_until(lambda: not stream.pending())


def test_what_has_failed_for_good_is_terminated_with_the_reason(stream: Stream) -> None:
    stream.numbers(0, 3)
    owner = stream.owner(**SOURCE)
    with advisories(stream, "MSG_TERMINATED") as heard:
        owner.read(3)
        owner.process(1, failed="KeyError: 'who'")
        owner.process(0, 2)
        owner.until(lambda: len(heard) == 1)
    assert (heard[0]["stream_seq"], heard[0]["deliveries"]) == (2, 1)
    assert heard[0]["reason"] == "work: KeyError: 'who'"
    assert deliveries(stream) == (0, 0)


def test_the_server_gives_a_message_as_often_as_the_job_says(stream: Stream) -> None:
    stream.numbers(0, 2)
    stream.owner(**SOURCE).read(2)  # the consumer is there already
    stream.owners.pop().close()
    owner = stream.owner(**SOURCE, maxDeliveries=3)
    with advisories(stream, "MAX_DELIVERIES") as heard:
        owner.read(2)
        owner.process(0)
        owner.give_back(1)
        assert owner.read(1) == [{"n": 1}]
        owner.give_back(2)
        owner.until(lambda: bool(owner._read_some([], 1)) or len(heard) == 1)
    assert (heard[0]["stream_seq"], heard[0]["deliveries"]) == (2, 3)


def test_what_is_worked_on_is_not_given_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than the server waits, while the task is busy: unless the server does not hear of
    it in time, because the machine is."""
    heard_s = [time.monotonic()]
    working = JetStreamSource.working

    def watched(self: JetStreamSource, handles: Any) -> None:
        working(self, handles)
        heard_s.append(time.monotonic())

    monkeypatch.setattr(JetStreamSource, "working", watched)
    stream.numbers(0, 3)
    owner = stream.owner(**SOURCE)
    owner.read(3)
    found: list[dict[str, int]] = []
    owner.until(lambda: owner._read_some(found, 1) or len(heard_s) > 8)
    waiting, again = deliveries(stream)
    assert waiting == 3
    late = np.diff([*heard_s, time.monotonic()]).max() > 0.9
    assert late or (again, found) == (0, [])
    owner.process(0, 1, 2)
    owner.process_until(lambda: not stream.pending())


def test_a_bad_message_is_one_that_has_failed(stream: Stream) -> None:
    stream.add({"n": 0}, b"{nonsense", {"n": 2})
    owner = stream.owner(**SOURCE)
    with advisories(stream, "MSG_TERMINATED") as heard:
        assert owner.read(2) == [{"n": 0}, {"n": 2}]
        owner.until(lambda: len(heard) == 1)
    assert heard[0]["stream_seq"] == 2
    assert heard[0]["reason"].startswith("no json")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("secure-nats")
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
    certificate.private_key_pem.write_to_path(folder / "server.key")
    server = NatsServer(
        folder,
        f'authorization {{ user: onyx, password: "{PASSWORD}" }}\n'
        f'tls {{ cert_file: "{folder}/server.pem", key_file: "{folder}/server.key" }}\n',
    )
    yield server, folder
    server.kill()


def test_credentials_come_from_the_environment_or_a_file(
    secure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = secure
    (folder / "password").write_text(f"{PASSWORD}\n")
    monkeypatch.setenv("QUEUE_PASSWORD", PASSWORD)
    options = {"servers": server.address, "stream": "none", "username": "onyx"}
    options |= {"tls": True, "caFile": str(folder / "ca.pem")}
    for more in {"passwordEnv": "QUEUE_PASSWORD"}, {"passwordFile": str(folder / "password")}:
        owner = Owner("nats", options | more)
        with pytest.raises(UserError, match="stream not found"):
            owner.read(1)
        owner.close()


def test_wrong_credentials_end_the_job(secure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_PASSWORD", "wrong")
    server, folder = secure
    options = {"servers": server.address, "stream": "s", "username": "onyx", "tls": True}
    options |= {"caFile": str(folder / "ca.pem"), "passwordEnv": "QUEUE_PASSWORD"}
    owner = Owner("nats", options)
    with pytest.raises(UserError, match=r"is refused: .*look at username"):
        owner.read(1)
    owner.close()


def test_a_server_of_strangers_is_not_trusted(secure: Any) -> None:
    server, _ = secure
    owner = Owner("nats", {"servers": server.address, "stream": "s", "tls": True})
    owner.until(lambda: "certificate verify failed" in owner.obstacles[0])
    owner.close()
