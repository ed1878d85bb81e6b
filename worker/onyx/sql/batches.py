"""A text of SQL over the columns of a batch: as a function, or as a question about each row (true
or false, null is false).

A row that the engine cannot compute with fails alone: its batch is halved until it is found. The
text is about one row at a time, so a part of a batch gives the same as the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import UserError, UserFunctionError
from onyx.model.report import nearest
from onyx.sql.engine import MONTHS, PART_TIMEOUT_S, TABLE, TIMEOUT_S, Engine, RowsFailed
from onyx.sql.grammar import ROW, ROWS_AT_ONCE, Refused
from onyx.sql.statement import Computed, Item, Passed, Star, Statement, read_statement

ERROR = "__error__"
_BEFORE = f"select * from {TABLE} where\n"  # noqa: S608 (only the parser gets it)


class Query:
    """A select, ready to be called with batches."""

    def __init__(self, text: str, timeout_s: float = TIMEOUT_S) -> None:
        """`timeout_s`: what a batch may take. Raises UserError: it cannot be run on a batch, or
        DuckDB is not installed."""
        self._engine = Engine()
        self._timeout_s = timeout_s
        try:
            self._statement = read_statement(text, self._engine)
        except Refused as refused:
            raise UserError(f"sql {refused}") from None

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The rows that are made of a batch, each with the number of its row; those that failed in
        a batch of their own.

        Args:
            batch: with the number of each row in `__row__`.

        Raises:
            UserFunctionError: the text does not fit the columns of the batch.
        """
        statement = self._statement
        if not statement.computes:
            return [_assembled(statement.items, batch, batch.select([ROW]))]
        made, failed = computed(self._engine, statement, batch, self._timeout_s)
        results = [_assembled(statement.items, batch, made)]
        if failed:
            rows = pa.array([row for row, _ in failed], pa.int64())
            said = pa.array([why for _, why in failed], pa.string())
            results.append(pa.record_batch([rows, said], [ROW, ERROR]))
        return results

    def check(self, schema: pa.Schema) -> None:
        """Run on no rows of these columns.

        Raises:
            UserFunctionError: the text does not fit them.
        """
        schema = schema.append(pa.field(ROW, pa.int64()))
        self(
            pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
        )


Failed = list[tuple[int, str]]
"""Numbers of rows, and why the engine cannot compute with them."""


def computed(
    engine: Engine, statement: Statement, batch: pa.RecordBatch, timeout_s: float = TIMEOUT_S
) -> tuple[pa.RecordBatch, Failed]:
    """What the engine makes of a batch: `__row__` and what the statement computes.

    Raises:
        UserFunctionError: the statement does not fit the columns of the batch.
    """
    offered = batch.select([ROW, *_columns_of(statement, batch)])
    failed: Failed = []
    at_once = ROWS_AT_ONCE if statement.makes_much else max(1, offered.num_rows)
    parts = [
        part
        for first in range(0, offered.num_rows, at_once)
        for part in _parts(
            engine, statement.query, offered.slice(first, at_once), failed, timeout_s
        )
    ]
    if not parts:
        parts = [engine.run(statement.query, offered.slice(0, 0))]
    whole = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    if whole.num_columns != 1 + _computed_columns(statement):
        raise UserFunctionError("sql makes several columns of one: write unnest for a list only")
    return whole, failed


def _computed_columns(statement: Statement) -> int:
    count = 0
    for item in statement.items:
        count += len(item.replaced) if isinstance(item, Star) else isinstance(item, Computed)
    return count


