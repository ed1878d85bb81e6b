"""The kafka output and a real broker: reports, transactions, positions, who is fenced."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.kafka_broker import MESSAGE_BYTES_MAX, KafkaBroker

from onyx.errors import Unavailable, UserError
from onyx.flow.batch import Segment
from onyx.ids import GroupId
from onyx.plugins.kafka import output as kafka_store
from onyx.plugins.kafka.client import KafkaClient
from onyx.plugins.kafka.messages import TopicMessages
from onyx.plugins.kafka.options import KafkaOutputOptions
from onyx.plugins.kafka.output import KafkaOutput, KafkaStore
from onyx.plugins.protocol import Output, Token
from onyx.plugins.registry import build_output
from onyx.plugins.transactions import TransactionWriter
from onyx.testing.plugin_kit import check_output

pytestmark = pytest.mark.server

TICKS_MAX = 1_000
_names = itertools.count()


def kafka_output(broker: KafkaBroker, topic: str, **options: Any) -> KafkaOutput:
    given = {"bootstrapServers": broker.address, "topic": topic, **options}
    output = build_output("kafka", plugin_context(given))
    assert isinstance(output, KafkaOutput)
    return output


def store_of(broker: KafkaBroker, topic: str, incarnation: str) -> KafkaStore:
    options = KafkaOutputOptions(bootstrap_servers=broker.address, topic=topic)
    context = plugin_context({}, incarnation=incarnation)
    return KafkaStore(KafkaClient(context, options), TopicMessages(context, options))


def columns(*of: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(of, pa.int64())})


def numbers(*of: int) -> list[Segment]:
    return [{"n": n} for n in of]


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    return kafka.create(f"out-{next(_names)}", partitions=2)


# --- at least once ------------------------------------------------------------------------------


def test_segments_are_durable_when_they_are_reported(kafka: KafkaBroker, topic: str) -> None:
    output = kafka_output(kafka, topic)
    output.fence([])
    output.write(numbers(*range(1_000)))
    output.write(numbers(1_000))
    output.flush()
    assert output.durable() == 1_001
    output.close()
    assert sorted(row["n"] for row in kafka.rows(topic)) == list(range(1_001))


def test_columns_and_dicts_are_messages_in_their_order(kafka: KafkaBroker) -> None:
    topic = kafka.create(f"out-{next(_names)}")
    output = kafka_output(kafka, topic)
    output.write_columns(columns(0, 1))
    output.write(numbers(2))
    output.write_columns(columns())
    output.write_columns(columns(3))
    output.flush()
    assert output.durable() == 4
    output.close()
    assert kafka.rows(topic) == numbers(0, 1, 2, 3)


def test_an_arrow_message_counts_all_its_segments(kafka: KafkaBroker, topic: str) -> None:
    output = kafka_output(kafka, topic, format="arrow")
    output.write_columns(columns(0, 1, 2))
    output.write(numbers(3))
    output.flush()
    assert output.durable() == 4
    output.close()
    tables = [pa.ipc.open_stream(each.value()).read_all() for each in kafka.messages(topic)]
    assert sorted(n for table in tables for n in table["n"].to_pylist()) == [0, 1, 2, 3]


def test_columns_are_written_once_in_a_transaction_with_dicts(kafka: KafkaBroker) -> None:
    topic = kafka.create(f"out-{next(_names)}")
    output = kafka_output(kafka, topic)
    commits: list[tuple[Token, int]] = []
    output.begin(lambda token, segments: commits.append((token, segments)))
    output.write_columns(columns(0, 1))
    output.write(numbers(2))
    output.flush()
    ((token, segments),) = commits
    output.finish(token)
    output.close()
    assert segments == 3
    assert kafka.rows(topic) == numbers(0, 1, 2)


def test_a_message_has_key_value_time_and_headers_of_its_segment(
    kafka: KafkaBroker, topic: str
) -> None:
    fields = {"keyField": "id", "timestampField": "at", "headersField": "more"}
    output = kafka_output(kafka, topic, format="text", valueField="text", **fields)
    output.write([
        {"id": 7, "at": 5, "more": {"a": "b"}, "text": "grün"},
        {"id": 7, "at": 6, "text": None},
    ])  # fmt: skip
    output.flush()
    output.close()
    first, second = kafka.messages(topic)
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"7", "grün".encode(), 5)
    assert first.headers() == [("a", b"b")]
    assert (second.key(), second.value(), second.timestamp()[1]) == (b"7", None, 6)


def test_while_no_broker_answers_no_more_is_taken_than_there_is_room_for(
    kafka: KafkaBroker, topic: str
) -> None:
    config = {"queue.buffering.max.messages": 10}
    output = kafka_output(kafka, topic, bootstrapServers="127.0.0.1:1", config=config)
    output.write(numbers(*range(20)))
    with pytest.raises(Unavailable, match=f"writing to topic '{topic}': no room now"):
        output.write(numbers(20))
    assert output.durable() == 0
    output.close()


# --- exactly once -------------------------------------------------------------------------------


def test_the_output_keeps_its_promises_in_transactions(kafka: KafkaBroker) -> None:
    def start() -> tuple[Callable[[GroupId], Output], Callable[[], list[Segment]]]:
        topic = kafka.create(f"out-{next(_names)}")

        def make(incarnation: GroupId) -> Output:
            store = store_of(kafka, topic, incarnation)
            return TransactionWriter(store, plugin_context({}, incarnation=incarnation))

        return make, lambda: kafka.rows(topic)

    check_output(start, numbers(*range(4)), batch_size=4)


def test_a_transaction_is_applied_once_whoever_applies_it(kafka: KafkaBroker, topic: str) -> None:
    mine, other = store_of(kafka, topic, "a"), store_of(kafka, topic, "b")
    mine.open("a.0")
    mine.open("a.0")
    assert mine.apply("a.0", 1, numbers(1, 2))
    assert mine.apply("a.0", 1, numbers(1, 2))
    assert other.apply("a.0", 1, numbers(1, 2))
    assert other.apply("a.0", 2, numbers(3))
    with pytest.raises(Unavailable, match=r"another peer finishes what a\.0 began"):
        mine.apply("a.0", 3, numbers(4))
    assert mine.apply("a.0", 2, numbers(3))
    assert mine.apply("a.0", 3, numbers(4))
    assert sorted(row["n"] for row in kafka.rows(topic)) == [1, 2, 3, 4]


def test_without_a_position_nothing_is_applied(kafka: KafkaBroker, topic: str) -> None:
    store = store_of(kafka, topic, "a")
    assert not store.apply("a.0", 1, numbers(1))
    store.open("a.0")
    assert store.apply("a.0", 1, numbers(1))
    store.forget("a.0")
    other = store_of(kafka, topic, "b")
    assert not other.apply("a.0", 2, numbers(2))
    store.forget(None)
    store.forget("a.0")
    assert kafka.rows(topic) == numbers(1)


def test_the_dead_are_fenced_and_the_living_are_not(kafka: KafkaBroker, topic: str) -> None:
    dead, alive = store_of(kafka, topic, "dead"), store_of(kafka, topic, "alive")
    for store, writer in ((dead, "dead.0"), (alive, "alive.3")):
        store.open(writer)
        assert store.apply(writer, 1, numbers(1))
    alive.fence([GroupId("alive")])
    with pytest.raises(Unavailable):
        dead.apply("dead.0", 2, numbers(9))
    assert not dead.apply("dead.0", 2, numbers(9))
    assert alive.apply("alive.3", 2, numbers(2))
    assert sorted(row["n"] for row in kafka.rows(topic)) == [1, 1, 2]


def test_what_the_dead_had_begun_is_aborted_by_the_fence(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of committed messages do not wait for the time-out of a dead one's transaction."""
    dead, alive = store_of(kafka, topic, "dead"), store_of(kafka, topic, "alive")
    dead.open("dead.0")

    class Dies(kafka_store.Producer):
        def commit_transaction(self, *arguments: Any) -> None:
            self.flush()
            producers.append(self)
            raise _Killed

    producers: list[Dies] = []
    with monkeypatch.context() as patch:
        patch.setattr(kafka_store, "Producer", Dies)
        with pytest.raises(_Killed):
            dead.apply("dead.0", 1, numbers(1))
    alive.fence([GroupId("alive")])
    kafka.produce(topic, numbers(5))
    assert kafka.rows(topic) == numbers(5)


