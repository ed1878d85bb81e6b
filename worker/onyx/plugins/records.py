"""Records: the seam between the bytes of a file and segments.

A format is a function from bytes to segments that says how many bytes it used. It gets blocks of
many records and decodes each in as few calls as possible; only when a block turns out to hold
something wrong is it looked at record by record. What a record is must depend on its own bytes and
not on where blocks begin, because after a crash they begin elsewhere.
"""

from __future__ import annotations

from typing import Protocol

from onyx.codec.refusals import refusal
from onyx.errors import UserError
from onyx.flow.batch import Segment

BOM = b"\xef\xbb\xbf"
"""Of UTF-8, at the start of some files; not part of the first record."""
RAW_CHARACTERS_MAX = 65_536
"""Of a bad record, kept in its segment."""
QUOTED_CHARACTERS_MAX = 200
"""Of a bad record, shown in an error."""


class Records(Protocol):
    """A text format."""

    def decode(self, data: bytes, first: int, at_end: bool) -> tuple[list[Segment], int]:
        """The segments of the whole records at the start of `data`, and the bytes that they take.

        Args:
            data: bytes that begin with a record.
            first: position of that record.
            at_end: nothing follows `data`; all of it is used.
        """
        ...


class BadRecords:
    """What becomes of a record that cannot be decoded: an error, or a segment that says so."""

    def __init__(
        self, where: str, keep: bool, which: str = "record {} (counted from 0)", mend: str = "file"
    ) -> None:
        """`where` names task and file in errors; `keep` makes segments instead. `which` says which
        record of the source it is, with `{}` for its position; `mend`, what has to be mended."""
        self._where = where
        self._keep = keep
        self._which = which
        self._mend = mend

    def segment(self, position: int, reason: str, raw: bytes | str) -> Segment:
        """The segment that stands for a bad record, so that a flow condition can route it.

        Raises:
            UserError: bad records are not kept.
        """
        text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
        if self._keep:
            return {"_error": reason, "_raw": text[:RAW_CHARACTERS_MAX]}
        raise UserError(
            f"{self._where}: {self._which.format(position)}: {reason}: "
            f"{text[:QUOTED_CHARACTERS_MAX]!r}; mend the {self._mend}, or set onBadRecord: segment "
            "and route segments that have _error by a flow condition"
        )


def reason_of(segment: Segment) -> str:
    """Why a record that was decoded is a bad one all the same: it cannot travel to another task.
    Empty if it can."""
    error = refusal(segment)
    return "" if error is None else str(error)


def whole_lines(data: bytes, at_end: bool) -> bytes:
    """The part of `data` that ends with the last newline; all of it at the end of the file."""
    cut = len(data) if at_end else data.rfind(b"\n") + 1
    return data if cut == len(data) else data[:cut]