def _parts(
    engine: Engine,
    query: str,
    offered: pa.RecordBatch,
    failed: Failed,
    timeout_s: float,
) -> Iterator[pa.RecordBatch]:
    try:
        yield engine.run(query, offered, timeout_s)
    except RowsFailed as error:
        count = offered.num_rows
        if count <= 1:
            failed.extend((row, str(error)) for row in offered.column(ROW).to_pylist())
            return
        for part in (offered.slice(0, count // 2), offered.slice(count // 2)):
            share_s = max(PART_TIMEOUT_S, timeout_s / 2)
            yield from _parts(engine, query, part, failed, share_s)


def _columns_of(statement: Statement, batch: pa.RecordBatch) -> list[str]:
    """The columns of the batch that the engine reads."""
    found: dict[str, None] = {}
    for name in statement.columns:
        column = _found(name, batch)
        if column is not None:
            _require_one(column, [*found, column])
            found[column] = None
        elif name.lower() not in statement.aliases:
            raise _lacking(name, batch)
    return [*found]


def _found(name: str, batch: pa.RecordBatch) -> str | None:
    """The column of a name, by the letter or, as SQL has it, in upper or lower case."""
    names = batch.schema.names
    if name in names:
        return name
    _require_one(name, names)
    return next((each for each in names if each.lower() == name.lower()), None)


def _require_one(name: str, names: Iterable[str]) -> None:
    """Raises UserFunctionError: names differ in upper and lower case alone, as SQL does not."""
    alike = dict.fromkeys(each for each in names if each.lower() == name.lower())
    if len(alike) > 1:
        raise UserFunctionError(
            f"sql cannot tell the columns {' and '.join(alike)} apart, which differ in upper and "
            "lower case alone: rename one in the task before"
        )


def _lacking(name: str, batch: pa.RecordBatch) -> UserFunctionError:
    names = [each for each in batch.schema.names if each != ROW]
    hint = nearest(name, names)
    return UserFunctionError(
        f"sql names the column {name}, which the batch does not have{f'; {hint}' if hint else ''} "
        f"(columns: {', '.join(names) or 'none'}; a key that no segment of a batch has is no "
        "column of it: give the task a schema)"
    )


def _assembled(
    items: Sequence[Item], batch: pa.RecordBatch, made: pa.RecordBatch
) -> pa.RecordBatch:
    """The items of a select, for the rows that the engine has chosen."""
    rows = made.column(0)
    if not rows.equals(batch.column(ROW)):
        batch = batch.select(_passed(items, batch)).take(rows)
    columns = {ROW: rows}
    for item in items:
        for name, column in _columns(item, batch, made):
            if name in columns:
                raise UserFunctionError(
                    f"sql makes a column {name}, which the batch has too: write "
                    f"* replace (... as {name}), or another name"
                )
            columns[name] = column
    return pa.RecordBatch.from_arrays([*columns.values()], [*columns])


def _passed(items: Sequence[Item], batch: pa.RecordBatch) -> list[str]:
    """Columns that go on as they are."""
    if any(isinstance(item, Star) for item in items):
        return [name for name in batch.schema.names if name != ROW]
    names = (_found(item.column, batch) for item in items if isinstance(item, Passed))
    return [*dict.fromkeys(name for name in names if name is not None)]


def _columns(
    item: Item, batch: pa.RecordBatch, made: pa.RecordBatch
) -> Iterator[tuple[str, pa.Array]]:
    if isinstance(item, Computed):
        yield item.name, _held(made.column(1 + item.position), item.name)
    elif isinstance(item, Passed):
        name = _found(item.column, batch)
        if name is None:
            raise _lacking(item.column, batch)
        yield item.name or name, batch.column(name)
    else:
        yield from _of_star(item, batch, made)


def _of_star(
    star: Star, batch: pa.RecordBatch, made: pa.RecordBatch
) -> Iterator[tuple[str, pa.Array]]:
    names = [name for name in batch.schema.names if name != ROW]
    known = {name.lower() for name in names}
    for name in (*star.replaced, *star.renamed, *star.without):
        _require_one(name, names)
    for name in (*star.replaced, *star.renamed):
        if name not in known:
            raise _lacking(name, batch)
    for name in names:
        key = name.lower()
        if key in star.without:
            continue
        position = star.replaced.get(key)
        same = batch.column(name)
        column = same if position is None else _held(made.column(1 + position), name)
        yield star.renamed.get(key, name), column


def _held(column: pa.Array, name: str) -> pa.Array:
    """A column, if segments have its type."""
    kind = column.type
    if kinds.is_struct(kind) and kind.get_field_index(MONTHS) == 0:
        raise UserFunctionError(
            f"sql makes intervals of months in {name}, which no segment can hold: add them to a "
            "time, or make a number of them"
        )
    return column


class Expression:
    """A condition about one row."""

    def __init__(self, text: str) -> None:
        """Raises UserError: it is no expression about one row, or DuckDB is not installed."""
        self._engine = Engine()
        try:
            self._statement = read_statement(_BEFORE + text, self._engine, len(_BEFORE))
        except Refused as refused:
            raise UserError(f"sql {refused}") from None

    def answers(self, batch: pa.RecordBatch) -> tuple[np.ndarray, Failed]:
        """For each row whether it holds; and the rows that it fails for.

        Raises:
            UserFunctionError: it does not fit the columns of the batch.
        """
        numbers = pa.array(np.arange(batch.num_rows, dtype=np.int64))
        made, failed = computed(self._engine, self._statement, batch.append_column(ROW, numbers))
        holds = np.zeros(batch.num_rows, dtype=np.bool_)
        holds[made.column(0).to_numpy()] = True
        return holds, failed
