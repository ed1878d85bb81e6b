"""One file of the archive of the log: compressed text, a line each, as people and `zcat` read it.

The first line has the replica before the first entry.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence

import msgspec

from onyx.base.structs import UNREADABLE, prepared
from onyx.codec.entries import decode_entry, encode_entry
from onyx.errors import StateError
from onyx.ids import Position
from onyx.log.interface import Origin
from onyx.replica.command import Entry, Undecodable

_NO_REPLICA = b"null"


@prepared
class _First(msgspec.Struct, forbid_unknown_fields=True):
    """The first line: where the entries begin."""

    position: int
    replica: msgspec.Raw = msgspec.Raw(_NO_REPLICA)


@prepared
class _Line(msgspec.Struct, forbid_unknown_fields=True):
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
    lines = [msgspec.json.encode(each) for each in (first, *map(_line, entries))]
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
        entries = [_entry(msgspec.json.decode(line, type=_Line)) for line in lines]
    except (OSError, EOFError, zlib.error, *UNREADABLE) as error:
        raise StateError(
            f"{name} in the archive of the log is damaged ({error}); restore it from a copy, or "
            "remove it to go without these entries"
        ) from error
    return b"" if replica == _NO_REPLICA else replica, entries


def _line(entry: Entry) -> _Line:
    command = entry.command
    if isinstance(command, Undecodable):
        return _Line(
            entry.position,
            fn=command.fn,
            unreadable=command.reason,
            writer=entry.writer,
            sequence=entry.sequence,
        )
    data = encode_entry(command, entry.writer, entry.sequence, entry.parent, entry.by, entry.at_ms)
    return _Line(entry.position, msgspec.Raw(data))


def _entry(line: _Line) -> Entry:
    position = Position(line.position)
    if line.unreadable:
        return Entry(position, Undecodable(line.fn, line.unreadable), line.writer, line.sequence)
    return decode_entry(position, bytes(line.entry))
