"""Messages as columns hold what they hold as dicts; each row of an Arrow message is a segment."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from onyx.errors import UserError
from onyx.flow.batch import as_dicts
from onyx.flow.columns.record_batch import Columns
from onyx.plugins.json_columns import JsonColumns
from onyx.plugins.kafka.input import (
    ArrowMessages,
    ColumnMessages,
    DictMessages,
    MessageDecoder,
    MessageRecords,
)
from onyx.plugins.kafka.options import KafkaInputOptions
from onyx.plugins.records import BadRecords
from onyx.testing.columns_kit import without_nulls

FIELDS = {
    "key_field": "k", "partition_field": "p", "offset_field": "o", "timestamp_field": "t"
}  # fmt: skip


class Sent:
    """A message as confluent_kafka has it."""

    def __init__(self, offset: int, value: bytes | None, key: bytes | None = b"k") -> None:
        self.value, self.offset, self.key = lambda: value, lambda: offset, lambda: key
        self.partition, self.timestamp = lambda: 3, lambda: (1, 1_000 + offset)
        self.headers = lambda: [("h", b"x")] if offset % 2 else None


def sent(*values: bytes | None, key: bytes | None = b"k") -> list[Any]:
    return [Sent(offset, value, key) for offset, value in enumerate(values)]


def options(kind: str, **fields: Any) -> KafkaInputOptions:
    return KafkaInputOptions(bootstrap_servers="b:1", topic="t", format=kind, **fields)  # type: ignore[arg-type]


def bad(keep: bool = True) -> BadRecords:
    return BadRecords("task read", keep, "the message at offset {}", "writer")


def stream(*batches: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


GOOD = [b'{"a":1}', b'{"b":"x"}', None, b'{"a":null,\n"n":{"c":[1]}}', b'{"a":0.5}']


@pytest.mark.parametrize("values", [GOOD, [*GOOD, b"no"], [b'{"a":1}', b'{"a":"x"}'], [b"{}"]])
@pytest.mark.parametrize("fields", [{}, FIELDS, {**FIELDS, "headers_field": "h"}])
@pytest.mark.parametrize("kind", ["json", "text", "bytes"])
def test_columns_hold_what_dicts_hold(kind: str, fields: dict[str, str], values: Any) -> None:
    chosen = options(kind, **fields)
    expected = MessageRecords(chosen, bad()).segments(sent(*values))
    kept = bad()
    decoder = ColumnMessages(chosen, MessageRecords(chosen, kept), kept, JsonColumns(None))
    for _ in range(2):  # the second time the types are known
        found = decoder.segments(sent(*values))
        dicts = [each for run in found for each in as_dicts(run)]
        assert without_nulls(dicts) == without_nulls(expected)
    apart = sum(len(run) for run in found if isinstance(run, list))
    whole = values[-1] == b"no" and "headers_field" in fields
    if kind == "json" and values[-1] in (b"no", b'{"a":"x"}'):
        assert apart == (len(values) if whole else 1)
    else:
        assert apart == 0


FORMATS = ("json", "text", "bytes", "arrow")


def decoder(kind: str, columns: bool, kept: BadRecords, **fields: Any) -> MessageDecoder:
    chosen = options(kind, **fields)
    if kind == "arrow":
        return ArrowMessages(chosen, kept, columns)
    records = MessageRecords(chosen, kept)
    json = JsonColumns(None)
    return ColumnMessages(chosen, records, kept, json) if columns else DictMessages(records)


def value_of(kind: str) -> bytes:
    return {"json": b'{"a":1}', "arrow": stream(pa.record_batch({"a": [1]}))}.get(kind, b"v")


def all_dicts(decoded: MessageDecoder, messages: list[Any]) -> list[dict[str, Any]]:
    return [each for run in decoded.segments(messages) for each in as_dicts(run)]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_key_that_is_no_text_makes_a_bad_record_that_says_so(kind: str, columns: bool) -> None:
    messages = sent(value_of(kind), key=b"\xff") + sent(value_of(kind), key=b"k")
    found = all_dicts(decoder(kind, columns, bad(), key_field="k"), messages)
    assert "its key, for keyField, is no UTF-8" in found[0]["_error"]
    assert found[1]["k"] == "k"
    with pytest.raises(UserError, match=r"keyField, is no UTF-8 .* set keyFormat: bytes"):
        all_dicts(decoder(kind, columns, bad(keep=False), key_field="k"), messages)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
def test_keys_as_bytes_are_as_they_were_sent(kind: str, columns: bool) -> None:
    messages = [each for key in (b"\xff", b"k", None) for each in sent(value_of(kind), key=key)]
    decoded = decoder(kind, columns, bad(), key_field="k", key_format="bytes")
    assert [each.get("k") for each in all_dicts(decoded, messages)] == [b"\xff", b"k", None]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("kind", FORMATS[:3])
def test_a_header_that_is_no_text_stays_bytes(kind: str, columns: bool) -> None:
    (message,) = sent(value_of(kind))
    message.headers = lambda: [("trace", b"\xff\x00"), ("name", b"x"), ("none", None)]
    (found,) = all_dicts(decoder(kind, columns, bad(), headers_field="h"), [message])
    assert found["h"] == {"trace": b"\xff\x00", "name": "x", "none": None}


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("kind", FORMATS[:3])
def test_of_a_header_that_comes_several_times_all_values_stay(kind: str, columns: bool) -> None:
    (message,) = sent(value_of(kind))
    message.headers = lambda: [("a", b"1"), ("b", b"x"), ("a", None), ("a", b"\xff")]
    (found,) = all_dicts(decoder(kind, columns, bad(), headers_field="h"), [message])
    assert found["h"] == {"a": ["1", None, b"\xff"], "b": "x"}


def test_types_of_a_schema_are_those_of_messages() -> None:
    schema = pa.schema([("a", pa.float64()), ("o", pa.int64())])
    chosen, kept = options("json", offset_field="o"), bad()
    decoder = ColumnMessages(chosen, MessageRecords(chosen, kept), kept, JsonColumns(schema))
    (found,) = decoder.segments(sent(b'{"a":1}', b"{}"))
    assert isinstance(found, Columns)
    assert found.record_batch.schema == schema
    (misfit,) = decoder.segments(sent(b'{"b":1}'))
    assert misfit == [{"b": 1, "o": 0}]


ROWS = pa.record_batch({"n": [1, 2], "s": pa.array(["x", None]).dictionary_encode()})


@pytest.mark.parametrize("columns", [True, False])
def test_each_row_of_an_arrow_message_is_a_segment(columns: bool) -> None:
    chosen = options("arrow", **FIELDS)
    decoder = ArrowMessages(chosen, bad(), columns)
    values = [stream(ROWS, ROWS.slice(1)), None, stream(ROWS.slice(0, 0)), stream(ROWS)]
    pieces = decoder.segments(sent(*values))
    assert [len(each) for each in pieces] == [3, 0, 2]
    assert isinstance(pieces[0], Columns) == columns
    first, *_, last = as_dicts(pieces[0])
    assert first == {"n": 1, "s": "x", "k": "k", "p": 3, "o": 0, "t": 1_000}
    assert (last["n"], as_dicts(pieces[2])[0]["o"]) == (2, 3)


def test_a_message_that_is_no_arrow_is_one_bad_record() -> None:
    whole = stream(ROWS)
    for value in (b"", b"no", msgspec.json.encode({"a": 1}), whole[:-40], whole[: len(whole) // 2]):
        ((segment,),) = ArrowMessages(options("arrow"), bad(), True).segments(sent(value))
        assert segment["_error"].startswith("no arrow"), value
        with pytest.raises(UserError, match="the message at offset 0: no arrow"):
            ArrowMessages(options("arrow"), bad(keep=False), True).segments(sent(value))


def test_headers_are_not_for_arrow() -> None:
    (problem,) = options("arrow", headers_field="h").wrong()
    assert problem.path == "headersField"
