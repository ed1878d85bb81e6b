"""Entries that leave the log, in a folder or a bucket, so that one can still look into the past.

    <archive>/<tenancy>/<log>/<first>-<last>      positions of 20 digits; the log by its identity

Each file is compressed text, a line each, as people and `zcat` read it. It begins with the replica
before its first entry, so any one of them is enough to know the replica at its positions. A file is
written before the log is trimmed, and never changed. Collectors that trim at once may write files
that overlap, and a collector that dies leaves one whose entries are still in the log: readers take
each position once.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from onyx.base.path_names import path_name
from onyx.base.structs import UNREADABLE, prepared
from onyx.codec.entries import decode_entry, encode_entry
from onyx.errors import StateError, UserError
from onyx.ids import Position
from onyx.log.interface import LogReader, Origin
from onyx.replica import canonical
from onyx.replica.command import Entry, Undecodable
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx.storage.interface import PRIVATE, BlobStore, Purpose
from onyx.storage.opening import absolute, location_of

_PURPOSE = Purpose(
    "the log cannot be archived in",
    "set ONYX_HISTORY_ARCHIVE to a folder that may be written, or to s3://bucket/prefix",
    PRIVATE,
)
_NO_REPLICA = b"null"


class Segment(NamedTuple):
    """A file of the archive."""

    first: Position
    last: Position


class Archive:
    """The archive of one log. Blocks; raises what a `BlobStore` does.

    Args:
        store: where it is.
        tenancy: whose log it is.
        identity: of the log: one made anew under the same name begins again at position 0.
    """

    def __init__(self, store: BlobStore, tenancy: str, identity: int) -> None:
        self._store = store
        self._prefix = f"{path_name(tenancy, 'a tenancy id')}/{identity:x}/"

    def keep(self, origin: Origin, entries: Sequence[Entry]) -> None:
        """Write the entries that follow an origin, in order and without a gap."""
        if not entries:
            return
        name = self._name(entries[0].position, entries[-1].position)
        self._store.create(name, encode_file(origin, entries))

    def segments(self) -> list[Segment]:
        """The files there are, by their first positions."""
        names = (each.name.removeprefix(self._prefix) for each in self._store.list(self._prefix))
        parts = (name.partition("-") for name in names)
        return sorted(
            Segment(Position(int(first)), Position(int(last)))
            for first, dash, last in parts
            if dash and first.isdecimal() and last.isdecimal()
        )

    def replica(
        self, position: Position, empty: Replica, apply: Callable[[Replica, Entry], Replica]
    ) -> Replica | None:
        """The replica after an entry; None if that is not in the archive.

        Args:
            empty: the replica before the first entry of the log.
            apply: the replica after one more entry.
        """
        for segment in self.segments():
            if segment.first - 1 <= position <= segment.last:
                first, entries = self._read(segment)
                replica = self._replica(segment, first) if first else empty
                for entry in entries:
                    if entry.position > position:
                        break
                    replica = apply(replica, entry)
                return replica
        return None

    def entries(self, after: Position, until: Position) -> Iterator[Entry]:
        """The entries behind one position and up to another one, in order, as far as they are
        there."""
        for segment in self.segments():
            if segment.last > after and segment.first <= until:
                for entry in self._read(segment)[1]:
                    if after < entry.position <= until:
                        yield entry
                        after = entry.position

    def _replica(self, segment: Segment, data: bytes) -> Replica:
        try:
            return canonical.decode(data)
        except UserError as error:
            raise StateError(
                f"{self._name(*segment)} in the archive of the log: {error}"
            ) from error

    def _read(self, segment: Segment) -> tuple[bytes, list[Entry]]:
        """The replica before the first entry, empty for none, and the entries."""
        name = self._name(*segment)
        return decode_file(name, self._store.read(name) or b"")

    def _name(self, first: Position, last: Position) -> str:
        return f"{self._prefix}{first:020d}-{last:020d}"


def open_archive(settings: Settings, log: LogReader) -> Archive | None:
    """The archive that the settings name; None if they name none.

    Raises:
        UserError: the URL is wrong, or the library for object stores is not installed.
    """
    if not settings.history.archive:
        return None
    location = absolute(settings.history.archive, settings.data_dir)
    try:
        return Archive(location_of(location, _PURPOSE), settings.tenancy_id, log.identity)
    except UserError as error:
        raise type(error)(f"ONYX_HISTORY_ARCHIVE {error}") from error


@prepared
class _First(msgspec.Struct, forbid_unknown_fields=True):
    """The first line: where the entries begin."""

    position: int
    replica: msgspec.Raw = msgspec.Raw(_NO_REPLICA)


@prepared
class ArchivedEntry(msgspec.Struct, forbid_unknown_fields=True):
    """An entry: its bytes as they were in the log, or why they could not be read."""

    position: int
    entry: msgspec.Raw = msgspec.Raw(_NO_REPLICA)
    fn: str = ""
    unreadable: str = ""
    writer: str = ""
    sequence: int = 0


def encode_file(origin: Origin, entries: Sequence[Entry]) -> bytes:
    """The entries that follow an origin, in order and without a gap."""
    first = _First(origin.position, msgspec.Raw(origin.replica or _NO_REPLICA))
    lines = [msgspec.json.encode(each) for each in (first, *map(archived, entries))]
    # Without a time, so that whoever writes the same entries writes the same bytes.
    return gzip.compress(b"\n".join(lines), mtime=0)


def decode_file(name: str, data: bytes) -> tuple[bytes, list[Entry]]:
    """The replica before the first entry, empty for none, and the entries.

    Raises:
        StateError: the file is damaged.
    """
    try:
        first, *lines = gzip.decompress(data).split(b"\n")
        replica = bytes(msgspec.json.decode(first, type=_First).replica)
        entries = [entry_of(msgspec.json.decode(line, type=ArchivedEntry)) for line in lines]
    except (OSError, EOFError, zlib.error, *UNREADABLE) as error:
        raise StateError(
            f"{name} in the archive of the log is damaged ({error}); restore it from a copy, or "
            "remove it to go without these entries"
        ) from error
    return b"" if replica == _NO_REPLICA else replica, entries


def archived(entry: Entry) -> ArchivedEntry:
    command = entry.command
    if isinstance(command, Undecodable):
        return ArchivedEntry(
            entry.position,
            fn=command.fn,
            unreadable=command.reason,
            writer=entry.writer,
            sequence=entry.sequence,
        )
    data = encode_entry(command, entry.writer, entry.sequence, entry.parent, entry.by, entry.at_ms)
    return ArchivedEntry(entry.position, msgspec.Raw(data))


def entry_of(line: ArchivedEntry) -> Entry:
    position = Position(line.position)
    if line.unreadable:
        return Entry(position, Undecodable(line.fn, line.unreadable), line.writer, line.sequence)
    return decode_entry(position, bytes(line.entry))
