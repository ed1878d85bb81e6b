"""What a program does with one batch: the user's function makes leaves of it (`apply`), what a
state needs of the batch is read, and it is decided where everything goes (`route`).

Whole batches only: the user's function is the one thing that is done per segment, and with columns
not even that. Segments are converted here, by the task that wants another format than they have.

Whether a dict fits is looked at by making columns of all of them, so both formats have one meaning;
the function gets the dict as it is. A task with neither a schema nor columns does not pay for
that.

Whatever refuses a segment has reported it before its batch is routed, or is asked then;
`flow/routing` decides. This is before the batch changes any state. Invariant: a segment that failed
or is to be retried leaves no trace in windows, or its replay would count twice or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import field

from onyx.base.runs import Numbers, array_of, taken
from onyx.codec.refusals import refuse
from onyx.codec.values import size_bytes
from onyx.errors import PoisonSegment, SegmentError
from onyx.flow.batch import (
    Batch,
    Fitted,
    FoundKeys,
    Indices,
    Segment,
    Segments,
    as_columns,
    as_dicts,
    as_given,
    format_of,
    joined,
    segment_at,
    take,
)
from onyx.flow.columns.record_batch import Columns
from onyx.flow.conditions import Conditions, everything_to, lacking
from onyx.flow.groups.codes import KeyCodes, KeyList
from onyx.flow.groups.getters import KeyGetter, naming
from onyx.flow.leaves import Leaves, apply_function, apply_to_columns, of_some
from onyx.flow.routed import LapLimit, Refused, Routed
from onyx.flow.routing import route_batch, route_whole
from onyx.flow.segment import (
    BadRecord,
    JoinRefusal,
    Refusal,
    RetriesExhausted,
    SegmentFailure,
)
from onyx.functions.retry import Retry
from onyx.functions.returning import Returned, collecting
from onyx.keystate.coded import GroupKeys, Keyed
from onyx.ledger.returns import Trees
from onyx.model.job import CatalogEntry
from onyx.program.failure import Failure, blamed
from onyx.program.outcomes import (
    NOBODY,
    Answering,
    error_line,
    handling_of,
    notes_of,
    notes_of_retries,
    trees_of,
)
from onyx.program.phases import Phase
from onyx.program.program import Program
from onyx.telemetry.catalog import ANSWERED, DEAD_LETTERS, UNMATCHED, WITHOUT_ROW


class BatchWork(msgspec.Struct):
    """A batch, and what each step of the program has added to it."""

    batch: Batch | None = None
    leaves: Leaves | None = None
    """What the function has made of the batch."""
    groups: Keyed | None = None
    """Group keys of the segments of the batch, where it has a state."""
    seen: Any = None
    """What an operator has seen of the leaves, for itself."""
    routed: Routed | None = None
    """Where everything goes, and what has failed."""
    made: list[tuple[int, Segments]] = field(default_factory=list)
    """What an operator has made in place of leaves, with its key groups: sent when what it has
    changed is durable."""
    made_of: dict[int, list[int]] = field(default_factory=dict)
    """By shard, the index of the segment of the batch that each of them was made of, where that is
    of use to somebody."""
    left: Batch | None = None
    """What an operator with an inbox has left of the batch; it is no part of the batch any more."""
    returned: list[Returned] = field(default_factory=list)
    """What the function gives back for segments of the batch."""
    own: bool = False
    """In a stage of Spark, whether the batch is of its result, and not of what came to it."""

    @property
    def results(self) -> int:
        """How many segments the function has made."""
        leaves = 0 if self.leaves is None else len(self.leaves)
        return leaves + sum(len(segments) for _, segments in self.made)

    @property
    def made_as_given(self) -> pa.RecordBatch | list[Segment]:
        """What has been made, as hooks have it."""
        made = [segments for _, segments in self.made]
        return as_given(joined(made)) if made else []


# --- what the function makes of it --------------------------------------------------------------

FunctionResult = tuple[Leaves, list[Returned]]
"""What a function makes of a batch, and gives back for it."""


def apply(program: Program, work: BatchWork, examined: bool) -> None:
    """Call the function over the batch, unless the leaves are there already.

    Args:
        examined: every segment of the batch can travel between tasks.
    """
    batch = work.batch
    if batch is None:
        return
    work.groups = read_groups(program, batch)
    if work.leaves is not None:
        return
    leaves, work.returned = _leaves(program, batch)
    # What cannot travel between tasks has failed. Of columns, the rows that cannot are bad.
    own = program.fn is not None or program.join is not None
    travels = not own and (examined or format_of(batch.segments).checked_when_read)
    work.leaves = leaves if travels else refuse(leaves)
    if program.observed:
        program.event["results"] = as_given(work.leaves.segments)


def _leaves(program: Program, batch: Batch) -> FunctionResult:
    """What is made of a batch. Bad records have failed, and the function does not get them."""
    segments = batch.segments
    if not batch.bad:
        return _made(program, segments)
    kept = np.delete(np.arange(len(batch)), [index for index, _ in batch.bad])
    leaves, returned = _made(program, take(segments, kept))
    return of_some(leaves, kept, batch.bad), _at(returned, kept)


def _made(program: Program, segments: Segments) -> FunctionResult:
    fitting, kept, failures = fit(program, segments)
    return _of_kept(_joined(program, fitting), kept, failures)


def _joined(program: Program, segments: Segments) -> FunctionResult:
    """What the function makes of segments with what they get from a table."""
    if program.join is None:
        return _returned(program, segments)
    joined, kept, failures, missed = program.join.of(segments)
    if missed:
        program.metrics.add(WITHOUT_ROW, missed)
    return _of_kept(_returned(program, joined), kept, failures)


def _returned(program: Program, segments: Segments) -> FunctionResult:
    fn, params = program.fn, program.event["params"]
    if fn is None:
        return Leaves(segments), []
    with collecting(program.job.ack_returns, len(segments), size_bytes) as returned:
        if program.takes == "arrow" and isinstance(segments, Columns):
            leaves = apply_to_columns(fn, params, segments)
        else:
            leaves = apply_function(fn, params, as_dicts(segments), program.entry.batch_fn)
    return leaves, returned


def _of_kept(
    made: FunctionResult, kept: Indices | None, failures: list[SegmentFailure]
) -> FunctionResult:
    """What is made of a batch of which only some segments were there to make something of."""
    if kept is None:
        return made
    leaves, returned = made
    return of_some(leaves, kept, failures), _at(returned, kept)


def _at(returned: list[Returned], indices: Indices) -> list[Returned]:
    """The values of some segments of a batch, with the indices of these in the batch."""
    return [each._replace(at=int(indices[each.at])) for each in returned]


# --- segments as the code of the task gets them -------------------------------------------------

Fit = tuple[Segments, Indices | None, list[SegmentFailure]]
"""Segments, their indices in the batch (None: all of it), and for each other segment its index and
why it does not fit."""


def fit(program: Program, segments: Segments) -> Fit:
    """The segments of a batch that the task's code is to get."""
    if program.takes == "arrow":
        return fit_columns(program, segments)
    if program.schema is None:
        return segments, None, []
    _, kept, failures = fit_columns(program, segments)
    return segments if kept is None else take(segments, kept), kept, failures


