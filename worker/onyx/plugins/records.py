"""Records: the seam between the bytes of a source and segments.

A format decodes a block of many records in as few calls as possible and says how many bytes it
used. Only a block with a bad record is decoded again, dicts record by record, and columns without
what they do not hold.

Invariant: what a record is depends on its own bytes, never on where a block begins. After a crash
blocks begin elsewhere, and positions must not move.
"""

from __future__ import annotations

from typing import Protocol

from onyx.codec.refusals import refusal
from onyx.errors import UserError
from onyx.flow.batch import Read
from onyx.flow.segment import ERROR, RAW, Segment

BOM = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, at the start of some files; not part of the first record."""
RAW_CHARACTERS_MAX = 65_536
"""The length of a bad record, kept in its segment."""
RECORD = "record {} (counted from 0)"
QUOTED_CHARACTERS_MAX = 200
"""The length of a bad record, shown in an error."""


class Records(Protocol):
    """A text format."""

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[Read, int]:
        """The segments of the whole records at the start of `data`, and the bytes that they take.
        A format of columns gives dicts for records that columns do not hold.

        Args:
            data: bytes that begin with a record.
            first: position of that record.
            at_end: nothing follows `data`; all of it is used.
        """
        ...


class BadRecords:
    """Handles a record that cannot be decoded: an error, or a segment that describes it."""

    def __init__(self, where: str, keep: bool, which: str = RECORD, mend: str = "file") -> None:
        """
        Args:
            where: task and file, for errors.
            keep: return segments instead of raising errors.
            which: describes the record, with `{}` for its position or id.
            mend: what the user has to mend.
        """
        self._where = where
        self._keep = keep
        self._which = which
        self._mend = mend
        self.kept = 0
        """Segments given in place of bad records."""
        self.reason = ""
        """Why the last one was bad."""

    def segment(self, position: int | str, reason: str, raw: bytes | str) -> Segment:
        """The segment in place of a bad record, which a flow condition can route.

        Raises:
            UserError: bad records are not kept.
        """
        text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
        if self._keep:
            self.kept += 1
            self.reason = reason
            return {ERROR: reason, RAW: text[:RAW_CHARACTERS_MAX]}
        raise UserError(
            f"{self._where}: {self._which.format(position)}: {reason}: "
            f"{text[:QUOTED_CHARACTERS_MAX]!r}; mend the {self._mend}, or set onBadRecord: "
            "deadLetter to go on without such records"
        )


def reason_of(segment: Segment) -> str:
    """Why a decoded record cannot be sent to another task; empty if it can."""
    error = refusal(segment)
    return "" if error is None else str(error)


def whole_lines(data: bytes, at_end: bool) -> bytes:
    """The part of `data` that ends with the last newline; all of it at the end of the file."""
    cut = len(data) if at_end else data.rfind(b"\n") + 1
    return data if cut == len(data) else data[:cut]
