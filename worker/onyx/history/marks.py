"""The marks of collectors: how far the log was at which time. A document beside the log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onyx.base.structs import UNREADABLE
from onyx.history.limits import Mark, marked
from onyx.ids import Position
from onyx.log.interface import LogReader
from onyx.settings import HistorySettings

MARKS = "history/marks"
"""The document with the marks."""


def noted_marks(
    log: LogReader, version: Position, now_ms: int, settings: HistorySettings
) -> Sequence[Mark]:
    """The marks before now; one of now is noted, if the last one is not of just now.

    Args:
        version: how far the log is now.
    """
    document = log.get_document(MARKS)
    marks = [] if document is None else _marks(document.data)
    new = marked(marks, version, now_ms, settings)
    if not marks or new[-1].position > marks[-1].position:
        log.put_document(
            MARKS, msgspec.json.encode(new), None if document is None else document.version
        )
    return marks


def _marks(data: bytes) -> list[Mark]:
    """None if they cannot be read: then everything counts as of now, and is kept for longer."""
    try:
        return [Mark(Position(p), ms) for p, ms in msgspec.json.decode(data, type=list[Mark])]
    except UNREADABLE:
        return []
