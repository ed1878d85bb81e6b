"""Log entries as bytes: a small JSON object, versioned, bounded, total to read.

JSON and not msgpack, because people read the log with ZooKeeper's own tools when something is
wrong; coordination is not where bytes count. Writing is strict: what would not come back as it was
(a number that is not finite, a key that is not text) is refused here, before it is in the log for
ever. Reading never raises: bytes that are no entry of this version become a command named
`unreadable-entry`, which every replica rejects alike (an exception would stop all peers at the same
position, again after each restart).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from onyx.errors import UserError
from onyx.ids import Position
from onyx.replica.entry import Command, Entry

FORMAT_VERSION = 1
UNREADABLE = "unreadable-entry"
"""Name of the command that stands for bytes which are not an entry."""
NESTING_MAX = 32
"""Deepest nesting of lists and maps within the arguments."""
ENTRY_BYTES_MAX = 1_048_576
"""Largest entry that is read at all (ZooKeeper's own limit); writers have a lower one."""
_NAME_CHARACTERS_MAX = 256
_INTEGER_BITS_MAX = 64


class _Stored(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    v: int
    fn: str
    args: dict[str, Any] = {}
    writer: str = ""
    sequence: int = 0
    parent: int | None = None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Stored)


def encode_entry(
    command: Command, writer: str = "", sequence: int = 0, parent: Position | None = None
) -> bytes:
    """The bytes of an entry; its position is where it is stored.

    Raises:
        UserError: the arguments hold something that JSON would change or that is too deep.
    """
    args = {
        str(key): _plain(value, f"{command.fn}: {key}", 1) for key, value in command.args.items()
    }
    stored = _Stored(FORMAT_VERSION, command.fn, args, writer, sequence, parent)
    try:
        return _ENCODER.encode(stored)
    except UnicodeEncodeError as error:
        raise UserError(f"{command.fn}: text with a lone surrogate cannot be written") from error


def decode_entry(position: Position, data: bytes) -> Entry:
    """The entry at a position; never raises, whatever the bytes are."""
    if len(data) > ENTRY_BYTES_MAX:
        return _unreadable(position, f"{len(data)} bytes, at most {ENTRY_BYTES_MAX} are read")
    try:
        stored = _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _unreadable(position, "not a log entry")
    fault = _fault(stored)
    if fault:
        return _unreadable(position, fault)
    parent = None if stored.parent is None else Position(stored.parent)
    return Entry(position, Command(stored.fn, stored.args), stored.writer, stored.sequence, parent)


def _fault(stored: _Stored) -> str:
    if stored.v != FORMAT_VERSION:
        return f"written in format {stored.v}, this version reads {FORMAT_VERSION}"
    if len(stored.fn) > _NAME_CHARACTERS_MAX or len(stored.writer) > _NAME_CHARACTERS_MAX:
        return "a name is too long"
    if stored.sequence < 0 or bool(stored.writer) != (stored.sequence > 0):
        return "writer and sequence do not belong together"
    if not _is_plain(stored.args):
        return f"arguments nested deeper than {NESTING_MAX}, or a number beyond 64 bits"
    return ""


def _unreadable(position: Position, reason: str) -> Entry:
    return Entry(position, Command(UNREADABLE, {"reason": reason}))


def _plain(value: Any, where: str, depth: int) -> Any:
    """The same value of dicts, lists and scalars, or UserError with the place of the fault."""
    if depth > NESTING_MAX:
        raise UserError(f"{where}: nested deeper than {NESTING_MAX}, which the log does not take")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UserError(f"{where}: key {key!r} is not text")
        return {key: _plain(each, f"{where}.{key}", depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, f"{where}[{i}]", depth + 1) for i, each in enumerate(value)]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int) and value.bit_length() <= _INTEGER_BITS_MAX - 1:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise UserError(f"{where}: {value!r} cannot be written to the log as JSON")


def _is_plain(args: dict[str, Any]) -> bool:
    """Whether a reader and a writer agree on these arguments (bounded depth, 64-bit numbers)."""
    try:
        _plain(args, "", 0)
    except UserError:
        return False
    return True