def fit_columns(program: Program, segments: Segments) -> Fitted:
    """Columns of those that the task's code is to get."""
    columns, kept, failures = as_columns(segments, program.schema)
    lacking = _lacking(columns, program.entry.required)
    if not lacking:
        return columns, kept, failures
    rows = np.arange(len(columns))
    indices = rows if kept is None else kept
    found = dict(failures) | {int(indices[row]): error for row, error in lacking.items()}
    there = np.delete(rows, list(lacking))
    return columns.take(there), indices[there], sorted(found.items(), key=_index)


def _lacking(columns: Columns, required: tuple[str, ...]) -> dict[int, Exception]:
    """The rows in which a key is missing or null that has to be there, each with the first one."""
    found: dict[int, Exception] = {}
    for key in required:
        column = columns.record_batch.column(key)
        if column.null_count:
            nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            error = Refusal(f"the segment has no {key!r}, which is required")
            found = dict.fromkeys(nulls.tolist(), error) | found
    return found


def _index(failure: SegmentFailure) -> int:
    return failure[0]


# --- what a state needs of a batch --------------------------------------------------------------

Seen = TypeVar("Seen")


def read_groups(program: Program, batch: Batch) -> Keyed | None:
    """The groups of a batch, before the function may change what it is given; None without."""
    its = program.operator
    if its is None:
        return None
    known = None if program.lifecycles.hooks else batch.keys  # hooks may have changed segments
    getter = its.key_of(batch.upstream)
    return groups_of(getter, its.group_keys, program.entry, batch.segments, known)


def groups_of(
    getter: KeyGetter | None,
    keys: GroupKeys,
    entry: CatalogEntry,
    segments: Segments,
    known: FoundKeys | None,
) -> Keyed | None:
    """The groups of segments as a task has them; None where it has no groups.

    Args:
        getter: reads the key of a segment; None without groups.
        keys: those that have come before.
        entry: of the task, for messages.
        known: their keys, if somebody has found them.
    """
    if getter is None:
        return None
    with naming(entry):
        read = format_of(segments).choose(_groups_of_dicts, _groups_of_columns)
        return read(segments, getter, keys, known)


