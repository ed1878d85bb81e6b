"""Dead letters as they lie in a folder or a bucket, read one by one: JSON lines and Parquet,
whoever has written them. Other places are in `elsewhere`.

What is in such a folder is not trusted. A row that is no letter is counted and left, because a
folder may hold other files; a part that cannot be read is an error with its name. Memory holds a
piece of one part at a time.

Letters are chosen here as well, and each gets its number (`key`): of job, task and id, so that a
letter which lies in two places, as outputs at least once may leave it, is one. A letter without an
id has only its place. Numbers have 64 bits, as ids have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from onyx.base.structs import UNREADABLE, prepared
from onyx.codec.refusals import refusal
from onyx.errors import SegmentError, UserError
from onyx.flow.columns.record_batch import shown_dicts
from onyx.flow.dead_letters import redriven
from onyx.flow.segment import Segment, UndecodedRecord
from onyx.plugins.files.byte_sources import FileBytes
from onyx.plugins.files.parquet_reader import ParquetRows
from onyx.plugins.parts.folders import SUFFIXES
from onyx.storage.files import InputFiles
from onyx.storage.interface import Location, Purpose
from onyx.storage.opening import location_of

READ_BYTES = 1_048_576
LETTER_BYTES_MAX = 2_097_152
"""A row beyond that is no letter: they have a quarter of a megabyte and what is around it."""
PARQUET_ROWS = 1_024
KEPT = "marks of dead letters cannot be kept in"
_PARQUET = ".parquet"


@prepared
class WrittenLetter(msgspec.Struct, frozen=True):
    """A letter as it was written (`flow.dead_letters`)."""

    error: dict[str, Any]
    job: str
    task: str
    time: str
    segment: dict[str, Any]
    tries: int = 1
    id: str = ""
    types: str = ""

    @property
    def message(self) -> str:
        """Type and message of the error."""
        return f"{self.error.get('type', '')}: {self.error.get('message', '')}"

    @property
    def kind(self) -> str:
        """Which error it is: its type, and the line of the user's code. Messages may all differ."""
        line = self.error.get("line")
        return f"{self.error.get('type', '')}{f' ({line})' if line else ''}"


_line = msgspec.json.Decoder(WrittenLetter)


class StoredLetter(NamedTuple):
    """A letter and where it is."""

    letter: WrittenLetter
    part: str
    row: int
    size_bytes: int

    @property
    def key(self) -> int:
        """The number of the letter."""
        one = self.letter
        return _number(*((one.job, one.task, one.id) if one.id else (self.part, str(self.row))))

    @property
    def print(self) -> int:
        """What letters of a task about equal segments have in common."""
        segment = msgspec.json.encode(self.letter.segment, enc_hook=repr, order="sorted")
        return _number(self.letter.task, segment.decode("utf-8", "replace"))

    def segment(self) -> Segment:
        """The segment as its task had it. Raises SegmentError: the letter does not have it."""
        made = redriven(self.letter.segment, self.letter.types)
        wrong = refusal(made)
        if wrong is not None:
            raise SegmentError(str(wrong))
        return made


class LetterPlace(Protocol):
    """Where letters lie. `str` is its name for people."""

    @property
    def at(self) -> Location | None:
        """Where marks are kept, if nobody says; None: somebody has to."""
        ...

    @property
    def is_fixed(self) -> bool:
        """Whether a letter that was there is there for ever, unless somebody damages it."""
        ...

    def parts(self) -> list[str]:
        """The names of all parts that there are now, in order. From then on `letters` gives what
        there was now. Raises OnyxError: there is no such place, or it cannot be read."""
        ...

    def letters(self, part: str) -> Generator[StoredLetter | None, None, None]:
        """The letters of a part; None for what is none. Raises OnyxError: it cannot be read."""
        ...

    def close(self) -> None:
        """End connections."""
        ...


