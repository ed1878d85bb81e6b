"""What becomes of the segments of a batch: where they go, and what is done about those that failed.

Everything that refuses a segment has reported it by now, or is asked here; `flow/routing` decides.
This is before the batch changes any state: a segment that failed or is to be retried must leave no
trace in windows, or its replay would count twice or not at all.
"""

from __future__ import annotations

from onyx.codec.refusals import refusal
from onyx.errors import PoisonSegment, SegmentError
from onyx.flow.apply import Leaves
from onyx.flow.batch import Batch, Segment
from onyx.flow.conditions import Conditions, everything_to
from onyx.flow.dead_letters import dead_letter
from onyx.flow.failing import Failure as SegmentFailure
from onyx.flow.failing import Handling, Refusal, RetriesExhausted
from onyx.flow.routed import Routed
from onyx.flow.routing import route_batch
from onyx.ledger.lineage import final_attempts, tries_of
from onyx.task.failures.failure import Failure, blamed, place
from onyx.task.phases.table import Kind, Phase
from onyx.task.task import Task

MEND = "; mend it"
MEND_OR_ROUTE = (
    f"{MEND}, give the task a deadLetter, or route its exceptions with a flow condition that has "
    "thrownException: true"
)
"""What an output raises is no failure of one segment: nothing else can take it."""


def decide(task: Task, batch: Batch, leaves: Leaves) -> Routed:
    """The verdict on a batch that the function has been applied to.

    Raises:
        Failure: a segment has failed, and nothing takes care of it.
    """
    return _route(task, task.static.own_conditions, batch, leaves)


def decide_emitted(task: Task, batch: Batch, child: str | None) -> Routed:
    """The same about what triggers have emitted, or what is late: for this child, if it is given.

    Raises:
        Failure: as `decide`.
    """
    conditions = task.static.conditions
    if child is not None:
        conditions = (conditions or everything_to(())).of_exceptions(frozenset((child,)))
    return _route(task, conditions, batch, Leaves(batch.segments))


def _route(task: Task, conditions: Conditions | None, batch: Batch, leaves: Leaves) -> Routed:
    static, handling = task.static, _handling(task, batch)
    children, event = static.children, static.event
    routed = route_batch(conditions, children, event, batch.segments, leaves, handling)
    if routed.failures:
        raise _failure(task, batch, leaves, routed.failures)
    if routed.letters:
        task.metrics.dead_letters(routed.letters)
    return routed


def _handling(task: Task, batch: Batch) -> Handling:
    static = task.static
    exhausted = None
    if static.retries and batch.roots is not None:
        exhausted = final_attempts(batch.roots)

    def letter(index: int, error: Exception) -> Segment:
        return dead_letter(
            task.job_id,
            task.name,
            batch.segments[index],
            error,
            place(error).strip(" ()"),
            1 if batch.roots is None else tries_of(int(batch.roots[index])),
            task.services.clock.wall_ms(),
        )

    return Handling(static.entry.dead_letter, letter, exhausted, task.live.refusals, refusal)


def _failure(task: Task, batch: Batch, leaves: Leaves, failures: list[SegmentFailure]) -> Failure:
    """The first of the failures that nothing took care of, told with who raised it, and of its
    phase."""
    (index, error), many = failures[0], len(failures)
    if any(error is raised for _, raised in leaves.failures):
        poison = isinstance(error, PoisonSegment)
        phase, detail = Phase.APPLY_FN, str(error) if poison else blamed(_maker(task), error)
    elif any(error is refused for _, refused in leaves.refusals):
        phase, detail = Phase.ASSIGN_WINDOWS, f"windows of {task.name}: {error}"
    elif isinstance(error, Refusal | RetriesExhausted | SegmentError):
        phase, detail = Phase.ROUTE, str(error)
    else:
        phase, detail = Phase.ROUTE, blamed("a flow condition", error)
    if many > 1:
        detail += f" ({many} segments of the batch failed)"
    if phase is Phase.APPLY_FN:
        detail += MEND if task.kind is Kind.OUTPUT else MEND_OR_ROUTE
    return Failure(phase.value, error, detail, many, batch.segments[index])


def _maker(task: Task) -> str:
    """What makes the segments of a task."""
    entry = task.static.entry
    return entry.fn or f"plugin {entry.plugin}"
