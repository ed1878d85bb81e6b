"""What becomes of each type where no server is needed, as `docs/reference/types.md` has it.

Dicts and columns pass each place by themselves, and are to come out alike.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
import pytest
from tests.support.jobs.plugin_context import plugin_context
from tests.support.value_types import KINDS, Kind, became_each, require_recorded

from onyx.codec.columns import decode, decode_schema, encode, encode_schema
from onyx.codec.segments import decode_apart, encode_apart
from onyx.codec.values import decode_records, encode_records
from onyx.errors import UserError
from onyx.flow.batch import as_dicts
from onyx.flow.columns.record_batch import Columns, from_dicts, join, to_dicts
from onyx.flow.comparisons import ORDERS, ColumnComparison, Comparison
from onyx.flow.groups.codes import KeyCodes, KeyList
from onyx.flow.groups.keys import key_bytes
from onyx.flow.segment import Refusal
from onyx.joins.enrichment import values_of
from onyx.joins.table import Table
from onyx.keystate.coded import GroupKeys
from onyx.keystate.groups import group_value
from onyx.keystate.records import SetStates
from onyx.model.job import CatalogEntry
from onyx.plugins.json_columns import JsonColumns
from onyx.plugins.kafka.input import ArrowMessages, ColumnMessages, MessageDecoder, MessageRecords
from onyx.plugins.kafka.messages import TopicMessages
from onyx.plugins.kafka.options import KafkaInputOptions, KafkaOutputOptions
from onyx.plugins.options import read_options
from onyx.plugins.parts.formats import JsonLinesFormat, ParquetFormat
from onyx.plugins.protocol import START
from onyx.plugins.records import BadRecords
from onyx.plugins.registry import build_input
from onyx.program.event_times import SegmentTimes
from onyx.sql.batches import Query
from onyx.testing.columns_kit import read_columns
from onyx.windows.assigning.coordinates import Coordinates

KEY = "k"
MS_A_DAY, US_A_MS = 86_400_000, 1_000


def columns_of(kind: Kind) -> Columns:
    return Columns(pa.record_batch({KEY: kind.column()}))


def dicts_of(kind: Kind) -> list[dict[str, Any]]:
    return to_dicts(columns_of(kind))


def schema_of(kind: Kind) -> pa.Schema:
    return pa.schema([(KEY, kind.type)])


def whole(rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> pa.Array:
    columns, _, failures = from_dicts(rows, schema)
    if failures:
        raise failures[0][1]
    return columns.column(KEY)


def column_of(pieces: Sequence[Any], schema: pa.Schema | None) -> pa.Array:
    """The column of what an input gives: without a schema what it could hold in no column is dicts,
    with one it has failed."""
    if all(isinstance(each, Columns) for each in pieces):
        return join(pieces).column(KEY)
    return whole([row for each in pieces for row in as_dicts(each)], schema)


def require_alike(dicts: Sequence[Any], columns: Sequence[Any]) -> None:
    """That both formats have made the same, of whatever is no number, too."""
    assert list(map(shown, dicts)) == list(map(shown, columns))


def shown(value: Any) -> str:
    """A value with its type; of a time the instant and what the clock shows, because an old PyArrow
    makes other zones."""
    if isinstance(value, dict):
        return str({key: shown(each) for key, each in value.items()})
    if isinstance(value, datetime):
        return f"{value:%c %f} {value.utcoffset()}"
    return repr(value)


def in_dicts(kind: Kind) -> pa.Array:
    return whole(dicts_of(kind))


def in_dicts_with_a_schema(kind: Kind) -> pa.Array:
    return whole(dicts_of(kind), schema_of(kind))


def to_another_worker(kind: Kind) -> pa.Array:
    columns, dicts = columns_of(kind), dicts_of(kind)
    require_alike(decode_apart(encode_apart(dicts)), dicts)
    schema = decode_schema(encode_schema(columns.record_batch.schema))
    return decode(encode(columns), schema).column(KEY)


def from_file(path: Path, data: bytes, schema: pa.Schema | None) -> pa.Array:
    """What the input makes of a file, in columns."""
    path.write_bytes(data)
    context = plugin_context({"path": str(path)}, batch_format="arrow", schema=schema)
    pieces = read_columns(build_input("files", context), str(path), START, 1_000)
    return column_of([each if isinstance(each, list) else Columns.of(each) for each in pieces],
                     schema)  # fmt: skip


def written(form: Any, *batches: Any) -> bytes:
    file = io.BytesIO()
    body = form.begin(file)
    for each in batches:
        (body.add_columns if isinstance(each, Columns) else body.add)(each)
    body.finish()
    return file.getvalue()


def json_lines(kind: Kind) -> bytes:
    form = JsonLinesFormat(plugin_context({}))
    lines = written(form, columns_of(kind))
    assert written(form, dicts_of(kind)) == lines
    return lines


def in_json(kind: Kind, folder: Path) -> pa.Array:
    return from_file(folder / "t.jsonl", json_lines(kind), None)


def in_json_with_a_schema(kind: Kind, folder: Path) -> pa.Array:
    return from_file(folder / "t.jsonl", json_lines(kind), schema_of(kind))


def in_csv(kind: Kind, folder: Path) -> pa.Array:
    """Of cells as other programs write them."""
    text = io.StringIO()
    cells = csv.writer(text, quoting=csv.QUOTE_ALL)
    cells.writerow([KEY])
    cells.writerows(
        [["" if value is None else cell_of(value)] for value in kind.column().to_pylist()]
    )
    return from_file(folder / "t.csv", text.getvalue().encode(), schema_of(kind))


def cell_of(value: Any) -> str:
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def in_parquet(kind: Kind, folder: Path) -> pa.Array:
    data = written(ParquetFormat(plugin_context({})), columns_of(kind))
    found = from_file(folder / "t.parquet", data, None)
    plugin = build_input("files", plugin_context({"path": str(folder / "t.parquet")}))
    reader = plugin.open(str(folder / "t.parquet"), START)
    require_alike(reader.read(1_000), dicts_of(kind))
    reader.close()
    return found


def messages(**options: Any) -> TopicMessages:
    context = plugin_context({"bootstrapServers": "b:1", "topic": "t", **options})
    return TopicMessages(context, read_options(context, KafkaOutputOptions))


def produced(kind: Kind, **options: Any) -> list[Any]:
    """Messages, as they are consumed."""
    made = messages(**options)
    found = made.of_columns(columns_of(kind))
    if "format" not in options:  # of arrow the types of dicts are others
        assert made.of(dicts_of(kind)) == found
    return [
        SimpleNamespace(
            value=lambda each=each: each.value, key=lambda each=each: each.key, offset=lambda: 0,
            timestamp=lambda each=each: (1, each.timestamp_ms),
        )
        for each in found
    ]  # fmt: skip


def consumed(
    decoder: MessageDecoder, found: list[Any], schema: pa.Schema | None = None
) -> pa.Array:
    return column_of([*decoder.segments(found)], schema)


def consumer(schema: pa.Schema | None = None, **options: Any) -> MessageDecoder:
    chosen = KafkaInputOptions(bootstrap_servers="b:1", topic="t", **options)
    bad = BadRecords("task read", False)
    if chosen.format == "arrow":
        return ArrowMessages(chosen, bad, True)
    return ColumnMessages(chosen, MessageRecords(chosen, bad), bad, JsonColumns(schema))


def in_kafka(kind: Kind) -> pa.Array:
    schema = schema_of(kind)
    return consumed(consumer(schema), produced(kind), schema)


def in_arrow_messages(kind: Kind) -> pa.Array:
    return consumed(consumer(format="arrow"), produced(kind, format="arrow"))


def as_message_key(kind: Kind) -> pa.Array:
    """Of messages with nothing else."""
    form = "bytes" if kinds.is_binary(kind.type) else "text"
    found = produced(kind, keyField=KEY, nan="text", format="bytes", valueField="none")
    return consumed(consumer(format="bytes", key_field=KEY, key_format=form), found)


def as_message_time(kind: Kind) -> pa.Array:
    found = produced(kind, timestampField=KEY, format="bytes", valueField="none")
    times = [each.timestamp()[1] or None for each in found]
    if kinds.is_integer(kind.type) or kinds.is_null(kind.type):
        return pa.array(times, kind.type)
    require_alike(times, [None if each is None else each // US_A_MS for each in us_of(kind)])
    return pa.array(times, pa.int64())


def us_of(kind: Kind) -> list[int | None]:
    """The microseconds since the epoch of moments."""
    column = kind.column()
    if column.null_count == len(column):
        return column.to_pylist()
    if kinds.is_date32(kind.type):
        days = column.cast(pa.int32()).to_pylist()
        return [None if each is None else each * MS_A_DAY * US_A_MS for each in days]
    if kinds.is_string(kind.type):
        column = column.cast(pa.timestamp("us", "UTC"))
    return column.cast(pa.int64()).to_pylist()


def in_sql(kind: Kind) -> pa.Array:
    rows = pa.array(range(len(kind.column())), pa.int64())
    batch = columns_of(kind).record_batch.append_column("__row__", rows)
    made, *failed = Query(f"select case when true then {KEY} end as {KEY} from segments")(batch)
    assert not failed
    return Columns.of(made).column(KEY)


def in_state(kind: Kind) -> pa.Array:
    values = [row[KEY] for row in dicts_of(kind)]
    record = SetStates("w", 0, ["g"], [values])
    (found,) = decode_records(encode_records([record]))
    assert isinstance(found, SetStates)
    return pa.array(found.states[0], kind.type)


def as_group(kind: Kind) -> pa.Array:
    """The groups of all rows: as many as there are values."""
    raws = [row[KEY] for row in dicts_of(kind)]
    groups = GroupKeys().of(KeyCodes.of_column(columns_of(kind), KEY))
    found = [groups.keys[code] for code in groups.codes.tolist()]
    assert GroupKeys().of_list(KeyList(raws)) == found
    assert len(set(found)) == len(set(map(key_bytes, raws))) == len(raws)
    return pa.array([*map(group_value, found)], kind.type)


def as_join_key(kind: Kind) -> pa.Array:
    """The rows of a table, as segments find them by their keys; null finds nothing."""
    column = kind.column()
    table = Table("t", Columns(pa.record_batch({KEY: column.drop_null()})), [KEY])
    found = table.find([column])
    assert table.find([values_of(dicts_of(kind), KEY)]).tolist() == found.tolist()
    return table.column(KEY).take(pa.array(found, mask=found < 0))


def as_window_key(kind: Kind) -> pa.Array:
    coordinates = Coordinates("window w of task t", KEY, time=True)
    found = [np.asarray(coordinates.of(each)[0]).tolist()
             for each in (columns_of(kind), dicts_of(kind))]  # fmt: skip
    require_alike(*found)
    return of_time(kind, found[0])


def as_event_time(kind: Kind) -> pa.Array:
    times = SegmentTimes(CatalogEntry(name="read", type="input", watermark_key=KEY), resolved)
    columns, found = columns_of(kind), list[int | None]()
    for row in range(len(columns)):
        one = columns.slice(row, row + 1)
        newest, failures = times.of(one)
        assert times.of(to_dicts(one))[0] == newest
        if failures:
            raise failures[0][1]
        found.append(newest)
    if kinds.is_floating(kind.type):  # what is finer than milliseconds is cut off
        values = kind.column().to_pylist()
        require_alike(found, [None if each is None else math.floor(each) for each in values])
        return pa.array(found, pa.int64())
    return of_time(kind, found)


def resolved(name: str) -> Callable[..., Any]:
    raise AssertionError(name)


def of_time(kind: Kind, found: list[Any]) -> pa.Array:
    """Times, of numbers in the type of these: of others they are the right milliseconds."""
    if kinds.is_integer(kind.type) or kinds.is_floating(kind.type) or kinds.is_null(kind.type):
        return pa.array(found, kind.type)
    require_alike(found, [None if each is None else each // US_A_MS for each in us_of(kind)])
    return pa.array(found, pa.int64())


def as_time_of_a_join(kind: Kind) -> pa.Array:
    times = Coordinates("join j", KEY, time=True, word="at")
    try:
        found = times.microseconds(columns_of(kind))
        assert times.microseconds(dicts_of(kind)).tolist() == found.tolist()
    except OverflowError as error:  # a `Refusal` of the join says what it means
        raise UserError("too far from 1970") from error
    if kinds.is_timestamp(kind.type):
        return pa.array(found).cast(kind.type)
    if kinds.is_date32(kind.type) or kinds.is_string(kind.type):
        assert found.tolist() == us_of(kind)
        return pa.array(found)
    return pa.array(
        found / US_A_MS if kinds.is_floating(kind.type) else found // US_A_MS, kind.type
    )


def in_conditions(kind: Kind) -> pa.Array:
    """The column, if each comparison says of it what is true."""
    values = [row[KEY] for row in dicts_of(kind)]
    for value in values:
        literal = literal_of(value)
        ordered = type(literal) is not bool
        for operator in ("==", "!=", "in", *(ORDERS if ordered else ())):
            wanted = (literal,) if operator == "in" else literal
            require_holds(Comparison(operator, KEY, wanted, "here"), columns_of(kind), value)
    return kind.column()


def literal_of(value: Any) -> Any:
    """A value as a job has it: a number that is no fraction of two is the nearest that is."""
    if isinstance(value, Decimal):
        whole = value == value.to_integral_value() and abs(value) < 2**63
        return int(value) if whole else float(value)
    if isinstance(value, date):
        return value.isoformat()
    if (type(value) is int and value >= 2**63) or (type(value) is float and value - value != 0):
        raise UserError("no literal of a job")
    if value is None or not isinstance(value, bool | int | float | str):
        return "none"
    return value


def in_utc(value: Any) -> Any:
    """What Python compares as instants."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def require_holds(comparison: Comparison, columns: Columns, compared: Any) -> None:
    answers = ColumnComparison(comparison).answers(columns)
    if answers.refused is not None:
        assert answers.error is not None
        with pytest.raises(Refusal):
            [*map(comparison.answer(), [row[KEY] for row in to_dicts(columns)])]
        raise answers.error
    values = [row[KEY] for row in to_dicts(columns)]
    require_alike(map(comparison.answer(), values), answers.holds.tolist())
    (literal,) = [comparison.value] if comparison.operator != "in" else comparison.value
    values, known = list(map(in_utc, values)), literal
    if isinstance(compared, date):
        known = in_utc(compared)
    holds = {"==": lambda x: x == known, "in": lambda x: x == known, "!=": lambda x: x != known,
             **{name: lambda x, order=order: x is not None and order(x, known)
                for name, order in ORDERS.items()}}[comparison.operator]  # fmt: skip
    require_alike(answers.holds.tolist(), map(holds, values))