def test_an_outcome_that_nobody_knows_is_looked_up(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[commit arrives, its answer does not]"""
    store = store_of(kafka, topic, "a")
    store.open("a.0")
    commit = kafka_store.Producer.commit_transaction

    class LosesAnswers(kafka_store.Producer):
        def commit_transaction(self, *arguments: Any) -> None:
            commit(self, *arguments)
            raise KafkaException(kafka_store.KafkaError(kafka_store.KafkaError._TIMED_OUT))

    monkeypatch.setattr(kafka_store, "Producer", LosesAnswers)
    with pytest.raises(Unavailable, match="writing to topic"):
        store.apply("a.0", 1, numbers(1))
    assert store.apply("a.0", 1, numbers(1))
    assert kafka.rows(topic) == numbers(1)


def test_a_commit_that_never_returns_is_given_up_and_looked_up(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[commit arrives, the call hangs] [the call hangs, commit does not arrive]"""
    commit = kafka_store.Producer.commit_transaction
    over = threading.Event()

    class HangsAfter(kafka_store.Producer):
        def commit_transaction(self, *arguments: Any) -> None:
            commit(self, *arguments)
            over.wait()

    class HangsBefore(kafka_store.Producer):
        def commit_transaction(self, *arguments: Any) -> None:
            over.wait()
            commit(self, *arguments)

    for number, producer in ((1, HangsAfter), (2, HangsBefore)):
        store = store_of(kafka, topic, "a")
        store.open("a.0")
        with monkeypatch.context() as patch:
            patch.setattr(kafka_store, "Producer", producer)
            patch.setattr(store, "_patience_s", 1.0)
            with pytest.raises(Unavailable, match="no answer within 1 s; its outcome is looked up"):
                store.apply("a.0", number, numbers(number))
        assert store.apply("a.0", number, numbers(number))
    over.set()
    assert sorted(row["n"] for row in kafka.rows(topic)) == [1, 2]


def test_several_at_once_finish_a_transaction_once(kafka: KafkaBroker, topic: str) -> None:
    stores = [store_of(kafka, topic, f"p{n}") for n in range(3)]
    stores[0].open("dead.0")
    applied: list[bool] = []

    def finish(store: KafkaStore) -> None:
        while True:
            try:
                applied.append(store.apply("dead.0", 1, numbers(1, 2, 3)))
            except Unavailable:
                continue
            return

    threads = [threading.Thread(target=finish, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert applied == [True] * 3
    assert sorted(row["n"] for row in kafka.rows(topic)) == [1, 2, 3]


def test_committed_segments_are_finished_by_others_and_the_rest_is_nobodys(
    kafka: KafkaBroker, topic: str
) -> None:
    """[write 1 2, commit, CRASH before it is applied; write 3, CRASH]"""
    committed: list[tuple[Token, int]] = []

    def commit(token: Token, segments: int) -> None:
        committed.append((token, segments))
        raise _Killed

    dead = kafka_output(kafka, topic)
    dead.begin(commit)
    dead.write(numbers(1, 2))
    with pytest.raises(_Killed):
        dead.flush()
    alive = kafka_output(kafka, topic)
    ((token, segments),) = committed
    assert segments == 2
    assert kafka.rows(topic) == []
    alive.finish(token)
    alive.finish(token)
    alive.begin(lambda token, segments: None)
    alive.write(numbers(3))
    alive.flush()
    assert alive.durable() == 1
    alive.seal()
    alive.close()
    assert sorted(row["n"] for row in kafka.rows(topic)) == [1, 2, 3]


# --- what is wrong ------------------------------------------------------------------------------


def test_a_missing_topic_is_told_before_anything_is_written(kafka: KafkaBroker) -> None:
    plain, exact = kafka_output(kafka, "out-none"), kafka_output(kafka, "out-none")
    exact.begin(lambda token, segments: None)
    for output in (plain, exact):
        with pytest.raises(UserError, match=r"has no topic 'out-none'; create it first"):
            output.fence([GroupId("incarnation-1")])
        output.close()


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_message_too_large_is_told_before_it_is_committed(
    kafka: KafkaBroker, exactly_once: bool
) -> None:
    topic = kafka.create(f"out-{next(_names)}", max_message_bytes="2000")
    output = kafka_output(kafka, topic)
    if exactly_once:
        output.begin(lambda token, segments: pytest.fail("committed"))
    with pytest.raises(UserError, match=r"too large|larger than the topic takes"):
        write_until_refused(output, [{"text": "x" * 3_000}])
    output.close()


def test_a_message_larger_than_the_client_takes_is_told(kafka: KafkaBroker, topic: str) -> None:
    output = kafka_output(kafka, topic)
    with pytest.raises(UserError, match=r"1,048,587 bytes is too large.*message.max.bytes"):
        output.write([{"text": "x" * MESSAGE_BYTES_MAX}])
    output.close()


def write_until_refused(output: KafkaOutput, segments: Sequence[Segment]) -> None:
    output.write(list(segments))
    for _ in range(TICKS_MAX):
        output.flush()


def test_values_that_no_message_has_are_named(kafka: KafkaBroker, topic: str) -> None:
    cases: list[tuple[dict[str, Any], Segment, str]] = [
        ({}, {"n": object()}, "key 'n' holds a object that JSON cannot"),
        ({"keyField": "n"}, {"n": 1.5}, "key 'n' holds a float; a str, bytes or an int is wanted"),
        ({"timestampField": "n"}, {"n": "now"}, "'n' holds a str; milliseconds since 1970"),
        ({"headersField": "n"}, {"n": {"a": 1}}, "'n' holds a int; a map to str, bytes or lists"),
        ({"headersField": "n"}, {"n": "a"}, "'n' holds a str; a map is wanted"),
    ]
    for options, segment, reported in cases:
        output = kafka_output(kafka, topic, **options)
        with pytest.raises(UserError, match=reported):
            output.write([segment])
        output.close()


class _Killed(BaseException):
    """Not handled by anybody, as a kill is not."""
