"""The schema of an output's parts: what they have, in types that Spark has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from onyx.errors import OnyxError, UserError
from onyx.flow.column_types import usual_schema
from onyx.plugins.files.byte_sources import named_errors
from onyx.plugins.files.file_systems import Files
from onyx.spark.source.offsets import Part, Rows
from onyx.spark.source.rows import batches

PARTS_MAX = 1_000
"""Parts that are looked at for their columns. With more, the schema has to be given."""
LINES_ROWS = 1_024
"""Rows of a part of JSON lines that are looked at."""
_GIVE = 'give the schema, spark.read.schema("...").format("onyx")'


def found_in(parts: Sequence[Part], name: str) -> pa.Schema:
    """The columns of all parts.

    Raises:
        UserError: there are none or too many, or types of a column differ.
    """
    if not parts:
        raise UserError(f"{name}: nothing is published yet, so the columns are not known; {_GIVE}")
    if len(parts) > PARTS_MAX:
        raise UserError(f"{name}: {len(parts):,} parts are too many to look at each; {_GIVE}")
    schemas = [_of(part.path) for part in parts]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UserError(
            f"{name}: parts differ in the type of a column: {error}; {_GIVE}"
        ) from error


def _of(path: str) -> pa.Schema:
    if not path.endswith(".parquet"):
        found = [batch.schema for batch in islice(batches(Rows(path, 0, LINES_ROWS), None), 1)]
        return found[0] if found else pa.schema([])
    try:
        with Files().open(path, ahead=False) as file, named_errors(path):
            found = pq.read_schema(file).remove_metadata()
            return usual_schema(found) or found  # as `rows` gives them
    except OnyxError as error:
        raise UserError(f"{path}: {error}") from error
