"""The report of what killed a job (`program.failure.report`), as text for people.

For the command line and for the status of an OnyxJob alike. Reports come from ZooKeeper, and what
is in them from the user's code: nothing in them can move the cursor of a terminal or forge a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec.structs import asdict

from onyx.reports.stalls import Stall


def sentence(report: Mapping[str, Any]) -> str:
    """Which task failed where, and how, in one line."""
    detail = " ".join(_lines(report.get("detail")))
    return _printable(f"task {report.get('task')}, {report.get('phase')}: {detail}")


def details(report: Mapping[str, Any]) -> list[str]:
    """Frames of the user's code, what the error came from, and the segment; a line each."""
    return list(map(_printable, _details(report)))


def whole(report: Mapping[str, Any]) -> str:
    """Both."""
    return "\n  ".join([sentence(report), *details(report)])


def stack(stall: Stall) -> list[str]:
    """Where the user's code is that does not come back."""
    frames = (frame_lines(asdict(each)) for each in stall.stack)
    head = f"task {stall.task} (peer {stall.peer[:8]}) is at"
    return [_printable(line) for line in (head, *chain.from_iterable(frames))]


def _details(report: Mapping[str, Any]) -> Iterator[str]:
    for number, error in enumerate(report.get("errors", ())):
        if number:
            first, *more = _lines(error.get("message")) or [""]
            said = f": {first}" if first else ""
            yield f"{error.get('relation')} {error.get('type')}{said}"
            yield from (f"    {line}" for line in more)
        for frame in error.get("frames", ()):
            yield from frame_lines(frame)
    if segment := " ".join(_lines(report.get("segment"))):
        yield f"segment: {segment}"


def frame_lines(frame: Mapping[str, Any]) -> Iterator[str]:
    """A frame of the code: file, line, function, and the line itself where it could be read."""
    code = " ".join(_lines(frame.get("code")))
    at = f"  at {frame.get('file')}:{frame.get('line')} in {frame.get('function')}"
    yield f"{at}: {code}" if code else at


def _lines(text: object) -> list[str]:
    return str(text or "").splitlines()


def _printable(line: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in line)