def _groups_of_dicts(
    segments: list[Segment], key: KeyGetter, keys: GroupKeys, known: FoundKeys | None
) -> Keyed:
    return keys.of_list(known if isinstance(known, KeyList) else key.of_dicts(segments))


def _groups_of_columns(
    columns: Columns, key: KeyGetter, keys: GroupKeys, known: FoundKeys | None
) -> Keyed:
    return keys.of(known if isinstance(known, KeyCodes) else key.of_columns(columns))


def look_at_leaves(
    leaves: Leaves, segments: Segments, look: Callable[[Segments], Seen]
) -> Seen | None:
    """What is seen of the segments of leaves; None if some cannot be looked at: these are in
    `refusals` then."""
    try:
        return look(segments)
    except Exception:
        parents = range(len(segments)) if leaves.parents is None else leaves.parents.tolist()
        refused: dict[int, Exception] = {}
        for index, error in format_of(segments).bad(segments, look):
            refused.setdefault(parents[index], error)
        leaves.refusals = sorted(refused.items(), key=itemgetter(0))
        return None


# --- where its segments go ----------------------------------------------------------------------

MEND = "; mend it"
MEND_OR_ROUTE = (
    f"{MEND}, give the task a deadLetter, or route its exceptions with a flow condition that has "
    "thrownException: true"
)
"""What an output raises is no failure of one segment: nothing else can take it."""
NO_RETRY_LEFT = ", and the segment has been read again as often as it may"
NOT_READ_AGAIN = ", but its segments are not accounted for, so that nobody reads them again"


def route(
    program: Program, refused: Refused, work: BatchWork, answering: Answering = NOBODY
) -> None:
    """Route the leaves of the batch.

    Args:
        refused: finds what children cannot be sent. What may not go back once more is added.
        answering: says which segments requests have brought; what fails of these is the answer.

    Raises:
        Failure: a segment has failed, and nothing takes care of it.
    """
    batch, leaves = work.batch, work.leaves
    if batch is None or leaves is None:
        return
    loop_to, laps_max = program.entry.loop_to, program.entry.laps_max
    if loop_to is not None and laps_max is not None:
        refused = LapLimit(loop_to, laps_max, batch.laps, refused)
    routes = program.routes
    conditions = routes.conditions if work.own else routes.own_conditions
    work.routed = routed = _route_leaves(program, refused, conditions, batch, leaves, answering)
    first = program.first_failures
    if first is not None and first.counts and not answering.any:
        letters = routed.letters
        others = len(batch) - len(letters) - len(routed.retries)
        first.saw(len(letters), others, lambda: _failure(program, batch, leaves, letters[:1]))


def route_emitted(
    program: Program,
    refused: Refused,
    batch: Batch,
    child: str | None,
    answering: Answering = NOBODY,
) -> Routed:
    """Route what triggers have emitted, or what is late: to this child, if it is given.

    Raises:
        Failure: as `route`.
    """
    conditions = program.routes.conditions
    if child is not None:
        conditions = (conditions or everything_to(())).of_exceptions(frozenset((child,)))
    leaves = Leaves(batch.segments)
    return _route_leaves(program, refused, conditions, batch, leaves, answering)


def _route_leaves(
    program: Program,
    refused: Refused,
    conditions: Conditions | None,
    batch: Batch,
    leaves: Leaves,
    answering: Answering,
) -> Routed:
    """Route the leaves of a batch.

    Args:
        refused, answering: as in `route`.
        conditions: of the task; None: everything goes to all children.

    Raises:
        Failure: a segment has failed, and nothing takes care of it.
    """
    routes, children, event = program.routes, program.routes.children, program.event
    routed = route_whole(conditions, children, leaves, refused)
    if routed is None:
        handling = handling_of(program, refused, batch, answering)
        routed = route_batch(conditions, children, event, batch.segments, leaves, handling)
        if routed.failures:
            _answer_or_raise(program, batch, leaves, routed.failures, answering)
        if routed.letters:
            program.metrics.add(DEAD_LETTERS, len(routed.letters))
    # What comes to a task whose own segments go nowhere (a reduce task) is not meant to match.
    goes_on = conditions is not routes.own_conditions or conditions is routes.conditions
    if goes_on and len(routed.unmatched):
        _count_unmatched(program, conditions, leaves, routed)
    if answering.any and batch.roots is not None:
        routed.notes = notes_of(program, answering, batch, leaves, routed)
        routed.retry_notes = notes_of_retries(program, answering, batch, routed)
    return routed