PLACES: dict[str, Callable[..., pa.Array]] = {
    "in dicts and back": in_dicts,
    "in dicts, and back with a schema": in_dicts_with_a_schema,
    "to another worker": to_another_worker,
    "JSON lines": in_json,
    "JSON lines, with a schema": in_json_with_a_schema,
    "CSV, with a schema": in_csv,
    "Parquet": in_parquet,
    "Kafka, JSON with a schema": in_kafka,
    "Kafka, Arrow": in_arrow_messages,
    "key of a message": as_message_key,
    "time of a message": as_message_time,
    "SQL": in_sql,
    "state": in_state,
    "key of a group": as_group,
    "key of a join": as_join_key,
    "time of a join": as_time_of_a_join,
    "`windowKey`": as_window_key,
    "`watermarkKey`": as_event_time,
    "conditions": in_conditions,
}
IN_FILES = (in_json, in_json_with_a_schema, in_csv, in_parquet)


@pytest.mark.parametrize("place", PLACES)
def test_a_place_makes_of_each_type_what_the_page_says(place: str, tmp_path: Path) -> None:
    passing = PLACES[place]

    def passed(kind: Kind) -> pa.Array:
        return passing(kind, tmp_path) if passing in IN_FILES else passing(kind)

    require_recorded(place, {kind.name: became_each(kind, passed) for kind in KINDS})
