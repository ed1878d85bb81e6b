"""A bundle as a file: compressed text, a line of JSON each, as people and `zcat FILE | jq` read it.

    {"part": "head", "body": {"bundle": 1, "job": ..., ...}}
    {"part": "document", "name": "exception/<job>", "body": {"version": 0, "json": {...}}}
    {"part": "chunk", ...} {"part": "measures", ...} {"part": "worker", ...}
    {"part": "origin", "body": {"position": 41, "replica": {...}}}
    {"part": "entry", ...}                              as in the archive of the log
    {"part": "end", "body": {"notes": [...]}}

A bundle comes from strangers, so reading one is bounded, line by line, before anything is made of
it; it has no names that become paths, and nothing in it is called. A part that is not known is
passed over; a file of a newer version is refused. A zip was rejected: its directory alone may be
larger than all that is read here, and it has names of files.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from onyx.base.structs import UNREADABLE, prepared, stored
from onyx.errors import StateError, UserError, describe
from onyx.history.archive import ArchivedEntry, entry_of
from onyx.ids import Position
from onyx.log.interface import Document, Origin
from onyx.replica import canonical, machine
from onyx.replica.command import Entry
from onyx.reports.measures import Measures, WorkerDiagnostics

T = TypeVar("T")
VERSION = 1
BYTES_MAX = 134_217_728
"""All lines, before they are compressed."""
LINE_BYTES_MAX = 33_554_432
LINES_MAX = 200_000
NOTES_MAX = 1_000
WORKER_LINES_MAX = 10_000
"""Log lines of one worker, which gives some hundreds (`telemetry.logs`)."""


@prepared
class BundleHead(msgspec.Struct, frozen=True):
    """What a bundle is of."""

    bundle: int
    """Version of the format."""
    onyx: str
    """Version of Onyx that has written it."""
    tenancy: str
    job: str
    name: str
    at_ms: int
    """When it was made, in milliseconds since 1970."""
    values: bool
    """Whether it has what was in segments."""


@prepared
class BundleLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the file."""

    part: str
    body: msgspec.Raw
    name: str = ""
    """Which document, chunk or worker it is."""


@prepared
class BundledDocument(msgspec.Struct, frozen=True):
    """A document beside the log."""

    version: int
    json: msgspec.Raw


@prepared
class BundledOrigin(msgspec.Struct, frozen=True):
    """The replica before the first entry."""

    position: int
    replica: msgspec.Raw


@prepared
class BundleEnd(msgspec.Struct, frozen=True):
    """The last line, without which a file is cut off."""

    notes: tuple[str, ...]
    """What is missing, in words."""


class JobBundle(msgspec.Struct, frozen=True):
    """All that is in a file."""

    head: BundleHead
    origin: Origin
    entries: list[Entry] = msgspec.field(default_factory=list)
    documents: dict[str, Document] = msgspec.field(default_factory=dict)
    chunks: dict[str, bytes] = msgspec.field(default_factory=dict)
    measures: Measures = Measures()
    workers: dict[str, WorkerDiagnostics] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()


def line(part: str, body: object, name: str = "") -> BundleLine:
    """A line of a bundle."""
    return BundleLine(part, msgspec.Raw(msgspec.json.encode(body)), name)


def write(path: Path, lines: Iterable[BundleLine]) -> int:
    """Write a file that is there as a whole or not at all; how many bytes it has.

    Raises:
        UserError: it cannot be written, or would be larger than anybody reads.
    """
    written = 0
    try:
        held, temporary = tempfile.mkstemp(dir=path.parent, prefix=".onyx-bundle-")
        try:
            with os.fdopen(held, "wb") as file:
                with gzip.GzipFile(fileobj=file, mode="wb", filename="") as stream:
                    for each in lines:
                        data = msgspec.json.encode(each)
                        written += len(data) + 1
                        if len(data) > LINE_BYTES_MAX or written > BYTES_MAX:
                            raise UserError(
                                f"{path} would have more than {BYTES_MAX:,} bytes before it is "
                                f"compressed, or {LINE_BYTES_MAX:,} in {each.part} {each.name}"
                            )
                        stream.write(data + b"\n")
                size = file.tell()
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
    return size


