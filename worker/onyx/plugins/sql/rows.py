"""Segments as rows of a table: which key goes to which column, and how it is converted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Table

from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.flow.segment import Segment
from onyx.model.report import nearest
from onyx.plugins.options import option_error, task_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.sql.column_rows import ColumnRows, fit
from onyx.plugins.sql.columns import converter, is_required

Row = dict[str, Any]
"""By column. A column that is not in it gets its default."""


class Rows:
    """The rows of one table."""

    def __init__(
        self,
        context: PluginContext,
        table: Table,
        columns: Mapping[str, str] | None,
        keys: Sequence[str],
        dialect: str,
    ) -> None:
        """`columns`: by key of the segment; None means that every key is a column. `keys`: columns
        that must have a value whatever the table says.

        Raises:
            UserError: the table has no such column, or one that must have a value gets none.
        """
        self._context = context
        self._table = table
        self._every = columns is None
        named = {each.name: each.name for each in table.columns} if columns is None else columns
        for column in named.values():
            if column not in table.columns:
                hint = nearest(column, self._names()) or f"it has {', '.join(self._names())}"
                raise option_error(
                    context, "columns", f"names {column!r}, which {self._where} lacks ({hint})"
                )
        self._converters = [
            (key, column, converter(table.columns[column], dialect))
            for key, column in named.items()
        ]
        self._fits = {key: fit(table.columns[column], dialect) for key, column in named.items()}
        required = [each.name for each in table.columns if is_required(each)]
        self._required = list(dict.fromkeys([*keys, *required]))
        for column in self._required:
            if column not in named.values():
                what = f"lack {column!r}, which must have a value in {self._where}"
                raise option_error(context, "columns", what)

    def of(self, segments: Iterable[Segment]) -> list[Row]:
        """One row a segment.

        Raises:
            UserError: a segment does not fit.
        """
        return [self._row(segment) for segment in segments]

    def of_columns(self, columns: Columns) -> ColumnRows | list[Row]:
        """The rows for segments in columns: by column if these are of usual types.

        Raises:
            UserError: a segment does not fit.
        """
        found = self._by_column(columns)
        if found is not None:
            return found
        try:
            return self.of(to_dicts(columns))
        except (OverflowError, ValueError) as error:
            what = f"a segment has a value that Python cannot hold ({error})"
            raise task_error(self._context, f"{what}; {self._where} gets none of it") from error

    def _by_column(self, columns: Columns) -> ColumnRows | None:
        batch = columns.record_batch
        names, arrays = [], []
        for key, column, _ in self._converters:
            if columns.has(key):
                array = self._fits[key](batch.column(key))
                if array is None:
                    return None
                names.append(column)
                arrays.append(array)
        strangers = self._every and len(names) != batch.num_columns
        given = dict(zip(names, arrays, strict=True))
        lacking = any(each not in given or given[each].null_count for each in self._required)
        return None if strangers or lacking or not names else ColumnRows(tuple(names), arrays)

    def _row(self, segment: Segment) -> Row:
        row: Row = {}
        for key, column, convert in self._converters:
            if key in segment:
                value = segment[key]
                try:
                    row[column] = None if value is None else convert(value)
                except ValueError as error:
                    raise self._misfit(key, column, error) from error
        if self._every and len(row) != len(segment):
            raise self._stranger(segment)
        if not row:
            raise task_error(self._context, f"a segment has none of the columns of {self._where}")
        for column in self._required:
            if row.get(column) is None:
                what = f"a segment has no value for column {column!r} of {self._where}"
                raise task_error(self._context, f"{what}, which must have one")
        return row

    def _misfit(self, key: str, column: str, error: ValueError) -> Exception:
        kind = self._table.columns[column].type
        return task_error(
            self._context,
            f"key {key!r} of a segment holds {error}; column {column!r} of {self._where} "
            f"is {kind!s}: change the column, or the value in a function before",
        )

    def _stranger(self, segment: Segment) -> Exception:
        key = next(key for key in segment if key not in self._table.columns)
        hint = nearest(key, self._names()) or f"it has {', '.join(self._names())}"
        return task_error(
            self._context,
            f"{self._where} has no column for key {key!r} of a segment ({hint}); option 'columns' "
            "says which keys to write, and where",
        )

    def _names(self) -> list[str]:
        return [each.name for each in self._table.columns]

    @property
    def _where(self) -> str:
        return f"table {self._table.fullname!r}"


def alike(rows: Sequence[Row]) -> Iterable[tuple[tuple[str, ...], list[Row]]]:
    """Runs of rows with the same columns, in order: each is one statement."""
    for names, run in groupby(rows, key=tuple):
        yield names, list(run)
