"""What went wrong in a task, told for the person who must act.

A failure is decided where it surfaces, but told as of the phase in which it happened: exceptions of
the user's function are gathered for a whole batch and surface when the batch is routed.
"""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import Any

from onyx.errors import OnyxError, describe, message_of
from onyx.ids import JobId, PeerId, TaskName

TRACEBACK_CHARACTERS_MAX = 8_000


class Failure(Exception):
    """`error` happened in `phase`, to so many segments; `detail` says it in one sentence."""

    def __init__(self, phase: str, error: Exception, detail: str = "", segments: int = 1) -> None:
        self.segments = segments
        self.phase = phase
        self.error = error
        self.detail = detail or describe(error)
        super().__init__(self.detail)


def blamed(who: str, error: BaseException) -> str:
    """What came of the user's `who`: what it raised and where, or what Onyx has to say of it."""
    if isinstance(error, OnyxError):
        return f"{who}: {error}"
    return f"{who} raised {describe(error)}{place(error)}"


def place(error: BaseException) -> str:
    """Where in the user's code an exception came from, as ` (shop.py, line 3)`; no more than that,
    since a traceback can show what is in a segment."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not frame.f_globals.get("__name__", "").startswith("onyx."):
            return f" ({PurePath(frame.f_code.co_filename).name}, line {line})"
    return ""


def report(job: JobId, task: TaskName, peer: PeerId, failure: Failure) -> dict[str, Any]:
    """What is stored beside the log: no segment contents but what their own exception says."""
    error = failure.error
    return {
        "job": job,
        "task": task,
        "peer": peer,
        "phase": failure.phase,
        "type": type(error).__name__,
        "message": message_of(error),
        "detail": failure.detail,
        "traceback": _traceback(error)[-TRACEBACK_CHARACTERS_MAX:],
    }


def _traceback(error: Exception) -> str:
    """Formatting calls methods of the user's exceptions; a report is there whatever they do."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as again:
        return f"(no traceback: formatting it raised {type(again).__name__})"
