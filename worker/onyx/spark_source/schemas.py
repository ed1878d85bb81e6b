"""The schema of an output's parts: what they have, in types that Spark has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from onyx.base.structs import UNREADABLE
from onyx.errors import OnyxError, UserError
from onyx.flow.columns.types import usual_schema
from onyx.plugins.files.byte_sources import named_errors
from onyx.plugins.files.spark_footer import spark_types
from onyx.plugins.parts.offsets import Part, Rows
from onyx.spark_source.lines import misfit
from onyx.spark_source.rows import TEXT, batches
from onyx.spark_source.shapes import FIELDS_MAX, Shape
from onyx.storage.files import Files

PARTS_MAX = 1_000
"""Parts that are looked at for their columns. With more, the schema has to be given."""
LINES_ROWS = 100_000
"""Rows of JSON lines that are looked at, of all parts together."""
LINES_ROWS_LEAST = 1_024
"""The rows of each part."""
_GIVE = 'give the schema, spark.read.schema("...").format("onyx")'
_WRONG = (*UNREADABLE, OverflowError)
_decoder = msgspec.json.Decoder(dict[str, Any])


def found_in(parts: Sequence[Part], name: str) -> pa.Schema:
    """The columns of all parts. Where values of a column differ in type, it is of text.

    Raises:
        UserError: there are none or too many, a part cannot be read, or it has too many columns.
    """
    if not parts:
        raise UserError(f"{name}: nothing is published yet, so the columns are not known; {_GIVE}")
    if len(parts) > PARTS_MAX:
        raise UserError(f"{name}: {len(parts):,} parts are too many to look at each; {_GIVE}")
    rows, shape = max(LINES_ROWS_LEAST, LINES_ROWS // len(parts)), Shape()
    for part in parts:
        if part.path.endswith(".parquet"):
            _add_parquet(shape, part.path)
        else:
            _add_lines(shape, Rows(part.path, 0, rows))
    schema = shape.schema()
    if len(schema) > FIELDS_MAX:
        raise UserError(
            f"{name}: rows have {len(schema):,} columns together, more than {FIELDS_MAX:,}; "
            f'{_GIVE}, or read them as text, option("as", "text")'
        )
    return schema


def _add_lines(shape: Shape, rows: Rows) -> None:
    position = 0
    for batch in batches(rows, TEXT, text=True):
        lines = batch.column(0).to_pylist()
        try:
            shape.add(list(map(_decoder.decode, lines)))
        except _WRONG:
            raise _first_wrong(rows.path, lines, position) from None
        position += len(lines)


def _first_wrong(path: str, lines: Sequence[str], position: int) -> UserError:
    for index, line in enumerate(lines):
        try:
            _decoder.decode(line)
        except _WRONG as error:
            return UserError(
                f'{path}, row {position + index}: not a JSON object ({error}); option("as", '
                '"text") reads any lines'
            )
    return misfit(path, position, "this row and those behind it do not fit together")


def _add_parquet(shape: Shape, path: str) -> None:
    try:
        with Files().open(path, ahead=False) as file, named_errors(path):
            found = pq.read_schema(file)
            of_spark = spark_types(found)
            found = found.remove_metadata() if of_spark is None else of_spark.schema(found)
            usual = usual_schema(found) or found  # as `rows` gives them
    except OnyxError as error:
        raise UserError(f"{path}: {error}") from error
    shape.add_type(pa.struct(list(usual)))
