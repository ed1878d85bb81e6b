"""The flow conditions of one task: compiled once, and what they say about one segment.

`Conditions.route` is the meaning, one segment at a time; `routing.route_batch` gives the same
answer for a batch, column by column. Two points where the original's versions differ:

* A task with exception conditions only sends ordinary segments to all children that no exception
  condition names (the original since 0.12; before, to all).
* A predicate that raises: its condition's `predicateErrorsTo` get the post-transformed error, if it
  has both (0.10 and later); otherwise the error is a failure of the task.

A condition leaves keys out for the children that it sends to itself; the original leaves them out
for all who get the segment, which takes fields from children that nobody meant.

A child that the task or a window of it names in `lateTo`, or in `deadLetter`, gets late segments
or dead letters, and of the others only those that a condition naming it sends there: neither no
conditions nor `to: all` mean it.

**Masks.** Of a whole batch a predicate gives one mask instead of an answer a segment. A
node is asked about all rows at once, with a mask of those that matter: rows that an earlier
condition or operand has decided do not. Comparisons and functions over columns look at the whole
batch, which is cheaper than copying a part of it; what they say of the other rows counts for
nothing, not even when it is an error. Comparisons look at a batch of dicts in the same way, key by
key, which takes a third of the time of a call for each. A function over dicts is called for the
rows that matter, and only those are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from msgspec.structs import replace

from onyx.errors import UserFunctionError, contained, describe, describe_type, message_of
from onyx.flow.batch import Indices, Mask, Segment, Segments, as_given, format_of
from onyx.flow.columns.record_batch import Columns, from_dicts
from onyx.flow.comparisons import Answer, ColumnComparison, Comparison, mask_of
from onyx.flow.predicates import (
    Call,
    Combination,
    Node,
    Resolve,
    Test,
    calls_functions,
    compared,
    has_sql,
    read,
    segment_test,
)
from onyx.flow.segment import RetriesExhausted, SegmentFailure
from onyx.model.job import FlowCondition, Job, Targets
from onyx.model.workflow import back_from

if TYPE_CHECKING:
    from onyx.sql.batches import Expression

PostTransform = Callable[[Any, Any, Exception], Any]

MESSAGE_CHARACTERS_MAX = 4_096
"""The length of an error, in the segment that describes it."""


class Compiled(msgspec.Struct, frozen=True):
    """One flow condition with its names resolved."""

    test: Test
    """What it says of one segment or exception."""
    ask: Ask
    """What it says of a whole batch."""
    compared: tuple[str, ...]
    """Keys of its comparisons, which are faster over a whole batch."""
    takes_columns: bool
    """Whether functions of the condition take columns, so that dicts are converted for it."""
    to: frozenset[str]
    """Children it sends to."""
    errors_to: frozenset[str] | None
    """Children that get the error when the predicate itself raises; None: nobody may."""
    exclude_keys: frozenset[str]
    short_circuit: bool
    post_transform: PostTransform | None
    retry: bool
    retries_max: int
    """Retries that it asks for at most."""
    anchored: bool
    """Whether what it sends is accounted for."""
    where: str
    """Job, key path and task, for messages."""


NONE_EXCLUDED: Mapping[str, frozenset[str]] = {}


class Route(msgspec.Struct, frozen=True):
    """What the conditions say about one segment or exception."""

    flow: frozenset[str] = frozenset()
    """Children that get it."""
    exclude_keys: Mapping[str, frozenset[str]] = msgspec.field(
        default_factory=lambda: NONE_EXCLUDED
    )
    """Keys that are left out, for those children that do not get all."""
    retry: Compiled | None = None
    """Send nothing; its root is to be read again because of this condition."""
    post_transform: PostTransform | None = None
    error: Exception | None = None
    """What a predicate raised, or that no retry is left."""

    def joined(self, condition: Compiled) -> Route:
        """The route with a condition that holds."""
        return Route(
            self.flow | condition.to,
            self._without(condition.to, condition.exclude_keys),
            condition if condition.retry else None,
            condition.post_transform if condition.short_circuit else None,
        )

    def failed(self, condition: Compiled, error: Exception) -> Route:
        """The route with a condition whose predicate raised: nothing after it is looked at."""
        to = condition.errors_to or frozenset()
        return Route(
            self.flow | to,
            self._without(to, condition.exclude_keys),
            None,
            None if condition.errors_to is None else condition.post_transform or described,
            error,
        )

    def _without(self, to: frozenset[str], keys: frozenset[str]) -> Mapping[str, frozenset[str]]:
        if not keys or not to:
            return self.exclude_keys
        return {
            **self.exclude_keys,
            **{child: keys | self.exclude_keys.get(child, frozenset()) for child in to},
        }

    def for_child(self, child: str, segment: Segment) -> Segment:
        """What a child gets of the segment."""
        return without_keys(segment, self.exclude_keys.get(child, frozenset()))


class Conditions(msgspec.Struct, frozen=True):
    """All flow conditions of one task, in the order of the job."""

    children: tuple[str, ...]
    ordinary: tuple[Compiled, ...]
    exceptional: tuple[Compiled, ...]
    default: frozenset[str]
    """Where ordinary segments go when there is no condition for them."""

    @property
    def retries(self) -> bool:
        """Whether one of them asks for retries."""
        return any(each.retry for each in (*self.ordinary, *self.exceptional))

    def route(
        self,
        event: Any,
        old: Segment,
        new: Segment | Exception,
        all_new: Any,
        exhausted: bool = False,
    ) -> Route:
        """Which children get `new`, made of `old`, or the exception that it failed with.

        Args:
            event: handed on to the predicates.
            all_new: everything that was made of `old`.
            exhausted: it has been retried as often as it may. An exception then goes to the next
                condition that takes it; another segment fails.
        """
        thrown = isinstance(new, Exception)
        conditions = self.exceptional if thrown else self.ordinary
        if not conditions:
            return Route() if thrown else Route(self.default)
        route = Route()
        for condition in conditions:
            if thrown and condition.retry and exhausted:
                continue
            try:
                holds = condition.test(event, old, new, all_new)
            except BaseException as error:
                return route.failed(condition, contained(error, "the predicate"))
            if holds and condition.retry:
                return (
                    Route(error=no_retry_left(condition)) if exhausted else Route(retry=condition)
                )
            if holds:
                route = route.joined(condition)
                if condition.short_circuit:
                    break
        return route

    def of_exceptions(self, default: frozenset[str] = frozenset()) -> Conditions:
        """The conditions about exceptions; all other segments go to `default`."""
        return replace(self, ordinary=(), default=default)


def everything_to(children: tuple[str, ...]) -> Conditions:
    """No conditions: all children get all segments, and nothing takes care of exceptions."""
    return Conditions(children, (), (), frozenset(children))


def no_retry_left(condition: Compiled) -> RetriesExhausted:
    """Why a segment has failed that a condition would have retried."""
    times = "once" if condition.retries_max == 1 else f"{condition.retries_max} times"
    return RetriesExhausted(
        f"{condition.where} asks for a retry, but none is left: the segment has been retried "
        f"{times}, which is its maxRetries, or nobody accounts for it, nor reads it again"
    )


def sendable(route: Route, event: Any, old: Segment, new: Segment | Exception) -> Segment:
    """The segment that goes to `route.flow`, with all its keys: transformed if it is an error.

    Raises:
        Exception: the error itself (of the segment or of a predicate) when nothing transforms it.
        UserFunctionError: the post-transform raised or did not return a dict.
    """
    error = route.error or (new if isinstance(new, Exception) else None)
    if error is None:
        assert isinstance(new, dict)
        return new
    if route.post_transform is None:
        raise error
    cause = old if route.error is None else {"old": old, "new": new}
    try:
        segment = route.post_transform(event, cause, error)
    except BaseException as again:
        raise UserFunctionError(
            f"the flow condition's postTransform, given {type(error).__name__}, raised "
            f"{describe(again)}"
        ) from again
    if not isinstance(segment, dict):
        raise UserFunctionError(
            f"the flow condition's postTransform returned {type(segment).__name__}: "
            f"it must return one dict"
        ) from error
    return segment


def described(event: Any, cause: Any, error: Exception) -> Segment:
    """What a predicate raised, as a segment, where the job has no `postTransform` for it.

    Args:
        event: of the task, as for any transform.
        cause: the segments `old` and `new` that the predicate was asked about.
        error: what it raised.
    """
    asked = cause["old"] if isinstance(cause["new"], Exception) else cause["new"]
    message = message_of(error)[:MESSAGE_CHARACTERS_MAX].encode("utf-8", "replace").decode()
    return {"error": {"type": type(error).__name__, "message": message}, "segment": asked}


def without_keys(segment: Segment, keys: frozenset[str]) -> Segment:
    """The segment; it is object when there is nothing to leave out."""
    if keys.isdisjoint(segment):
        return segment
    return {key: value for key, value in segment.items() if key not in keys}


def lacking(conditions: Conditions, segment: Segment) -> str:
    """Which key that a comparison asks about a segment does not have, for messages; empty if it has
    all. A comparison says nothing of such a segment."""
    for condition in conditions.ordinary:
        for key in condition.compared:
            if segment.get(key) is None:
                what = "null in key" if key in segment else "no key"
                return f"the first has {what} {key!r}, which {condition.where} compares"
    return ""


def children_of(job: Job, task: str) -> tuple[str, ...]:
    """Children of a task, in the order of the workflow; and the task that it loops to."""
    below = tuple(dict.fromkeys(child for parent, child in job.workflow if parent == task))
    back = back_from(job, task)
    return below if back is None else (*below, back)


def compile_conditions(job: Job, task: str, resolve: Resolve) -> Conditions | None:
    """What decides about segments of `task`; None when nothing does: all go everywhere.

    A condition from `all` concerns the tasks that have all the children it names.

    Raises:
        UserError: a predicate is malformed. NameNotRegistered: from `resolve`.
    """
    children = children_of(job, task)
    ordinary: list[Compiled] = []
    exceptional: list[Compiled] = []
    apart = set_apart(job, task)
    ordinary_children = tuple(child for child in children if child not in apart)
    named: set[str] = set()
    for index, condition in enumerate(job.flow_conditions):
        if not _concerns(condition, task, children):
            continue
        where = f"job {job.name!r}, flowConditions[{index}] from {task!r}"
        compiled = _compile(condition, ordinary_children, resolve, where)
        if condition.thrown_exception:
            exceptional.append(compiled)
            named.update(condition.to if not isinstance(condition.to, str) else ())
        else:
            ordinary.append(compiled)
    if not ordinary and not exceptional and ordinary_children == children:
        return None
    default = frozenset(ordinary_children) - named
    return Conditions(children, tuple(ordinary), tuple(exceptional), default)


def set_apart(job: Job, task: str) -> frozenset[str]:
    """Children that get only what is late, only dead letters, or only what goes back."""
    letters = {entry.dead_letter for entry in job.catalog if entry.name == task}
    apart = letters | {back_from(job, task)}
    return job.late_children(task) | frozenset(child for child in apart if child is not None)


def _concerns(condition: FlowCondition, task: str, children: tuple[str, ...]) -> bool:
    if condition.from_task != "all":
        return task in condition.from_tasks
    return isinstance(condition.to, str) or set(condition.to) <= set(children)


def _compile(
    condition: FlowCondition, everyone: tuple[str, ...], resolve: Resolve, where: str
) -> Compiled:
    errors_to = condition.predicate_errors_to
    transform = condition.post_transform
    node = read(condition.predicate, condition.options, resolve, where)
    over_columns = condition.batch_format == "arrow" and calls_functions(node)
    takes_columns = over_columns or has_sql(node)
    ask = ask_of(node, takes_columns)
    return Compiled(
        test=one_by_one(ask) if takes_columns else segment_test(node),
        ask=ask,
        compared=compared(node),
        takes_columns=takes_columns,
        to=_targets(condition.to, everyone),
        errors_to=None if errors_to is None else _targets(errors_to, everyone),
        exclude_keys=frozenset(condition.exclude_keys),
        short_circuit=condition.short_circuit,
        post_transform=None if transform is None else resolve(transform),
        retry=condition.action == "retry",
        retries_max=condition.max_retries,
        anchored=condition.anchored,
        where=where,
    )


def _targets(targets: Targets, everyone: tuple[str, ...]) -> frozenset[str]:
    if targets == "all":
        return frozenset(everyone)
    if targets == "none":
        return frozenset()
    return frozenset((targets,) if isinstance(targets, str) else targets)


RULE = (
    "a predicate of a condition with batchFormat: arrow is called as fn(event, record_batch, "
    "*params) and returns true or false for each row: a boolean pyarrow array, a NumPy array of "
    "bools or a boolean Polars series, as long as the batch; null is false"
)

Asked = tuple[list[Segment], list[Segment], Iterable[tuple[Segment, ...]]]
"""For each segment the old one, the new one, and all new ones of the old one."""


class DictsOfRows(Protocol):
    """The segments of a batch as dicts."""

    def __call__(self, indices: Indices | None) -> Asked:
        """The rows at these indices; None: all."""


class BatchQuestion:
    """What is asked about the leaves of one batch, and the rows that could not be answered."""

    def __init__(self, event: Any, segments: Segments, rows: DictsOfRows) -> None:
        self.event = event
        self.segments = segments
        self.rows = rows
        self.errors: dict[int, Exception] = {}
        """The first error of each row that could not be answered."""

    def fail(self, rows: Mask, error: Exception) -> None:
        """Some rows cannot be answered."""
        for row in np.flatnonzero(rows).tolist():
            self.errors.setdefault(row, error)

    def unfailed(self, rows: Mask) -> Mask:
        """Without those that cannot be answered."""
        if not self.errors:
            return rows
        rows = rows.copy()
        rows[list(self.errors)] = False
        return rows


Ask = Callable[[BatchQuestion, Mask], Mask]
"""Where a predicate holds; of rows outside the mask it may say anything."""


def ask_of(node: Node, of_columns: bool) -> Ask:
    """The function that decides about the columns of a batch.

    Args:
        of_columns: its functions take columns, and otherwise one segment.
    """
    if isinstance(node, Comparison):
        return _comparing(node)
    if isinstance(node, Call):
        return _of_columns(node) if of_columns else _of_dicts(segment_test(node))
    if isinstance(node, Combination):
        return _combined(node, [ask_of(each, of_columns) for each in node.operands])
    return _by_sql(node)


def one_by_one(ask: Ask) -> Test:
    """The predicate about one segment. Raises what the predicate does."""

    def test(event: Any, old: Any, new: Any, all_new: Any) -> bool:
        columns, _, misfits = from_dicts([new])
        if misfits:
            raise misfits[0][1]
        question = BatchQuestion(event, columns, lambda _: ([old], [new], [all_new]))
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

    def of_dicts(segments: list[Segment], question: BatchQuestion, wanted: Mask) -> Mask:
        values = [segment.get(key) for segment in segments]
        holds = of_all(values)
        return _each(of_one, values, question, wanted) if holds is None else holds

    def of_columns(columns: Columns, question: BatchQuestion, wanted: Mask) -> Mask:
        answers = over_columns.answers(columns)
        if answers.refused is not None and answers.error is not None:
            question.fail(answers.refused & wanted, answers.error)
        return answers.holds

    def ask(question: BatchQuestion, wanted: Mask) -> Mask:
        compare = format_of(question.segments).choose(of_dicts, of_columns)
        return compare(question.segments, question, wanted)

    return ask


def _each(of_one: Answer, values: list[Any], question: BatchQuestion, wanted: Mask) -> Mask:
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

    def ask(question: BatchQuestion, wanted: Mask) -> Mask:
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
    def ask(question: BatchQuestion, wanted: Mask) -> Mask:
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
    def ask(question: BatchQuestion, wanted: Mask) -> Mask:
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

    def every(question: BatchQuestion, wanted: Mask) -> Mask:
        for ask in operands:
            wanted = question.unfailed(wanted & ask(question, wanted))
        return wanted

    def some(question: BatchQuestion, wanted: Mask) -> Mask:
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
