"""What went wrong in a task, reported for the person who must act.

A failure is decided where it surfaces, but reported with the phase in which it happened: exceptions
of the user's function are gathered for a whole batch and surface when the batch is routed.
"""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import Any

from onyx.errors import OnyxError, describe, message_of
from onyx.flow.batch import Segment
from onyx.ids import JobId, PeerId, TaskName
from onyx.model.locations import HIDDEN
from onyx.program.exceptions import chain, is_ours, shown, shown_segment, whole_traceback

DETAIL_CHARACTERS_MAX = 4_000


class Failure(Exception):
    """`error` happened in `phase`, to so many segments; `detail` says it in one sentence."""

    def __init__(
        self,
        phase: str,
        error: Exception,
        detail: str = "",
        segments: int = 1,
        segment: Segment | None = None,
        report: dict[str, Any] | None = None,
    ) -> None:
        """`segment`: one for which it was raised, if that is known. `report`: of where it happened,
        if that was another process."""
        self.report = report
        self.segments = segments
        self.segment = segment
        self.phase = phase
        self.error = error
        self.detail = detail or describe(error)
        super().__init__(self.detail)


def blamed(who: str, error: BaseException) -> str:
    """What came of the user's `who`: what it raised and where, or what Onyx has to say of it."""
    if isinstance(error, OnyxError):
        return f"{who}: {error}"
    return f"{who} raised {describe(error)}{code_line(error)}"


def code_line(error: BaseException) -> str:
    """Where in the user's code an exception came from, as ` (shop.py, line 3)`; no more than that,
    since a traceback can show what is in a segment."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not is_ours(frame.f_globals):
            return f" ({PurePath(frame.f_code.co_filename).name}, line {line})"
    return ""


def report(
    job: JobId, task: TaskName, peer: PeerId, failure: Failure, values: bool
) -> dict[str, Any]:
    """What is stored beside the log, for people (`failure_text`) and programs.

    Args:
        values: whether what is in a segment may be shown. If not, neither may what exceptions of
            the user's functions say, which often repeat it.
    """
    error, said = failure.error, message_of(failure.error)
    detail, errors = failure.detail, chain(error)
    segment = "" if failure.segment is None else shown_segment(failure.segment, values)
    if not values:
        detail = (
            detail.replace(said, HIDDEN) if said and not isinstance(error, OnyxError) else detail
        )
        errors = [each | {"message": HIDDEN} for each in errors]
    return {
        "job": job,
        "task": task,
        "peer": peer,
        "phase": failure.phase,
        "type": type(error).__name__,
        "message": errors[0]["message"],
        "detail": shown(detail, DETAIL_CHARACTERS_MAX),
        "errors": errors,
        "segment": segment,
        "traceback": whole_traceback(error) if values else "",
    }
