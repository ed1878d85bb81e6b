"""The leaves of a batch: a task's function is applied to it, of dicts or of columns, and what it
returned is flattened, with columns that say of what.

A function over dicts returns a dict (one segment), None or an empty list (the segment ends here),
or a list, tuple or generator of dicts. What it raises does not lose the other segments of the
batch, and no segment is given to it twice: the loop continues behind the one that failed. The kinds
of results are checked afterwards, for the whole batch at once: only the usual answers (all dicts,
dicts and Nones, lists) are worth a fast path. An object per result, as in the original, was
rejected: it costs four times the function.

A function over columns is called once, with the batch as an Arrow record batch, and returns one, a
table, anything else that has the Arrow C stream interface (a Polars frame, a DuckDB relation), a
list of these, or None. Lineage needs the parent of each row. THE RULE says which one that is:

    The batch has one more column, `__row__`: the number of each row, from 0. A row of the result
    belongs to the row whose number is in its `__row__`. A result without the column has as many
    rows as the batch, and row i belongs to row i.

A row of the result may say that its row of the batch has failed: in its column `__error__`, text
that says why, or null; or that it is to be read again: in its column `__retry__`, the same, or a
mask.

So a filter, an explosion, a sort and a join need no code for it: they carry the column. Rejected: a
second result with the parents, which each function would have to work out; and guessing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress, islice, repeat
from operator import is_not, itemgetter
from types import GeneratorType, NoneType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from msgspec import field

from onyx.errors import UserError, UserFunctionError, contained, describe_type
from onyx.flow.arrays import Indices
from onyx.flow.batch import Segment, Segments, take
from onyx.flow.columns.record_batch import Columns, join, of_table, shown_dicts
from onyx.flow.segment import SegmentFailure
from onyx.functions.retry import Retry, asked_by, failed
from onyx.functions.returning import one_by_one
from onyx.model.job import CatalogEntry

LEAVES_MAX = 1_000_000
"""Most segments that a generator may make of one: an endless one would take all memory."""

ROW = "__row__"
"""Name of the column of row numbers."""

ERROR = "__error__"
"""Name of the column that says why a row has failed."""

RETRY = "__retry__"
"""Name of the column that says which rows are to be read again, and perhaps why."""

RULE = (
    f"a row belongs to the row of the batch whose number is in its column {ROW}, which the batch "
    f"has; without {ROW} a result must have as many rows as the batch, row i for row i"
)

_RETURNS = (
    "it must return a pyarrow.RecordBatch, something with the Arrow C stream interface (a table, "
    "a Polars frame), a list of these, or None"
)

_SAYS = {
    ERROR: "it must be text that says why the row has failed, or null",
    RETRY: "it must be text that says why the row is to be read again, or null; or true and false",
}

ROWS_KEPT = 16_384

_rows = pa.Array.from_buffers(  # pa.array would import pandas, for half a second of CPU
    pa.int64(), ROWS_KEPT, [None, pa.py_buffer(np.arange(ROWS_KEPT, dtype=np.int64))]
)


class Leaves(msgspec.Struct):
    """What a function made of a batch, flattened, in order."""

    segments: Segments
    parents: Indices | None = None
    """For each leaf the index of its parent in the batch, never falling; None: leaf i is of
    parent i, for every i."""
    child_index: Indices | None = None
    """For each leaf its index among the leaves of its parent; None: 0 for all."""
    failures: list[SegmentFailure] = field(default_factory=list)
    """Segments for which the function raised, in order; they have no leaves."""
    refusals: list[SegmentFailure] = field(default_factory=list)
    """Segments of which a window of the task refuses a leaf, in order, each once."""

    def __len__(self) -> int:
        return len(self.segments)

    def without(self, failures: list[SegmentFailure]) -> Leaves:
        """The leaves of a batch that are its own segments, without some that have failed."""
        assert self.parents is None, "no function has made them"
        kept = np.delete(np.arange(len(self)), [index for index, _ in failures])
        return of_some(Leaves(take(self.segments, kept)), kept, failures)


def of_some(leaves: Leaves, kept: Indices, failures: list[SegmentFailure]) -> Leaves:
    """The leaves of a batch of which only some segments were given to the function.

    Args:
        leaves: of those.
        kept: their indices in the batch, increasing.
        failures: of the others.
    """
    mine = [(int(kept[index]), error) for index, error in leaves.failures]
    return Leaves(
        leaves.segments,
        kept if leaves.parents is None else kept[leaves.parents],
        leaves.child_index,
        sorted([*mine, *failures], key=itemgetter(0)),
    )


def resolve_params(peer_fn_params: Mapping[str, Sequence[Any]], entry: CatalogEntry) -> list[Any]:
    """Leading arguments of the task's function: those that the peer's settings give for the task,
    then the values in `options` of the keys in `params`.

    Raises:
        UserError: a key of `params` is not in `options`.
    """
    missing = [key for key in entry.params if key not in entry.options]
    if missing:
        raise UserError(
            f"task {entry.name!r}: params names {missing[0]!r}, which its options do not have: "
            f"add it under options, or remove it from params"
        )
    return [*peer_fn_params.get(entry.name, ()), *(entry.options[key] for key in entry.params)]


# --- dicts --------------------------------------------------------------------------------------


def apply_function(
    fn: Callable[..., Any],
    params: Sequence[Any],
    segments: list[Segment],
    batch_fn: bool = False,
) -> Leaves:
    """The leaves of a batch.

    Args:
        fn: called as `fn(*params, segment)`; with `batch_fn` once, as `fn(*params, segments)`, and
            then it returns one result a segment.
        params: leading arguments (`resolve_params`).

    What the function raises, and results that are no segments (UserFunctionError), are in
    `failures`; when a batch function fails, each of its segments has failed.
    """
    call = partial(fn, *params) if params else fn
    if batch_fn:
        return _apply_batch(call, segments)
    return flatten(*_call_each(call, segments))


def _call_each(
    call: Callable[[Any], Any], arguments: Sequence[Any]
) -> tuple[list[Any], list[SegmentFailure]]:
    """One result an argument, None where it raised, and what it raised there."""
    results: list[Any] = []
    failures: list[SegmentFailure] = []
    remaining = map(call, one_by_one(arguments))
    while True:
        error: Exception = StopIteration()
        try:
            results.extend(remaining)  # keeps what came before an exception
        except BaseException as raised:
            error = contained(raised)
        if len(results) == len(arguments):
            return results, failures
        # A StopIteration of the function's looks like the end.
        failures.append((len(results), error))
        results.append(None)


def _apply_batch(call: Callable[[list[Segment]], Any], segments: list[Segment]) -> Leaves:
    try:
        results = call(list(segments))
        if not isinstance(results, list | tuple) or len(results) != len(segments):
            raise UserFunctionError(_wrong_batch(results, len(segments)))
    except BaseException as raised:
        error = contained(raised)
        nothing = np.empty(0, dtype=np.intp)
        return Leaves([], nothing, None, [(index, error) for index in range(len(segments))])
    return flatten(list(results), [])


def _wrong_batch(results: Any, expected: int) -> str:
    came = (
        f"{len(results)} results" if isinstance(results, list | tuple) else describe_type(results)
    )
    return (
        f"the batch function returned {came} for {expected} segments: it must return a list with "
        f"one result a segment (a dict, None, or a list of dicts)"
    )


# --- columns ------------------------------------------------------------------------------------


def apply_to_columns(fn: Callable[..., Any], params: Sequence[Any], columns: Columns) -> Leaves:
    """The leaves of a batch: each row of the result, of the row that THE RULE gives.

    Args:
        fn: called once, as `fn(*params, record_batch)`.

    When it raises, or breaks the rule (UserFunctionError), each row of the batch has failed.
    """
    count = len(columns)
    try:
        batch = columns.record_batch.append_column(ROW, _row_numbers(count))
        result = result_columns(fn(*params, batch))
        return _without_failed(*_parted(result, count))
    except BaseException as raised:
        error = contained(raised)
        nothing = np.empty(0, dtype=np.intp)
        failures = [(index, error) for index in range(count)]
        return Leaves(columns.slice(0, 0), nothing, None, failures)


def _row_numbers(count: int) -> pa.Array:
    return _rows.slice(0, count) if count <= ROWS_KEPT else pa.array(np.arange(count))


def result_columns(result: Any) -> Columns | None:
    """What a function over columns returned, as one batch; None if it returned nothing.

    Raises:
        UserError: it is nothing that a function may return.
    """
    parts = list(_parts(result))
    try:
        return join(parts) if parts else None
    except UserError as error:
        raise UserFunctionError(f"the function returned batches that differ: {error}") from error


def _parts(result: Any) -> Iterator[Columns]:
    if result is None:
        return
    if isinstance(result, list | tuple):
        for each in result:
            yield from _parts(each)
        return
    try:
        if isinstance(result, pa.RecordBatch):
            yield Columns.of(result)
        elif isinstance(result, pa.Table):
            yield of_table(result)
        elif hasattr(result, "__arrow_c_stream__"):
            yield of_table(pa.table(result))
        else:
            raise UserFunctionError(f"the function returned {describe_type(result)}: {_RETURNS}")
    except UserFunctionError:
        raise
    except UserError as error:
        raise UserFunctionError(f"what the function returned cannot go on: {error}") from error


_Parted = tuple[Columns, Indices | None, Indices | None]
"""The rows of a result, with `parents` and `child_index` of their leaves."""


def _parted(result: Columns | None, count: int) -> _Parted:
    if result is None:
        return Columns(pa.record_batch({})), np.empty(0, dtype=np.intp), None
    if not result.has(ROW):
        if len(result) != count:
            raise UserFunctionError(
                f"the function returned {len(result)} rows without {ROW} for {count}: {RULE}"
            )
        return result, None, None
    parents = _parents(result.column(ROW), count)
    result = result.without((ROW,))
    steps = np.diff(parents)
    if (steps < 0).any():
        order = np.argsort(parents, kind="stable")
        result, parents = result.take(order), parents[order]
        steps = np.diff(parents)
    if len(parents) == count and (steps == 1).all():
        return result, None, None
    return result, parents, None if (steps > 0).all() else _child_index(parents, steps)


def _without_failed(
    result: Columns, parents: Indices | None, child_index: Indices | None
) -> Leaves:
    """The leaves without the columns about failures, and without all that was made of rows that
    have something in one of them."""
    columns = [name for name in (RETRY, ERROR) if result.has(name)]
    if not columns:
        return Leaves(result, parents, child_index)
    errors: dict[int, Exception] = {}
    for name in columns:
        rows, said = _said(result.column(name), name)
        of_rows = rows if parents is None else parents[rows]
        for parent, each in zip(of_rows.tolist(), said, strict=True):
            errors.setdefault(parent, each)
    result = result.without(columns)
    if not errors:
        return Leaves(result, parents, child_index)
    parents = np.arange(len(result)) if parents is None else parents
    kept = np.isin(parents, list(errors), invert=True)
    return Leaves(
        result.filter(kept),
        parents[kept],
        None if child_index is None else child_index[kept],
        sorted(errors.items(), key=itemgetter(0)),
    )


def _said(column: pa.Array, name: str) -> tuple[Indices, list[Exception]]:
    """The rows that have something in a column about failures, and what that says."""
    if name == RETRY and kinds.is_boolean(column.type):
        rows = np.flatnonzero(column.fill_null(False).to_numpy(zero_copy_only=False))
        return rows, [failed() for _ in range(len(rows))]
    if not kinds.is_string(column.type) and not kinds.is_null(column.type):
        raise UserFunctionError(
            f"the function's result has values of type {column.type} in {name}: {_SAYS[name]}"
        )
    if column.null_count == len(column):
        return np.empty(0, dtype=np.intp), []
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    made: type[Exception] = Retry if name == RETRY else UserFunctionError
    said = shown_dicts(Columns(pa.record_batch([column.take(pa.array(rows))], [name])))
    return rows, [made(each[name] or f"{name} is empty text") for each in said]


def _parents(column: pa.Array, count: int) -> Indices:
    if not pa.types.is_integer(column.type) or column.null_count:
        what = "nulls" if column.null_count else f"values of type {column.type}"
        raise UserFunctionError(f"the function's result has {what} in {ROW}: {RULE}")
    parents: Indices = column.to_numpy().astype(np.intp, copy=False)
    if len(parents) and not 0 <= parents.min() <= parents.max() < count:
        raise UserFunctionError(
            f"the function's result has numbers in {ROW} that no row of the batch has (its {count} "
            f"rows are 0 to {count - 1}): {RULE}"
        )
    return parents


def _child_index(parents: Indices, steps: Indices) -> Indices:
    """The index of each row among those of the same parent, which stand together."""
    starts = np.concatenate((np.zeros(1, dtype=np.intp), np.flatnonzero(steps) + 1))
    lengths = np.diff(np.append(starts, len(parents)))
    return np.arange(len(parents)) - np.repeat(starts, lengths)


# --- what a function has returned -----------------------------------------------------------------

_DICT, _LIST = {dict}, {list}
_DICT_OR_NONE: set[type] = {dict, NoneType}
_PERHAPS_EMPTY = {dict, NoneType, list, tuple}


def flatten(results: list[Any], failures: list[SegmentFailure]) -> Leaves:
    """The leaves of one result a segment; results that are no segments become failures.

    Args:
        results: what the function returned, None where it raised; the caller's no more.
        failures: what it raised, in order.
    """
    kinds: set[type] = set(map(type, results))
    if kinds <= _DICT:
        return Leaves(results)
    if _one_or_none(results, kinds):
        results = [result if type(result) is dict else None for result in results]
        kinds = _DICT_OR_NONE
    if kinds <= _DICT_OR_NONE:
        there = bytes(map(is_not, results, repeat(None)))
        parents = np.frombuffer(there, dtype=np.bool_).nonzero()[0]
        return Leaves(list(compress(results, there)), parents, None, failures)
    if kinds == _LIST and _DICT.issuperset(map(type, segments := _joined(results))):
        return _of_lists(results, segments, failures)
    lists, wrong = _as_lists(results)
    return _of_lists(lists, _joined(lists), sorted(failures + wrong, key=itemgetter(0)))


def _of_lists(
    lists: list[Sequence[Segment]], segments: list[Segment], failures: list[SegmentFailure]
) -> Leaves:
    counts = np.fromiter(map(len, lists), dtype=np.intp, count=len(lists))
    parents = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    child_index = np.arange(len(parents)) - firsts[parents]
    return Leaves(segments, parents, child_index, failures)


def _one_or_none(results: list[Any], kinds: set[type]) -> bool:
    """Whether some are lists, but only empty ones."""
    if kinds <= _DICT_OR_NONE or not kinds <= _PERHAPS_EMPTY:
        return False
    return not any(result for result in results if type(result) is not dict)


def _joined(lists: list[Sequence[Segment]]) -> list[Any]:
    """The items of all: by the list, which takes half of the time of a chain."""
    joined: list[Any] = []
    for each in lists:
        joined += each
    return joined


def _as_lists(results: list[Any]) -> tuple[list[Sequence[Segment]], list[SegmentFailure]]:
    lists: list[Sequence[Segment]] = []
    failures: list[SegmentFailure] = []
    for index, result in enumerate(results):
        try:
            lists.append(segments_of(result))
        except BaseException as error:
            failures.append((index, contained(error)))
            lists.append(())
    return lists, failures


def segments_of(result: Any) -> Sequence[Segment]:
    """The segments that a function has returned for one.

    Raises:
        Exception: it returned something else, or asks for a retry.
    """
    if isinstance(result, dict):
        return (_plain(result),)
    if result is None:
        return ()
    if isinstance(result, GeneratorType):
        result = list(islice(result, LEAVES_MAX + 1))
        if len(result) > LEAVES_MAX:
            raise UserFunctionError(
                f"the function's generator made more than {LEAVES_MAX:,} segments of one: "
                f"is it endless? Make fewer, or read them by an input plugin"
            )
    if isinstance(result, list | tuple):
        for each in result:
            if not isinstance(each, dict):
                raise asked_by(each) or UserFunctionError(
                    f"the function returned a {type(result).__name__} that holds "
                    f"{describe_type(each)}: every segment must be a dict"
                )
        return list(map(_plain, result))
    raise asked_by(result) or UserFunctionError(
        f"the function returned {describe_type(result)}: it must return a dict (one segment), "
        f"None or [] (none), or a list of dicts (several)"
    )


def _plain(segment: Segment) -> Segment:
    """A dict, as it would arrive in another process: a defaultdict, say, would give other answers
    here than there."""
    return segment if type(segment) is dict else dict(segment)
