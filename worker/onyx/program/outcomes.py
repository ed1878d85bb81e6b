"""What becomes of the segments of a batch that fail or go nowhere: the last try, dead letters, and
what whoever sent them in a request hears of it.

Only what did not simply go on is said, so a batch in which nothing fails costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import numpy as np

from onyx.base.runs import Numbers, taken
from onyx.codec.refusals import refusal
from onyx.errors import OnyxError, describe
from onyx.flow.batch import Batch, Mask, Segment, segment_at
from onyx.flow.dead_letters import Origin, dead_letter, described
from onyx.flow.leaves import Leaves
from onyx.flow.routed import FailureHandling, Refused, Routed
from onyx.flow.segment import SegmentFailure
from onyx.ledger.lineage import is_final, tries_of
from onyx.ledger.outcomes import UNMATCHED_PART, FailedSegment, Outcomes, retried_part
from onyx.ledger.returns import OUTCOMES, RETRIED, Parts, ReturnPart, Trees, add_tree, put_together
from onyx.model.locations import HIDDEN
from onyx.program.failure import code_line, shown
from onyx.program.program import Program
from onyx.telemetry.catalog import DEAD_LETTERS

FIRST_CHARACTERS_MAX = 300
"""The length of an error, where it is one line among others."""

_Field = Literal["failed", "dead_letters", "exceptions"]

Notes = dict[int, Parts]
"""Parts for trees, by the index in the batch of the segment that they are about."""


# --- failures -----------------------------------------------------------------------------------


def handling_of(
    program: Program, refused: Refused, batch: Batch, answering: Answering
) -> FailureHandling:
    """What is done about the failures of a batch.

    Args:
        refused: finds what children cannot be sent.
        answering: says of which segments the first failure is the last.
    """
    roots, ids = batch.roots, batch.ids

    def exhausted(index: int) -> bool:
        if roots is None:
            return True
        root = int(roots[index])
        return is_final(root) or answering.at_once(root)

    def letter(index: int, error: Exception) -> Segment:
        program.metrics.note(DEAD_LETTERS, lambda: error_line(program, error))
        root = None if roots is None else int(roots[index])
        return dead_letter(
            program.job_id,
            program.task,
            segment_at(batch.segments, index),
            described(error, code_line(error).strip(" ()")),
            1 if root is None else tries_of(root),
            program.clock.wall_ms(),
            "" if ids is None else f"{int(ids[index]):016x}",
            None if root is None else answering.origin(root),
        )

    dead_letters_to = program.entry.dead_letter
    return FailureHandling(dead_letters_to, letter, exhausted, refused, refusal)


def error_line(program: Program, error: Exception) -> str:
    """An error in one line. What the user's function says may repeat what is in a segment."""
    may_say = program.report_values or isinstance(error, OnyxError)
    said = describe(error) if may_say else f"{type(error).__name__}: {HIDDEN}"
    return shown(" ".join(said.split()), FIRST_CHARACTERS_MAX) + code_line(error)


# --- which trees begin with a request -----------------------------------------------------------


class Answering(Protocol):
    """What a task asks about the roots of its batches."""

    @property
    def any(self) -> bool:
        """Whether any tree of the job is one of a request."""
        ...

    def among(self, roots: Numbers) -> Mask:
        """Which of these roots are of requests."""
        ...

    def at_once(self, root: int) -> bool:
        """Whether the first failure of a segment is its last (`onFailure: answer`)."""
        ...

    def origin(self, root: int) -> Origin | None:
        """The input, partition and position of a root, where they are known."""
        ...


class Nobody:
    """Nobody has sent a request: what fails ends the job."""

    any = False

    def among(self, roots: Numbers) -> Mask:
        """None of them."""
        return np.zeros(len(roots), np.bool_)

    def at_once(self, root: int) -> bool:
        """Never."""
        return False

    def origin(self, root: int) -> Origin | None:
        """Nobody knows."""
        return None


NOBODY = Nobody()


# --- what a request is answered -----------------------------------------------------------------


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


def notes_of_retries(program: Program, answering: Answering, batch: Batch, routed: Routed) -> Notes:
    """Why segments of a batch are to be read again."""
    failures = _asked(answering, batch, list(routed.retry_errors.items()))
    return {
        index: {RETRIED: retried_part(f"{program.task}: {error_line(program, error)}")}
        for index, error in failures
        if index in routed.retries
    }


def trees_of(program: Program, roots: Sequence[int], error: Exception, field: _Field) -> Trees:
    """What is said of the trees of segments that met with the same."""
    trees: Trees = {}
    for root in roots:
        add_tree(trees, root, {OUTCOMES: _outcome(program, error, field)})
    return trees


def _outcome(program: Program, error: Exception, field: _Field) -> ReturnPart:
    line = error_line(program, error)
    named = (FailedSegment(program.task, line),) if field == "failed" else ()
    one = Outcomes(**{field: 1}, first_error=f"{program.task}: {line}", failures=named)
    return one.part()


def _asked(
    answering: Answering, batch: Batch, failures: list[SegmentFailure]
) -> list[SegmentFailure]:
    """The failures of segments that a request has brought."""
    if not failures or batch.roots is None:
        return []
    indices = np.array([index for index, _ in failures], dtype=np.intp)
    mine = answering.among(taken(batch.roots, indices)).tolist()
    return [each for each, is_mine in zip(failures, mine, strict=True) if is_mine]
