"""The kafka input and a real broker: positions over offsets with gaps, starts, ends, refusals."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.kafka_broker import PASSWORD, USER, KafkaBroker

from onyx.base.seams import Clock, SystemClock
from onyx.errors import OnyxError, Unavailable, UserError
from onyx.flow.batch import Segment
from onyx.plugins.protocol import START, Behind, Cursor, Input, Reader
from onyx.plugins.registry import build_input
from onyx.plugins.starting import first_cursor
from onyx.testing.columns_kit import check_columns_input
from onyx.testing.plugin_kit import check_input

pytestmark = pytest.mark.server

READS_MAX = 2_000
"""Each waits for some milliseconds when there is nothing."""


class ClockAt(SystemClock):
    """A clock whose wall shows one time."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms


def kafka_input(
    broker: KafkaBroker, topic: str, clock: Clock | None = None, **options: Any
) -> Input:
    given = {"bootstrapServers": broker.address, "topic": topic, **options}
    return build_input("kafka", plugin_context(given, clock=clock or SystemClock()))


def numbers(first: int, end: int) -> list[Segment]:
    return [{"n": n} for n in range(first, end)]


def read(reader: Reader, count: int) -> list[Segment]:
    """So many segments, or all up to the end."""
    found: list[Segment] = []
    for _ in range(READS_MAX):
        if len(found) >= count or reader.exhausted():
            break
        found += reader.read(count - len(found))
    return found


def produce(producer: Producer, topic: str, segments: list[Segment]) -> None:
    for segment in segments:
        producer.produce(topic, json.dumps(segment), partition=0)
    producer.flush()


def abort(broker: KafkaBroker, topic: str, segments: list[Segment]) -> None:
    with broker.transaction("aborts") as producer:
        produce(producer, topic, segments)
        raise KeyboardInterrupt