class LetterFolder:
    """The letters in a folder, in a bucket, or in one file."""

    is_fixed = True

    def __init__(self, location: str) -> None:
        """Nothing is read yet. Raises UserError: the URL leads nowhere."""
        folder, _, file = location.rpartition("/")
        self._file = file if file.endswith(SUFFIXES) else ""
        purpose = Purpose(KEPT, "--marks names another place")
        here = folder or ("/" if location.startswith("/") else ".")
        self.at: Location = location_of(here if self._file else location, purpose)
        self._files = InputFiles()

    def __str__(self) -> str:
        return f"{self.at}/{self._file}" if self._file else str(self.at)

    def parts(self) -> list[str]:
        """The names of all files with letters that there are now, in order.

        Raises:
            UserError: there is no such folder or file, or it may not be read.
        """
        entries = self.at.entries()
        if entries is None:
            raise UserError(
                f"{self} is not there, as far as this machine sees: nothing has failed yet, or "
                "--from names the place where the workers have written"
            )
        files = [each.name for each in entries if not each.is_folder]
        if self._file:
            if self._file not in files:
                raise UserError(f"{self} is not there: --from names a file or a folder of letters")
            return [self._file]
        return sorted(each for each in files if each[0] not in "._" and each.endswith(SUFFIXES))

    def letters(self, part: str) -> Generator[StoredLetter | None, None, None]:
        """The letters of a part; None for a row that is none.

        Raises:
            OnyxError: the part is gone or damaged, or cannot be read now.
        """
        path = self.at.path_of(part)
        rows = _rows(path, self._files) if part.endswith(_PARQUET) else _lines(path, self._files)
        for row, (letter, size_bytes) in enumerate(rows):
            yield None if letter is None else StoredLetter(letter, part, row, size_bytes)

    def close(self) -> None:
        """Nothing is open between two letters that somebody looks at."""


def _lines(path: str, files: InputFiles) -> Iterator[tuple[WrittenLetter | None, int]]:
    source = FileBytes(path, 0, files)
    try:
        rest, too_long = b"", False
        while data := source.read(READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.strip() or too_long:
                    yield (None if too_long else _decoded(line)), len(line)
                too_long = False
            if len(rest) > LETTER_BYTES_MAX:
                rest, too_long = b"", True
        if rest.strip() or too_long:
            yield (None if too_long else _decoded(rest)), len(rest)
    finally:
        source.close()


def _decoded(line: bytes) -> WrittenLetter | None:
    if len(line) > LETTER_BYTES_MAX:
        return None
    try:
        return _line.decode(line)
    except UNREADABLE:
        return None


def _rows(path: str, files: InputFiles) -> Iterator[tuple[WrittenLetter | None, int]]:
    rows = ParquetRows(path, 0, files)
    try:
        while (columns := rows.next(PARQUET_ROWS)) is not None:
            for each in shown_dicts(columns):
                yield _converted(each)
    finally:
        rows.close()


def stored(row: dict[str, Any], part: str, number: int) -> StoredLetter | None:
    """A letter that was read as a segment; None: it is none."""
    letter, size_bytes = _converted(row)
    return None if letter is None else StoredLetter(letter, part, number, size_bytes)


def _converted(row: dict[str, Any]) -> tuple[WrittenLetter | None, int]:
    try:
        size_bytes = len(msgspec.json.encode(row, enc_hook=repr))
        fits = size_bytes <= LETTER_BYTES_MAX
        return (msgspec.convert(row, WrittenLetter) if fits else None), size_bytes
    except UNREADABLE:
        return None, 0


def _number(*texts: str) -> int:
    data = "\0".join(texts).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


# --- which of them ------------------------------------------------------------------------------


class LetterChoice(msgspec.Struct, frozen=True):
    """Which letters somebody wants."""

    task: str
    jobs: frozenset[str] | None = None
    """None: of whichever job."""
    error: str = ""
    """What stands in type and message of the error."""
    since_ms: int | None = None
    until_ms: int | None = None
    ids: frozenset[str] = frozenset()
    undecoded: bool = False
    """Records too that an input could not decode: segments with their text under `_raw`."""

    def why_not(self, letter: WrittenLetter) -> str:
        """Why a letter is left; empty if it is wanted."""
        if letter.task != self.task:
            return f"of task {letter.task[:80]}"
        if self.jobs is not None and letter.job not in self.jobs:
            return "of other jobs"
        if not self.undecoded and letter.error.get("type") == UndecodedRecord.__name__:
            return "of records that were never segments (--into an input with a function for them)"
        if self.ids and letter.id not in self.ids:
            return "with other ids"
        if self.error and self.error not in letter.message:
            return "with other errors"
        if self.since_ms is not None or self.until_ms is not None:
            at_ms = moment_ms(letter.time)
            if at_ms is None or not (self.since_ms or 0) <= at_ms < (self.until_ms or 1 << 63):
                return "of other times"
        return ""


def moment_ms(text: str) -> int | None:
    """A time as letters and people write it, in milliseconds since 1970; without a zone, UTC."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1_000)