def _answer_or_raise(
    program: Program,
    batch: Batch,
    leaves: Leaves,
    failures: list[SegmentFailure],
    answering: Answering,
) -> None:
    """What fails of requests is their answer, unless a hook of the task decides about exceptions;
    anything else is a failure of the task."""
    mine: list[bool] = []
    if answering.any and batch.roots is not None:
        indices = np.array([index for index, _ in failures], dtype=np.intp)
        mine = answering.among(taken(batch.roots, indices)).tolist()
    others = [each for each, is_mine in zip(failures, mine, strict=False) if not is_mine]
    if not mine or others:
        raise _failure(program, batch, leaves, others or failures)
    _count_answered(program, _failure(program, batch, leaves, failures), len(failures))


def answer_or_raise(program: Program, batch: Batch, routed: Routed, error: Exception) -> None:
    """What the plugin of an output cannot write of a request is its answer, unless a hook of the
    task decides about exceptions.

    Args:
        batch: one segment, of a request.
    """
    routed.failures = [(0, error)]
    detail = blamed(_maker(program.entry), error)
    failure = Failure(Phase.WRITE_BATCH.value, error, detail, 1, segment_at(batch.segments, 0))
    _count_answered(program, failure)


def notes_of_refused(
    program: Program, answering: Answering, roots: Numbers | None, error: Exception, kept: bool
) -> Trees:
    """What is said, by root, of segments that the plugin of an output had taken and cannot write.

    Args:
        roots: of the segments, each once; None: nobody accounts for them.
        kept: the plugin keeps them as dead letters.

    Raises:
        Failure: not all are of requests, or a hook of the task decides about exceptions; and they
            are not kept.
    """
    mine: list[int] = []
    if answering.any and roots is not None:
        mine = array_of(roots)[answering.among(roots)].tolist()
    if not kept:
        many = 1 if roots is None else len(roots)
        phase, detail = Phase.WRITE_BATCH.value, blamed(_maker(program.entry), error)
        failure = Failure(phase, error, detail, many)
        if len(mine) < many:
            raise failure
        _count_answered(program, failure, many)
    return trees_of(program, mine, error, "dead_letters" if kept else "failed")


def _count_answered(program: Program, failure: Failure, many: int = 1) -> None:
    if program.lifecycles.decides(program.event, f"lifecycle/{failure.phase}", failure.error):
        raise failure
    program.metrics.add(ANSWERED, many)
    program.metrics.note(ANSWERED, lambda: error_line(program, failure.error))


def _count_unmatched(
    program: Program, conditions: Conditions | None, leaves: Leaves, routed: Routed
) -> None:
    """Segments go nowhere: conditions may mean that, or may have a key misspelt."""
    first = int(routed.unmatched[0])
    program.metrics.add(UNMATCHED, len(routed.unmatched))
    if conditions is not None:
        asked = conditions
        program.metrics.note(UNMATCHED, lambda: lacking(asked, segment_at(leaves.segments, first)))


def _maker(entry: CatalogEntry) -> str:
    """What makes the leaves of a task, for people."""
    if entry.join is not None:
        return entry.fn or f"join with {entry.join.table or entry.join.state}"
    if entry.maker is None and entry.plugin is None:
        return f"{entry.type} {entry.name}"
    return entry.maker or f"plugin {entry.plugin}"


def _failure(
    program: Program, batch: Batch, leaves: Leaves, failures: list[SegmentFailure]
) -> Failure:
    """The first failure that nothing took care of, with who raised it, in the phase of that."""
    (index, error), many = failures[0], len(failures)
    if isinstance(error, BadRecord):
        phase, detail = Phase.READ_BATCH, str(error)
    elif isinstance(error, JoinRefusal):
        phase, detail = Phase.APPLY_FN, str(error)
    elif any(error is raised for _, raised in leaves.failures):
        maker = _maker(program.entry)
        poison = isinstance(error, PoisonSegment)
        phase, detail = Phase.APPLY_FN, str(error) if poison else blamed(maker, error)
        if isinstance(error, Retry):
            detail += NO_RETRY_LEFT if batch.roots is not None else NOT_READ_AGAIN
    elif any(error is refused for _, refused in leaves.refusals):
        phase, detail = Phase.ASSIGN_WINDOWS, f"windows of {program.task}: {error}"
    elif isinstance(error, Refusal | RetriesExhausted | SegmentError):
        phase, detail = Phase.ROUTE, str(error)
    else:
        phase, detail = Phase.ROUTE, blamed("a flow condition", error)
    if many > 1:
        detail += f" ({many} segments of the batch failed)"
    routed = program.entry.type == "output" or program.entry.dead_letter is not None
    if phase in (Phase.READ_BATCH, Phase.APPLY_FN):
        detail += MEND if routed else MEND_OR_ROUTE
    elif not routed:
        detail += f"; or give task {program.task} a deadLetter, which takes such segments"
    segment = segment_at(batch.segments, index)
    return Failure(phase.value, error, detail, many, segment, index=index)
