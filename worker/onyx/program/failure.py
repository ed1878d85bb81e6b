"""What went wrong in a task, reported for the person who must act.

A failure is decided where it surfaces, but reported with the phase in which it happened: exceptions
of the user's function are gathered for a whole batch and surface when the batch is routed.

A report is plain data of a bounded size: each error of the chain of an exception with the lines in
the user's code, and the segment for which it was raised. Lines of Onyx are left out: who has to
mend a function looks for their own. A chain is what Python prints (causes, what was being handled,
members of groups), outermost first. Everything here calls methods of the user's objects, which may
raise or return megabytes, and none of that does harm.
"""

from __future__ import annotations

import itertools
import linecache
import reprlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from types import FrameType
from typing import Any

from onyx.errors import OnyxError, describe, message_of
from onyx.flow.batch import Segment
from onyx.ids import JobId, PeerId, TaskName
from onyx.model.locations import HIDDEN, without_secrets

DETAIL_CHARACTERS_MAX = 4_000

ERRORS_MAX = 8

FRAMES_MAX = 8
"""The frames of one error, the innermost."""

CODE_CHARACTERS_MAX = 160

MESSAGE_CHARACTERS_MAX = 1_000

SEGMENT_CHARACTERS_MAX = 500

TRACEBACK_CHARACTERS_MAX = 8_000

_short = reprlib.Repr()

_short.maxdict = _short.maxlist = _short.maxtuple = _short.maxset = 20

_short.maxstring = _short.maxother = _short.maxlong = 80

_short.maxlevel = 4


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
        index: int = 0,
    ) -> None:
        """`segment`: one for which it was raised, if that is known, and `index` that of it in its
        batch. `report`: of where it happened, if that was another process."""
        self.report = report
        self.segments = segments
        self.segment = segment
        self.index = index
        self.phase = phase
        self.error = error
        self.detail = detail or describe(error)
        super().__init__(self.detail)


class FirstFailures:
    """Whether all of the first segments of a peer have failed: then something is wrong with the
    job, and not with single segments. Counted by batch, until one has not failed."""

    def __init__(self, most: int) -> None:
        """`most`: so many that fail are enough."""
        self._most = most
        self._first: Failure | None = None
        self.failed = 0
        """Segments that have failed; others there were none."""
        self.counts = True
        self.reported = False
        """Whether others know."""

    @property
    def are_enough(self) -> bool:
        """Whether so many have failed that somebody has to look."""
        return self.counts and self.failed >= self._most

    def saw(self, failed: int, others: int, failure: Callable[[], Failure]) -> None:
        """A batch had segments that failed, for good, and others, that did not.

        Args:
            failure: makes that of the first one.
        """
        if others:
            self.counts, self._first = False, None
        elif failed:
            self._first = self._first or failure()
            self.failed += failed

    def failure(self) -> Failure:
        """What ends the job."""
        first = self._first
        assert first is not None, "some have failed"
        detail = (
            f"all of the first {self.failed:,} segments have failed, so the job does not go on to "
            f"make dead letters of the rest: {first.detail}, or set firstFailuresMax: 0"
        )
        return Failure(first.phase, first.error, detail, self.failed, first.segment)


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


def without_values(report: Mapping[str, Any], shape: str) -> dict[str, Any]:
    """A report as `report` makes it where no values may be shown.

    Args:
        shape: of the segment, if it is known.
    """
    said = str(report.get("message", ""))
    detail = str(report.get("detail", ""))
    errors = [each | {"message": HIDDEN} for each in report.get("errors", ())]
    return {
        **report,
        "message": HIDDEN,
        "detail": detail.replace(said, HIDDEN) if said in detail and said else HIDDEN,
        "errors": errors,
        "segment": shape,
        "traceback": "",
    }


# --- what an exception says ---------------------------------------------------------------------


def chain(error: BaseException) -> list[dict[str, Any]]:
    """The error, then what it came from: `type`, `message`, `relation` to the one before, and
    `frames` of the user's code."""
    return [
        {
            "relation": relation,
            "type": type(each).__name__,
            "message": shown(message_of(each), MESSAGE_CHARACTERS_MAX),
            "frames": frames(each),
        }
        for relation, each in _walk(error)
    ]


def frames(error: BaseException) -> list[dict[str, Any]]:
    """Where in the user's code, and below it in what that calls; innermost last."""
    walked = traceback.walk_tb(error.__traceback__)
    not_before = itertools.dropwhile(lambda each: _is_pythons(each[0]), _not_ours(walked))
    lines = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in not_before]
    return [frame_of(*each) for each in lines[-FRAMES_MAX:]]


def _not_ours(walked: Iterable[tuple[FrameType, int]]) -> Iterator[tuple[FrameType, int]]:
    return (each for each in walked if not is_ours(each[0].f_globals))


def _is_pythons(frame: FrameType) -> bool:
    """Whether a frame is of the standard library: executors and readers that Onyx has called, if
    the user's code is not above them."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in sys.stdlib_module_names


def frames_of(frame: FrameType | None) -> list[dict[str, Any]]:
    """The frames of a thread that runs: its user's code down to where Onyx called it."""
    found: list[dict[str, Any]] = []
    while frame is not None and not is_ours(frame.f_globals) and len(found) < FRAMES_MAX:
        found.append(frame_of(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found[::-1]


def frame_of(file: str, line: int, function: str) -> dict[str, Any]:
    """One frame as data."""
    code = shown(linecache.getline(file, line).strip(), CODE_CHARACTERS_MAX)
    return {"file": file, "line": line, "function": function, "code": code}


def is_ours(names: Mapping[str, Any]) -> bool:
    """Whether the globals of a frame are those of a module of Onyx."""
    module = str(names.get("__name__", ""))
    return module == "onyx" or module.startswith("onyx.")


def shown_segment(segment: object, values: bool) -> str:
    """A segment, shortened; without `values` its keys and the types of what they hold."""
    try:
        if not values and isinstance(segment, dict):
            segment = {key: _Type(type(value).__name__) for key, value in segment.items()}
        elif not values:
            segment = _Type(type(segment).__name__)
        return shown(_short.repr(segment), SEGMENT_CHARACTERS_MAX)
    except BaseException as again:
        return f"(not shown: its repr raised {type(again).__name__})"


def whole_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, its end; for those who mend Onyx."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException as again:
        return f"(no traceback: formatting it raised {type(again).__name__})"
    return shown(text[-TRACEBACK_CHARACTERS_MAX:], TRACEBACK_CHARACTERS_MAX)


def shown(text: str, characters_max: int) -> str:
    """Text that may be stored and shown: no secrets of URLs, no halves of characters, shortened."""
    text = without_secrets(text).encode("utf-8", "replace").decode()
    return text if len(text) <= characters_max else f"{text[: characters_max - 3]}..."


class _Type(str):
    """Shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _walk(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Errors with what they are to the one before; each once, though chains can be circles."""
    waiting, seen = [("", error)], set[int]()
    while waiting and len(seen) < ERRORS_MAX:
        relation, each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield relation, each
        if isinstance(each, BaseExceptionGroup):
            waiting += [("one of several", member) for member in each.exceptions[:ERRORS_MAX]]
        if each.__cause__ is not None:
            waiting.append(("caused by", each.__cause__))
        elif isinstance(each.__context__, BaseException) and not each.__suppress_context__:
            waiting.append(("while handling", each.__context__))
