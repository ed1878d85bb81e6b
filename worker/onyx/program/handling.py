"""What a task does with the segments of a batch that fail: the last try, and dead letters."""

from __future__ import annotations

from onyx.codec.refusals import refusal
from onyx.errors import OnyxError, describe
from onyx.flow.batch import Batch, Segment, segment_at
from onyx.flow.dead_letters import dead_letter
from onyx.flow.handling import Handling, Refused
from onyx.ledger.lineage import is_final, tries_of
from onyx.model.locations import HIDDEN
from onyx.program.answering import Answering
from onyx.program.exceptions import shown
from onyx.program.failure import code_line
from onyx.program.program import Program
from onyx.telemetry.catalog import DEAD_LETTERS

FIRST_CHARACTERS_MAX = 300
"""The length of an error, where it is one line among others."""


def handling_of(program: Program, refused: Refused, batch: Batch, answering: Answering) -> Handling:
    """What is done about the failures of a batch.

    Args:
        refused: finds what children cannot be sent.
        answering: says of which segments the first failure is the last.
    """
    roots = batch.roots

    def exhausted(index: int) -> bool:
        if roots is None:
            return True
        root = int(roots[index])
        return is_final(root) or answering.at_once(root)

    def letter(index: int, error: Exception) -> Segment:
        program.metrics.note(DEAD_LETTERS, lambda: error_line(program, error))
        return dead_letter(
            program.job_id,
            program.task,
            segment_at(batch.segments, index),
            error,
            code_line(error).strip(" ()"),
            1 if roots is None else tries_of(int(roots[index])),
            program.clock.wall_ms(),
        )

    dead_letters_to = program.entry.dead_letter
    return Handling(dead_letters_to, letter, exhausted, refused, refusal)


def error_line(program: Program, error: Exception) -> str:
    """An error in one line. What the user's function says may repeat what is in a segment."""
    may_say = program.report_values or isinstance(error, OnyxError)
    said = describe(error) if may_say else f"{type(error).__name__}: {HIDDEN}"
    return shown(" ".join(said.split()), FIRST_CHARACTERS_MAX) + code_line(error)
