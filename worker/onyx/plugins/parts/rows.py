"""The rows of one Parquet file while they come: tables that fit together, in one schema.

What does not fit is found when it comes, so it alone is refused. A type may become wider on the
way, as integers do when fractions come: then all rows are cast, which happens a few times a key.
"""

from __future__ import annotations

import io

import pyarrow as pa

from onyx.flow.columns.record_batch import concatenated
from onyx.plugins.parts.arrow import pq

SMALL_MAX = 256
"""Tables that are kept apart: each takes some KiB, also of one row."""


class Rows:
    """Rows in types that hold all of them; a key that some lack is null there."""

    def __init__(self) -> None:
        self._large: list[pa.Table] = []
        self._small: list[pa.Table] = []
        self._schema: pa.Schema | None = None
        self.size_bytes = 0
        """The size of what was added, about."""

    def add(self, table: pa.Table) -> None:
        """Add rows. Raises what `MISMATCH` lists: they do not fit, and nothing was added."""
        known = self._schema
        if known is None or not table.schema.equals(known):
            table = self._fitting(table)
        self._small.append(table)
        self.size_bytes += table.nbytes
        if len(self._small) == SMALL_MAX:
            self._large.append(concatenated(self._small).combine_chunks())
            self._small = []

    def table(self) -> pa.Table:
        """All rows."""
        return concatenated([*self._large, *self._small])

    def _fitting(self, table: pa.Table) -> pa.Table:
        """Rows that have, beside those before, one type in each column."""
        known = self._schema
        fitting = table if known is None else concatenated([known.empty_table(), table])
        if known is None or not fitting.schema.equals(known):
            _require_writable(fitting.schema)
        if known is not None and any(_is_wider(each, fitting.schema) for each in known):
            all_rows = concatenated([*self._large, *self._small, table])
            rows = all_rows.num_rows - table.num_rows
            self._large, self._small = [all_rows.slice(0, rows)], []
            fitting = all_rows.slice(rows)
        self._schema = fitting.schema
        return fitting


def _is_wider(before: pa.Field, schema: pa.Schema) -> bool:
    return not (pa.types.is_null(before.type) or schema.field(before.name).type == before.type)


def _require_writable(schema: pa.Schema) -> None:
    """Parquet lacks some types, such as that of an object without fields."""
    with pq.ParquetWriter(io.BytesIO(), schema):
        pass
