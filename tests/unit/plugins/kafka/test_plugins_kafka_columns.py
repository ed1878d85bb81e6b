"""Columns as messages of Kafka: the same as of the same segments in dicts."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.support.examples import examples
from tests.support.jobs.plugin_context import plugin_context
from tests.support.windows.column_strategies import columns

from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.plugins.kafka.messages import TopicMessages
from onyx.plugins.kafka.options import KafkaOutputOptions
from onyx.plugins.options import read_options

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON = datetime(2026, 3, 1, 12, 0, 0, 1_001, UTC)


def messages(**options: Any) -> TopicMessages:
    given = {"bootstrapServers": "localhost:1", "topic": "t", **options}
    context = plugin_context(given)
    return TopicMessages(context, read_options(context, KafkaOutputOptions))


def batch(**given: Any) -> Columns:
    return Columns.of(pa.RecordBatch.from_pydict(given))


@settings(max_examples=examples(100), deadline=None)
@given(rows=columns())
def test_json_messages_are_those_of_dicts(rows: Columns) -> None:
    assert messages().of_columns(rows) == messages().of(to_dicts(rows))


@pytest.mark.parametrize("key", [["a", None, "ü"], [1, None, -2], [b"x", b"", None], [None] * 3])
@pytest.mark.parametrize("at", [[5, None, 2**63 - 1], [NOON, None, NOON], [None] * 3])
@pytest.mark.parametrize("value", [["x", None, ""], [b"\xff", None, b""], [7, 8, 9]])
def test_key_value_and_time_are_those_of_dicts(key: Any, at: Any, value: Any) -> None:
    rows = batch(k=key, at=at, v=value)
    fields = {"keyField": "k", "timestampField": "at", "format": "bytes", "valueField": "v"}
    made = messages(**fields)
    assert made.of_columns(rows) == made.of(to_dicts(rows))


def test_fields_that_a_batch_lacks_are_none() -> None:
    made = messages(keyField="k", timestampField="at", format="text", valueField="v")
    rows = batch(other=[1, 2])
    assert made.of_columns(rows) == made.of(to_dicts(rows))


def test_a_header_with_several_values_is_sent_as_often() -> None:
    (message,) = messages(headersField="h").of([{"h": {"a": ["1", None, b"2"], "b": "x"}}])
    assert message.headers == [("a", b"1"), ("a", None), ("a", b"2"), ("b", b"x")]


def test_headers_are_those_of_dicts() -> None:
    made = messages(headersField="h")
    rows = batch(h=[{"a": "b"}, None], n=[1, 2])
    assert made.of_columns(rows) == made.of(to_dicts(rows))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"k": [1.5]}, "key 'k' holds a float; a str, bytes or an int is wanted"),
        ({"at": [-5]}, "key 'at' holds a int; milliseconds since 1970"),
        ({"at": ["soon"]}, "key 'at' holds a str; milliseconds since 1970"),
        ({"at": [0]}, "key 'at' holds a int; milliseconds since 1970, above 0"),
        (
            {"at": pa.array([2**63], pa.uint64())},
            "key 'at' holds a int; milliseconds since 1970, above 0 and of 63 bits",
        ),
        ({"at": [EPOCH]}, "key 'at' holds a datetime; .* or a time after 1970 began"),
        ({"at": [EPOCH.replace(year=1969)]}, "key 'at' holds a datetime; milliseconds since 1970"),
        ({"k": ["x"], "n": ["y" * 1_000_000]}, r"a message of 1,000,\d+ bytes is too large"),
    ],
)
def test_what_is_no_message_is_refused_with_its_key(given: Any, why: str) -> None:
    made = messages(keyField="k", timestampField="at")
    with pytest.raises(UserError, match=why):
        made.of_columns(batch(**given))
    with pytest.raises(UserError, match=why):
        made.of(to_dicts(batch(**given)))


def test_a_time_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        (message,) = messages(timestampField="at").of([{"at": NOON.replace(tzinfo=None)}])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert message.timestamp_ms == NOON.timestamp() * 1_000 // 1


def read(found: list[Any]) -> list[dict[str, Any]]:
    return [row for each in found for row in pa.ipc.open_stream(each.value).read_all().to_pylist()]


def test_an_arrow_message_holds_the_rows_of_a_batch() -> None:
    rows = batch(n=[1, 2], name=["a", None])
    made = messages(format="arrow")
    (message,) = made.of_columns(rows)
    assert pa.ipc.open_stream(message.value).schema == rows.record_batch.schema
    assert (message.key, message.timestamp_ms, message.headers) == (None, 0, [])
    assert read([message]) == to_dicts(rows)
    assert read(made.of(to_dicts(rows))) == to_dicts(rows)
    assert made.of_columns(rows.slice(0, 0)) == []


def test_a_batch_that_is_too_large_becomes_several_arrow_messages() -> None:
    rows = batch(n=list(range(1_000)))
    made = messages(format="arrow", config={"message.max.bytes": 4_000})
    found = made.of_columns(rows)
    assert len(found) > 1
    assert all(len(each.value or b"") <= 4_000 for each in found)
    assert read(found) == to_dicts(rows)


def test_a_row_that_is_too_large_for_an_arrow_message_is_refused() -> None:
    made = messages(format="arrow", config={"message.max.bytes": 4_000})
    with pytest.raises(UserError, match="is too large"):
        made.of_columns(batch(s=["x" * 4_000, "y"]))


def test_dicts_without_a_common_schema_are_refused_with_the_key() -> None:
    with pytest.raises(UserError, match="segment 1 of a batch does not fit the others: key 'n'"):
        messages(format="arrow").of([{"n": 1}, {"n": "one"}])


@pytest.mark.parametrize("option", ["keyField", "timestampField", "headersField", "valueField"])
def test_arrow_has_no_options_of_one_segment(option: str) -> None:
    with pytest.raises(UserError, match=f"{option}.* is of one segment"):
        messages(**{"format": "arrow", option: "k"})
