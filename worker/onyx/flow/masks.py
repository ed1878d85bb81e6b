"""Predicates over the whole batch: one mask instead of an answer a segment.

A node is asked about all rows at once, with a mask of those that matter: rows that an earlier
condition or operand has decided do not. Comparisons and functions over columns look at the whole
batch, which is cheaper than copying a part of it; what they say of the other rows counts for
nothing, not even when it is an error. Comparisons look at a batch of dicts in the same way, key by
key, which takes a third of the time of a call for each. A function over dicts is called for the
rows that matter, and only those are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import UserFunctionError, contained, describe_type
from onyx.flow.batch import Indices, Mask, Segment, Segments, as_given, format_of
from onyx.flow.columns.comparisons import ColumnComparison, mask_of
from onyx.flow.columns.record_batch import Columns, from_dicts
from onyx.flow.comparisons import Answer, Comparison
from onyx.flow.predicates import Call, Combination, Node, Test, segment_test
from onyx.flow.segment_failure import SegmentFailure
from onyx.sql.expression import Expression

RULE = (
    "a predicate of a condition with batchFormat: arrow is called as fn(event, record_batch, "
    "*params) and returns true or false for each row: a boolean pyarrow array, a NumPy array of "
    "bools or a boolean Polars series, as long as the batch; null is false"
)
Asked = tuple[list[Segment], list[Segment], Iterable[tuple[Segment, ...]]]
"""For each segment the old one, the new one, and all new ones of the old one."""


class Rows(Protocol):
    """The segments of a batch as dicts."""

    def __call__(self, indices: Indices | None) -> Asked:
        """The rows at these indices; None: all."""


class Question:
    """What is asked about the leaves of one batch, and the rows that could not be answered."""

    def __init__(self, event: Any, segments: Segments, rows: Rows) -> None:
        self.event = event
        self.segments = segments
        self.rows = rows
        self.errors: dict[int, Exception] = {}
        """By row, the first that was raised."""

    def fail(self, rows: Mask, error: Exception) -> None:
        """These rows cannot be answered."""
        for row in np.flatnonzero(rows).tolist():
            self.errors.setdefault(row, error)

    def unfailed(self, rows: Mask) -> Mask:
        """Without those that cannot be answered."""
        if not self.errors:
            return rows
        rows = rows.copy()
        rows[list(self.errors)] = False
        return rows


Ask = Callable[[Question, Mask], Mask]
"""Where a predicate holds; of rows outside the mask it may say anything."""


def ask_of(node: Node, of_columns: bool) -> Ask:
    """The function that decides about the columns of a batch.

    Args:
        of_columns: its functions take columns, and otherwise one segment.
    """
    if isinstance(node, Comparison):
        return _comparing(node)
    if isinstance(node, Expression):
        return _by_sql(node)
    if isinstance(node, Call):
        return _of_columns(node) if of_columns else _of_dicts(segment_test(node))
    operands = [ask_of(each, of_columns) for each in node.operands]
    return _combined(node, operands)


def one_by_one(ask: Ask) -> Test:
    """The predicate about one segment. Raises what the predicate does."""

    def test(event: Any, old: Any, new: Any, all_new: Any) -> bool:
        columns, _, misfits = from_dicts([new])
        if misfits:
            raise misfits[0][1]
        question = Question(event, columns, lambda _: ([old], [new], [all_new]))
        holds = ask(question, np.ones(1, dtype=np.bool_))
        if question.errors:
            raise question.errors[0]
        return bool(holds[0])

    return test


def ask_each(
    test: Test,
    event: Any,
    olds: list[Segment],
    news: list[Segment],
    everything: Iterable[tuple[Segment, ...]],
) -> tuple[Mask, list[SegmentFailure]]:
    """Which segments a predicate holds for, and for which it raised; each is asked once."""
    answers: list[int] = []
    errors: list[SegmentFailure] = []
    append = answers.append
    remaining = zip(olds, news, everything, strict=True)
    while True:
        try:
            for old, new, all_new in remaining:
                append(1 if test(event, old, new, all_new) else 0)
            return np.frombuffer(bytearray(answers), dtype=np.bool_), errors
        except BaseException as error:
            errors.append((len(answers), contained(error, "the predicate")))
            append(0)


def _comparing(comparison: Comparison) -> Ask:
    over_columns, key = ColumnComparison(comparison), comparison.key
    of_all, of_one = comparison.of_all(), comparison.answer()

    def of_dicts(segments: list[Segment], question: Question, wanted: Mask) -> Mask:
        values = [segment.get(key) for segment in segments]
        holds = of_all(values)
        return _each(of_one, values, question, wanted) if holds is None else holds

    def of_columns(columns: Columns, question: Question, wanted: Mask) -> Mask:
        answers = over_columns.answers(columns)
        if answers.refused is not None and answers.error is not None:
            question.fail(answers.refused & wanted, answers.error)
        return answers.holds

    def ask(question: Question, wanted: Mask) -> Mask:
        compare = format_of(question.segments).choose(of_dicts, of_columns)
        return compare(question.segments, question, wanted)

    return ask


def _each(of_one: Answer, values: list[Any], question: Question, wanted: Mask) -> Mask:
    """For values of which one has an unusual type."""
    holds = np.zeros_like(wanted)
    for index in np.flatnonzero(wanted).tolist():
        try:
            holds[index] = of_one(values[index])
        except Exception as error:
            question.errors.setdefault(index, error)
    return holds


def _of_columns(call: Call) -> Ask:
    fn, params = call.fn, call.params

    def ask(question: Question, wanted: Mask) -> Mask:
        if not wanted.any():
            return wanted
        try:
            answer = fn(question.event, as_given(question.segments), *params)
            return _as_mask(answer, len(wanted), fn)
        except BaseException as error:
            question.fail(wanted, contained(error, "the predicate"))
            return np.zeros_like(wanted)

    return ask


def _by_sql(expression: Expression) -> Ask:
    def ask(question: Question, wanted: Mask) -> Mask:
        if not wanted.any():
            return wanted
        try:
            answers, failed = expression.answers(as_given(question.segments))
        except Exception as error:
            question.fail(wanted, error)
            return np.zeros_like(wanted)
        for row, why in failed:
            if wanted[row]:
                question.errors.setdefault(row, UserFunctionError(why))
        return answers

    return ask


def _of_dicts(test: Test) -> Ask:
    def ask(question: Question, wanted: Mask) -> Mask:
        if not wanted.any():
            return wanted
        indices = None if wanted.all() else np.flatnonzero(wanted)
        answers, errors = ask_each(test, question.event, *question.rows(indices))
        for index, error in errors:
            question.errors.setdefault(index if indices is None else int(indices[index]), error)
        if indices is None:
            return answers
        holds = np.zeros_like(wanted)
        holds[indices] = answers
        return holds

    return ask


def _combined(node: Combination, operands: list[Ask]) -> Ask:
    if node.operator == "not":
        only = operands[0]
        return lambda question, wanted: ~only(question, wanted)

    def every(question: Question, wanted: Mask) -> Mask:
        for ask in operands:
            wanted = question.unfailed(wanted & ask(question, wanted))
        return wanted

    def some(question: Question, wanted: Mask) -> Mask:
        found = np.zeros_like(wanted)
        for ask in operands:
            found |= wanted & ask(question, wanted)
            wanted = question.unfailed(wanted & ~found)
        return found

    return every if node.operator == "and" else some


def _as_mask(answer: Any, count: int, fn: Callable[..., Any]) -> Mask:
    """What a function over columns has returned.

    Raises:
        UserFunctionError: it is not one answer for each row.
    """
    mask = _read(answer)
    if mask is not None and len(mask) == count:
        return mask
    what = describe_type(answer)
    if mask is not None:
        what = f"{len(mask)} answers for {count} rows"
    elif hasattr(answer, "dtype") or hasattr(answer, "type"):
        what += f" of {getattr(answer, 'dtype', None) or answer.type}"
    name = getattr(fn, "__name__", "the predicate")
    raise UserFunctionError(f"{name} returned {what}: {RULE}")


def _read(answer: Any) -> Mask | None:
    if isinstance(answer, np.ndarray):
        return answer if answer.dtype == np.bool_ and answer.ndim == 1 else None
    if hasattr(answer, "__arrow_c_stream__") and not isinstance(answer, pa.ChunkedArray):
        try:
            answer = pa.chunked_array(answer)
        except (pa.ArrowException, TypeError):
            return None
    if not isinstance(answer, pa.Array | pa.ChunkedArray):
        return None
    if kinds.is_null(answer.type):
        return np.zeros(len(answer), dtype=np.bool_)
    if not kinds.is_boolean(answer.type):
        return None
    return mask_of(answer.combine_chunks() if isinstance(answer, pa.ChunkedArray) else answer)
