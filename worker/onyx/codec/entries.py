"""Log entries as bytes: a small JSON object, versioned, bounded, total to read.

    {"v": 2, "fn": "kill-job", "args": {"job": "flights"}, "writer": "g1", "sequence": 7}
    {"v": 2, "fn": "kill-job", "args": {"job": "flights"}, "by": "kubernetes:alice", "at": 1772353}

JSON and not msgpack, because people read the log with ZooKeeper's own tools when something is
wrong; coordination is not where bytes count.

Writing is strict: an entry is read back before it is in the log for ever, and a command that would
not come back as it was (an invalid name, a number that is not finite) is refused. Reading never
raises: bytes that are no entry, and arguments that their command does not take, become an
`Undecodable`, which every replica rejects alike.
"""

from __future__ import annotations

from typing import Any

import msgspec

from onyx.base.structs import UNREADABLE
from onyx.errors import UserError
from onyx.ids import NO_POSITION, Position
from onyx.replica.authors import bounded
from onyx.replica.command import Command, Entry, Undecodable
from onyx.replica.commands import COMMANDS

FORMAT_VERSION = 2
ENTRY_BYTES_MAX = 1_048_576
"""Largest entry that is read at all (ZooKeeper's own limit); writers have a lower one."""
AT_MS_MAX = 253_402_300_799_999
"""The last millisecond that a date can have."""
_NAME_CHARACTERS_MAX = 256


class _Stored(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    v: int
    fn: str
    args: msgspec.Raw = msgspec.Raw(b"{}")
    writer: str = ""
    sequence: int = 0
    parent: int | None = None
    by: Any = ""
    at: Any = 0


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Stored)
_ARGUMENTS = {name: msgspec.json.Decoder(command) for name, command in COMMANDS.items()}
_FAULTS = UNREADABLE


def encode_entry(
    command: Command,
    writer: str = "",
    sequence: int = 0,
    parent: Position | None = None,
    by: str = "",
    at_ms: int = 0,
) -> bytes:
    """The bytes of an entry; its position is where it is stored.

    Raises:
        UserError: no reader would accept the command, or not as it is.
    """
    try:
        args = msgspec.Raw(_ENCODER.encode(command))
        data = _ENCODER.encode(
            _Stored(
                FORMAT_VERSION, command.NAME, args, writer, sequence, parent, bounded(by), at_ms
            )
        )
    except (msgspec.EncodeError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{command.NAME} cannot be written to the log: {error}") from error
    read = decode_entry(NO_POSITION, data).command
    if isinstance(read, Undecodable):
        raise UserError(f"{command.NAME} cannot be written to the log: {read.reason}")
    if read != command:
        raise UserError(f"{command.NAME} cannot be written to the log: JSON has no form for it")
    return data


def decode_entry(position: Position, data: bytes) -> Entry:
    """The entry at a position; never raises, whatever the bytes are."""
    if len(data) > ENTRY_BYTES_MAX:
        return _unreadable(position, f"{len(data)} bytes, at most {ENTRY_BYTES_MAX} are read")
    try:
        stored = _DECODER.decode(data)
    except _FAULTS:
        return _unreadable(position, "not a log entry")
    fault = _fault(stored)
    if fault:
        return _unreadable(position, fault)
    parent = None if stored.parent is None else Position(stored.parent)
    by, at_ms = bounded(stored.by), _time_of(stored.at)
    return Entry(position, _command(stored), stored.writer, stored.sequence, parent, by, at_ms)


def _command(stored: _Stored) -> Command:
    decoder = _ARGUMENTS.get(stored.fn)
    if decoder is None:
        return Undecodable(stored.fn, "no such command")
    try:
        return decoder.decode(stored.args)
    except _FAULTS as error:
        return Undecodable(stored.fn, str(error))


def _time_of(at: Any) -> int:
    """What nobody can have meant is no time, and no reason against the entry."""
    return at if type(at) is int and 0 <= at <= AT_MS_MAX else 0


def _fault(stored: _Stored) -> str:
    if stored.v != FORMAT_VERSION:
        return f"written in format {stored.v}, this version reads {FORMAT_VERSION}"
    if len(stored.fn) > _NAME_CHARACTERS_MAX or len(stored.writer) > _NAME_CHARACTERS_MAX:
        return "a name is too long"
    if stored.sequence < 0 or bool(stored.writer) != (stored.sequence > 0):
        return "writer and sequence do not belong together"
    return ""


def _unreadable(position: Position, reason: str) -> Entry:
    return Entry(position, Undecodable("", reason))
