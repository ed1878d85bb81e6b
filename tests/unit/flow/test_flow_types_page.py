"""What becomes of each type where no server is needed, as `docs/reference/types.md` has it."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.value_types import KINDS, Kind, became, require_recorded

from onyx.codec.records import decode_records, encode_records
from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.flow.groups.keys import key_bytes
from onyx.flow.mixed import pieces_of
from onyx.joins.keys import KeyNumbers
from onyx.plugins.json_columns import JsonColumns
from onyx.plugins.jsonl import JsonLines
from onyx.plugins.protocol import PluginContext
from onyx.sql.batches import Query
from onyx.windows.records import SetStates

KEY = "k"


def columns_of(kind: Kind) -> Columns:
    return Columns(pa.record_batch({KEY: kind.column()}))


def whole(rows: list[dict[str, Any]], schema: pa.Schema | None) -> pa.Array:
    columns, _, failures = from_dicts(rows, schema)
    if failures:
        raise failures[0][1]
    return columns.column(KEY)


def in_dicts(kind: Kind) -> pa.Array:
    return whole(to_dicts(columns_of(kind)), None)


def in_dicts_with_a_schema(kind: Kind) -> pa.Array:
    return whole(to_dicts(columns_of(kind)), pa.schema([(KEY, kind.type)]))


def in_json(kind: Kind) -> pa.Array:
    context = cast(PluginContext, SimpleNamespace(where="task t"))
    lines = JsonLines(context).encode_each_of(columns_of(kind))
    known = JsonColumns(pa.schema([(KEY, kind.type)]))
    read = known.of_some(lines, lambda at: (msgspec.json.decode(lines[at]), True))
    for _, segments in pieces_of(read):
        if isinstance(segments, Columns) and len(segments) == len(lines):
            return segments.column(KEY)
    raise UserError("some lines stay dicts")


def in_parquet(kind: Kind) -> pa.Array:
    file = io.BytesIO()
    pq.write_table(pa.table({KEY: kind.column()}), file)
    (batch,) = pq.read_table(file).combine_chunks().to_batches()
    return Columns.of(batch).column(KEY)


def in_sql(kind: Kind) -> pa.Array:
    rows = pa.array(range(len(kind.column())), pa.int64())
    batch = columns_of(kind).record_batch.append_column("__row__", rows)
    made, *failed = Query(f"select case when true then {KEY} end as {KEY} from segments")(batch)
    assert not failed
    return Columns.of(made).column(KEY)


def in_state(kind: Kind) -> pa.Array:
    values = [row[KEY] for row in to_dicts(columns_of(kind))]
    record = SetStates("w", 0, ["g"], [values])
    (found,) = decode_records(encode_records([record]))
    assert isinstance(found, SetStates)
    return pa.array(found.states[0], kind.type)


PLACES: dict[str, Callable[[Kind], pa.Array]] = {
    "in dicts and back": in_dicts,
    "in dicts, and back with a schema": in_dicts_with_a_schema,
    "JSON lines, with a schema": in_json,
    "Parquet": in_parquet,
    "SQL": in_sql,
    "state": in_state,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_place_makes_of_each_type_what_the_page_says(place: str) -> None:
    passed = PLACES[place]
    require_recorded(place, {kind.name: became(kind, partial(passed, kind)) for kind in KINDS})


def test_which_types_are_keys() -> None:
    require_recorded("key of a group", {kind.name: as_group(kind) for kind in KINDS})
    require_recorded("key of a join", {kind.name: as_join_key(kind) for kind in KINDS})


def as_group(kind: Kind) -> str:
    try:
        found = [key_bytes(row[KEY]) for row in to_dicts(columns_of(kind)) if row[KEY] == row[KEY]]
    except UserError:
        return "refused"
    return "exact" if len(set(found)) == len(found) else "some are equal"


def as_join_key(kind: Kind) -> str:
    column = kind.column()
    try:
        found = KeyNumbers(1).add([column]).tolist()
    except UserError:
        return "refused"
    there = [number for number, each in zip(found, kind.values, strict=False) if each == each]
    return "exact" if sorted(there) == list(range(len(there))) else "some are equal"