def test_a_topic_is_read_alike_however_it_is_read(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-contract", partitions=3)
    kafka.produce(topic, numbers(0, 12), partition=0)
    kafka.produce(topic, numbers(20, 25), partition=2)
    expected = {
        "in-contract/0": numbers(0, 12), "in-contract/1": [], "in-contract/2": numbers(20, 25),
    }  # fmt: skip
    check_input(lambda: kafka_input(kafka, topic, bounded=True), expected, read_sizes=(3, 1_000))


def test_positions_pass_over_what_transactions_leave(kafka: KafkaBroker) -> None:
    """[0 1 2 | aborted | 3 4 commit | 5 | aborted | 6 7 commit]"""
    topic = kafka.create("in-gaps")
    kafka.produce(topic, numbers(0, 3))
    abort(kafka, topic, numbers(100, 107))
    with kafka.transaction("gaps") as producer:
        produce(producer, topic, numbers(3, 5))
    kafka.produce(topic, numbers(5, 6))
    abort(kafka, topic, numbers(200, 203))
    with kafka.transaction("gaps") as producer:
        produce(producer, topic, numbers(6, 8))
    expected = {"in-gaps/0": numbers(0, 8)}
    check_input(lambda: kafka_input(kafka, topic, bounded=True), expected, read_sizes=(1, 3))


def test_what_is_in_an_open_transaction_comes_when_it_is_committed(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-open")
    kafka.produce(topic, numbers(0, 2))
    with kafka.transaction("open") as producer:
        produce(producer, topic, numbers(2, 4))
        endless, bounded = (kafka_input(kafka, topic, bounded=each) for each in (False, True))
        reader = endless.open("in-open/0", START)
        assert read(reader, 2) == numbers(0, 2)
        assert reader.read(10) == []
        ended = bounded.open("in-open/0", START)
        assert read(ended, 10) == numbers(0, 2)
        assert ended.exhausted()
    assert read(reader, 2) == numbers(2, 4)
    assert not reader.exhausted()
    for each in (reader, endless, ended, bounded):
        each.close()


def test_what_is_behind_is_the_end_of_a_partition_less_its_frontier(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-behind", partitions=2)
    kafka.produce(topic, numbers(0, 5))
    plugin = kafka_input(kafka, topic)
    first, other = f"{topic}/0", f"{topic}/1"
    readers = {name: plugin.open(name, START) for name in (first, other)}
    cursors = {name: each.cursor(0) for name, each in readers.items()}
    assert plugin.behind(cursors) == {first: Behind(5), other: Behind(0)}
    assert read(readers[first], 5) == numbers(0, 5)
    kafka.produce(topic, numbers(5, 7))
    at = readers[first].cursor(5)
    assert plugin.behind({first: at}) == {first: Behind(7 - at.position)}
    assert plugin.behind({first: START}) == {}, "nobody has said where it begins"
    for each in (*readers.values(), plugin):
        each.close()


def test_an_end_is_that_of_the_first_opening(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-end")
    kafka.produce(topic, numbers(0, 5))
    plugin = kafka_input(kafka, topic, bounded=True)
    first = plugin.open("in-end/0", START)
    assert read(first, 2) == numbers(0, 2)
    cursor = first.cursor(2)
    kafka.produce(topic, numbers(5, 9))
    again = plugin.open("in-end/0", json_copy(cursor))
    assert read(again, 100) == numbers(cursor.position, 5)
    assert again.exhausted()
    first.close()
    again.close()
    plugin.close()


def json_copy(cursor: Cursor) -> Cursor:
    return Cursor(cursor.position, json.loads(json.dumps(cursor.state)))


def stored(plugin: Input, partition: str) -> Cursor:
    """Where a partition is read first, as the log keeps it."""
    found = first_cursor(plugin, partition)
    assert found is not None
    return json_copy(found)


def test_a_replay_reads_beside_the_open_reader(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-replay")
    kafka.produce(topic, numbers(0, 10))
    plugin = kafka_input(kafka, topic)
    reader = plugin.open("in-replay/0", START)
    assert read(reader, 4) == numbers(0, 4)
    replay = plugin.open("in-replay/0", reader.cursor(0))
    # What was read once is there at once: the ledger does not ask twice.
    assert replay.read(3)[:1] == numbers(0, 1)
    replay.close()
    assert read(reader, 6) == numbers(4, 10)
    reader.close()
    plugin.close()


def test_a_start_is_kept_before_anything_is_read(kafka: KafkaBroker) -> None:
    """[old | start: end | new]: the cursor of position 0 says where that is."""
    topic = kafka.create("in-start")
    kafka.produce(topic, numbers(0, 3))
    plugin = kafka_input(kafka, topic, startFrom="end")
    cursor = stored(plugin, "in-start/0")
    kafka.produce(topic, numbers(3, 6))
    reader = plugin.open("in-start/0", cursor)
    assert read(reader, 3) == numbers(3, 6)
    reader.close()
    plugin.close()


def test_a_job_may_begin_at_a_time(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-time")
    for n in range(4):
        kafka.produce(topic, numbers(n, n + 1), timestamp=1_767_225_600_000 + n * 1000)
    at = {"2026-01-01T00:00:02Z": 2, "2026-01-01T01:00:01.500+01:00": 2, "2026-06-01T00:00:00Z": 4}
    for start, first in at.items():
        plugin = kafka_input(kafka, topic, startFrom=start, bounded=True)
        reader = plugin.open("in-time/0", START)
        assert read(reader, 10) == numbers(first, 4)
        reader.close()
        plugin.close()


def test_a_job_may_begin_some_records_or_a_while_ago_or_at_offsets(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-ago")
    for n in range(4):
        kafka.produce(topic, numbers(n, n + 1), timestamp=1_767_225_600_000 + n * 1000)
    clock = ClockAt(1_767_225_600_000 + 3_500)
    starts: list[tuple[Any, int]] = [
        ({"recordsAgo": 3}, 1),
        ({"recordsAgo": 99}, 0),
        ({"recordsAgo": 0}, 4),
        ({"timeAgo": "2 seconds"}, 2),
        ({"timeAgo": "1h"}, 0),
        ({"position": 3}, 3),
        ({"positions": {"0": 1}}, 1),
    ]
    for start, first in starts:
        plugin = kafka_input(kafka, topic, clock=clock, startFrom=start, bounded=True)
        assert plugin.partitions() == ["in-ago/0"]
        reader = plugin.open("in-ago/0", stored(plugin, "in-ago/0"))
        assert read(reader, 10) == numbers(first, 4), start
        reader.close()
        plugin.close()


def test_offsets_and_partitions_that_are_not_there_are_told(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-nowhere")
    kafka.produce(topic, numbers(0, 4))
    behind = kafka_input(kafka, topic, startFrom={"position": 5})
    with pytest.raises(UserError, match="is offset 5 of partition 0, which has those from 0 to 4"):
        first_cursor(behind, "in-nowhere/0")
    behind.close()
    elsewhere = kafka_input(kafka, topic, startFrom={"positions": {"7": 1}})
    with pytest.raises(UserError, match="has a position for '7', which is no partition"):
        elsewhere.partitions()
    elsewhere.close()


def test_segments_can_have_all_that_a_message_has(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-fields")
    headers = {"trace": "1", "empty": None}
    kafka.produce(topic, ["grün", None], key="k", timestamp=5, headers=headers)
    kafka.produce(topic, ["x"])
    fields = {each: each.removesuffix("Field") for each in (
        "keyField", "partitionField", "offsetField", "timestampField", "headersField"
    )}  # fmt: skip
    plugin = kafka_input(kafka, topic, bounded=True, format="text", **fields)
    reader = plugin.open("in-fields/0", START)
    first, second, third = read(reader, 3)
    message = {"key": "k", "partition": 0, "timestamp": 5, "headers": headers}
    assert first == {"value": "grün", "offset": 0, **message}
    assert second == {"value": None, "offset": 1, **message}
    assert third.pop("timestamp") > 1_767_225_600_000
    assert third == {"value": "x", "key": None, "partition": 0, "offset": 2, "headers": {}}
    reader.close()
    plugin.close()


def test_a_bad_message_fails_the_job_or_becomes_a_segment(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-bad")
    kafka.produce(topic, [{"n": 0}, "[1]", {"n": 2}])
    strict, lenient = (
        kafka_input(kafka, topic, bounded=True, onBadRecord=each) for each in ("fail", "segment")
    )
    reader = strict.open("in-bad/0", START)
    where = r"task 'work': partition 0 of topic 'in-bad': the message at offset 1"
    with pytest.raises(UserError, match=rf"{where}: no json \(Expected `object`.*\): '\[1\]'"):
        read(reader, 3)
    reader.close()
    reader = lenient.open("in-bad/0", START)
    good, bad, good_too = read(reader, 3)
    assert (good, bad["_raw"], good_too) == ({"n": 0}, "[1]", {"n": 2})
    reader.close()
    strict.close()
    lenient.close()


def test_messages_that_are_gone_are_told(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-gone")
    kafka.produce(topic, numbers(0, 3))
    plugin = kafka_input(kafka, topic)
    reader = plugin.open("in-gone/0", Cursor(7, [1_000, None]))
    with pytest.raises(UserError, match=r"messages from offset 1000 on are gone.*retention.ms"):
        read(reader, 1)
    reader.close()
    plugin.close()


def test_a_compacted_topic_has_to_be_wanted(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-compacted", cleanup_policy="compact")
    plugin = kafka_input(kafka, topic)
    with pytest.raises(UserError, match=r"'in-compacted', which is compacted.*compacted: true"):
        plugin.partitions()
    plugin.close()
    plugin = kafka_input(kafka, topic, compacted=True)
    assert plugin.partitions() == ["in-compacted/0"]
    plugin.close()


def test_a_missing_topic_is_named(kafka: KafkaBroker) -> None:
    plugin = kafka_input(kafka, "in-missing")
    with pytest.raises(UserError, match=r"has no topic 'in-missing'; create it first"):
        plugin.partitions()
    plugin.close()


def test_a_server_that_does_not_answer_may_come_back(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onyx.plugins.kafka.input.REQUEST_TIMEOUT_S", 0.5)
    plugin = kafka_input(kafka, "any", bootstrapServers="127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"partitions of topic 'any' failed.*127\.0\.0\.1:1"):
        plugin.partitions()
    plugin.close()


SASL = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
LOGIN = {"sasl.username": "KAFKA_USER", "sasl.password": "KAFKA_PASSWORD"}


def secured(broker: KafkaBroker, topic: str) -> Input:
    servers = broker.secure_address
    return kafka_input(broker, topic, bootstrapServers=servers, config=SASL, configEnv=LOGIN)


def test_credentials_come_from_the_environment(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create("in-secure")
    monkeypatch.setenv("KAFKA_USER", USER)
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    plugin = secured(kafka, topic)
    assert plugin.partitions() == ["in-secure/0"]
    plugin.close()


def test_refused_credentials_are_told_and_not_shown(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onyx.plugins.kafka.input.REQUEST_TIMEOUT_S", 3.0)
    monkeypatch.setenv("KAFKA_USER", USER)
    monkeypatch.setenv("KAFKA_PASSWORD", "a-wrong-one")
    plugin = secured(kafka, "any")
    with pytest.raises(UserError, match=r"refuses our credentials.*'configEnv'") as refused:
        plugin.partitions()
    assert "a-wrong-one" not in str(refused.value)
    plugin.close()
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(UserError, match=r"'KAFKA_PASSWORD' for sasl.password, which is not set"):
        secured(kafka, "any")


def test_a_setting_that_the_library_refuses_is_named(kafka: KafkaBroker) -> None:
    for config, reported in (
        ({"fetch.size": 1}, r'config.*refused: No such configuration property: "fetch.size"'),
        ({"fetch.min.bytes": -1}, r"config.*refused: .*fetch.min.bytes"),
    ):
        with pytest.raises(OnyxError, match=reported):
            kafka_input(kafka, "any", config=config)


def test_who_waits_for_a_server_tells_so_once_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onyx.plugins.kafka.input.REQUEST_TIMEOUT_S", 0.3)
    given = {"bootstrapServers": "127.0.0.1:1", "topic": "any"}
    plugin = build_input("kafka", plugin_context(given))
    for _ in range(3):
        with pytest.raises(Unavailable):
            plugin.partitions()
    plugin.close()
    (record,) = caplog.records
    assert "task work waits for Kafka: " in record.getMessage()
    assert "127.0.0.1:1 failed: Connection refused (bootstrapServers" in record.getMessage()


def arrow(*values: int) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"n": pa.array(values, pa.int64())})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def columns_input(broker: KafkaBroker, topic: str, batch_format: str, **options: Any) -> Input:
    given = {"bootstrapServers": broker.address, "topic": topic, "bounded": True, **options}
    context = plugin_context(given, clock=SystemClock(), batch_format=batch_format)  # type: ignore[arg-type]
    return build_input("kafka", context)


def test_messages_are_the_same_as_columns(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-columns")
    kafka.produce(topic, numbers(0, 12), partition=0)
    options = {"offsetField": "at", "partitionField": "of"}
    check_columns_input(lambda kind: columns_input(kafka, topic, kind, **options))


def test_rows_of_arrow_messages_have_positions(kafka: KafkaBroker) -> None:
    topic = kafka.create("in-arrow")
    producer = Producer({"bootstrap.servers": kafka.address})
    for rows in ([0, 1, 2], [], [3], [4, 5, 6, 7]):
        producer.produce(topic, arrow(*rows), partition=0)
    producer.flush()
    check_input(
        lambda: columns_input(kafka, topic, "dicts", format="arrow"),
        {f"{topic}/0": numbers(0, 8)},
    )
    check_columns_input(lambda kind: columns_input(kafka, topic, kind, format="arrow"))