def read(path: Path) -> JobBundle:
    """The bundle in a file.

    Raises:
        UserError: it cannot be read, is damaged, too large, or of a newer version.
    """
    try:
        if not path.is_file():
            raise UserError(f"{path} is no file: `onyx bundle JOB --output FILE` writes one")
        with gzip.open(path) as stream:
            return _read(path, stream)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read as a bundle: {error}") from error
    except (StateError, *UNREADABLE) as error:
        raise UserError(f"{path} is damaged, or no bundle: {error}") from error


def _read(path: Path, stream: gzip.GzipFile) -> JobBundle:
    lines = _lines(path, stream)
    first = next(lines, None)
    if first is None or first.part != "head":
        raise ValueError("it does not begin with what it is of")
    version = _read_as(first.body, _Version).bundle
    if version > VERSION:
        raise UserError(
            f"{path} is of version {version}, and this Onyx reads {VERSION}: use the Onyx that has "
            "written it, or a newer one"
        )
    made = JobBundle(_read_as(first.body, BundleHead), Origin(Position(-1), b""))
    for each in lines:
        if each.part == "end":
            end = _read_as(each.body, BundleEnd)
            if not made.origin.replica:
                raise ValueError("it has no replica")
            if next(lines, None) is not None:
                raise ValueError("something follows on its end")
            _check_folds(made)
            return msgspec.structs.replace(made, notes=end.notes[:NOTES_MAX])
        made = _with(made, each)
    raise ValueError("its end is missing")


def _check_folds(made: JobBundle) -> None:
    """Entries fold onto every replica of ours; onto one that somebody has made up they may not."""
    replica = canonical.decode(made.origin.replica)
    try:
        for entry in made.entries:
            replica = machine.apply(replica, entry)
    except Exception as error:
        raise ValueError(f"its entries do not go with its replica: {describe(error)}") from error


@prepared
class _Version(msgspec.Struct):
    bundle: int


def _read_as(data: bytes | msgspec.Raw, hint: type[T]) -> T:
    found: T = stored(bytes(data), hint, f"a {hint.__name__}", "make the bundle again")
    return found


def _lines(path: Path, stream: gzip.GzipFile) -> Iterator[BundleLine]:
    left, count = BYTES_MAX, 0
    while data := stream.readline(LINE_BYTES_MAX + 2):
        left, count = left - len(data), count + 1
        if len(data) > LINE_BYTES_MAX + 1 or left < 0 or count > LINES_MAX:
            raise UserError(
                f"{path} is larger than any bundle: {BYTES_MAX:,} bytes and {LINES_MAX:,} lines "
                f"are read, of {LINE_BYTES_MAX:,} bytes each"
            )
        yield _read_as(data, BundleLine)


def _with(made: JobBundle, each: BundleLine) -> JobBundle:
    """The bundle with a line more."""
    body = each.body
    if each.part == "document":
        found = _read_as(body, BundledDocument)
        made.documents[each.name] = Document(bytes(found.json), found.version)
    elif each.part == "chunk":
        made.chunks[each.name] = bytes(body)
    elif each.part == "worker":
        said = _read_as(body, WorkerDiagnostics)
        if len(said.lines) > WORKER_LINES_MAX:
            raise ValueError(f"it has {len(said.lines):,} log lines of a worker")
        made.workers[each.name] = said
    elif each.part == "measures":
        measured = _read_as(body, Measures)
        return msgspec.structs.replace(made, measures=measured)
    elif each.part == "origin":
        its = _read_as(body, BundledOrigin)
        try:
            replica = canonical.decode(bytes(its.replica))
        except UserError as error:
            raise ValueError(str(error)) from error
        if its.position < -1 or replica.version != its.position or made.entries:
            raise ValueError("its replica is not that before its entries")
        origin = Origin(Position(its.position), bytes(its.replica))
        return msgspec.structs.replace(made, origin=origin)
    elif each.part == "entry":
        entry = entry_of(_read_as(body, ArchivedEntry))
        before = made.entries[-1].position if made.entries else made.origin.position
        if entry.position != before + 1 or not made.origin.replica:
            raise ValueError(f"entry {entry.position} follows on {before}")
        made.entries.append(entry)
    return made
