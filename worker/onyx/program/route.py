"""Where the segments of a batch go, and what becomes of those that failed.

Everything that refuses a segment has reported it by now, or is asked here; `flow/routing` decides.
This is before the batch changes any state. Invariant: a segment that failed or is to be retried
leaves no trace in windows, or its replay would count twice or not at all.
"""

from __future__ import annotations

import numpy as np

from onyx.base.runs import Numbers, array_of, taken
from onyx.errors import PoisonSegment, SegmentError
from onyx.flow.batch import Batch, segment_at
from onyx.flow.conditions import Conditions, everything_to, lacking
from onyx.flow.leaves import Leaves
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
from onyx.ledger.returns import Trees
from onyx.model.job import CatalogEntry
from onyx.program.batch_work import BatchWork
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
from onyx.telemetry.catalog import ANSWERED, DEAD_LETTERS, UNMATCHED

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
    work.routed = _route_leaves(program, refused, conditions, batch, leaves, answering)


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
    if phase in (Phase.READ_BATCH, Phase.APPLY_FN):
        detail += MEND if program.entry.type == "output" else MEND_OR_ROUTE
    return Failure(phase.value, error, detail, many, segment_at(batch.segments, index))
