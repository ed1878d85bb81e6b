"""What becomes of the segments of a batch, as whoever sent them in a request hears it.

Only what did not simply go on is said, so a batch in which nothing fails costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from onyx.base.runs import taken
from onyx.flow.batch import Batch
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Routed
from onyx.flow.segment_failure import SegmentFailure
from onyx.ledger.outcomes import UNMATCHED_PART, FailedSegment, Outcomes, retried_part
from onyx.ledger.returns import OUTCOMES, RETRIED, Part, Parts, Trees, add_tree, put_together
from onyx.program.answering import Answering
from onyx.program.handling import error_line
from onyx.program.program import Program

_Field = Literal["failed", "dead_letters", "exceptions"]
Notes = dict[int, Parts]
"""Parts for trees, by the index in the batch of the segment that they are about."""


def notes_of(
    program: Program, answering: Answering, batch: Batch, leaves: Leaves, routed: Routed
) -> Notes:
    """What is said of a batch that has been routed, before its acks."""
    notes: Notes = {}
    assert batch.roots is not None, "requests are accounted for"

    def say(failures: Iterable[SegmentFailure], field: _Field) -> None:
        for index, error in failures:
            one = _outcome(program, error, field)
            put_together(notes.setdefault(index, {}), [(OUTCOMES, one)])

    say(routed.failures, "failed")
    say(_asked(answering, batch, routed.letters), "dead_letters")
    say(_asked(answering, batch, routed.excepted), "exceptions")
    if len(routed.unmatched):
        parents = routed.unmatched
        if leaves.parents is not None:
            parents = leaves.parents[parents]
        for index in parents[answering.among(taken(batch.roots, parents))].tolist():
            put_together(notes.setdefault(index, {}), [(OUTCOMES, UNMATCHED_PART)])
    return notes


def trees_of(program: Program, roots: Sequence[int], error: Exception, field: _Field) -> Trees:
    """What is said of the trees of segments that met with the same."""
    trees: Trees = {}
    for root in roots:
        add_tree(trees, root, {OUTCOMES: _outcome(program, error, field)})
    return trees


def _outcome(program: Program, error: Exception, field: _Field) -> Part:
    line = error_line(program, error)
    named = (FailedSegment(program.task, line),) if field == "failed" else ()
    one = Outcomes(**{field: 1}, first_error=f"{program.task}: {line}", failures=named)
    return one.part()


def notes_of_retries(program: Program, answering: Answering, batch: Batch, routed: Routed) -> Notes:
    """Why segments of a batch are to be read again."""
    failures = _asked(answering, batch, list(routed.retry_errors.items()))
    return {
        index: {RETRIED: retried_part(f"{program.task}: {error_line(program, error)}")}
        for index, error in failures
        if index in routed.retries
    }


def _asked(
    answering: Answering, batch: Batch, failures: list[SegmentFailure]
) -> list[SegmentFailure]:
    """The failures of segments that a request has brought."""
    if not failures or batch.roots is None:
        return []
    indices = np.array([index for index, _ in failures], dtype=np.intp)
    mine = answering.among(taken(batch.roots, indices)).tolist()
    return [each for each, is_mine in zip(failures, mine, strict=True) if is_mine]
