"""Files that say what they are: magic, format version, checksum, header, and a body behind it.

    offset 0   magic, 6 bytes; format version, 2 bytes
           8   CRC-32 of everything behind it, 4 bytes
          12   size of the header, 4 bytes; the header; the body

All numbers are little-endian. The checksum reveals damage. Such a file is created in one step, so
half of one is damage too.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from onyx.base.structs import RESTORE, UNREADABLE
from onyx.errors import SegmentError, StateError

T = TypeVar("T")
MAGIC_BYTES = 6
_NUMBER_BYTES = 4
_CHECKED_FROM = MAGIC_BYTES + 2 + _NUMBER_BYTES
_HEADER_FROM = _CHECKED_FROM + _NUMBER_BYTES


class FileFormat(NamedTuple):
    """What a kind of file begins with."""

    magic: bytes
    version: int
    what: str
    """The kind in words."""


class Unsealed(NamedTuple):
    """A file whose checksum is right."""

    header: memoryview
    body: memoryview


def seal(kind: FileFormat, header: bytes, body: Sequence[bytes]) -> bytes:
    """The bytes of a file."""
    checked = [_number(len(header)), header, *body]
    checksum = 0
    for each in checked:
        checksum = zlib.crc32(each, checksum)
    return b"".join([kind.magic, kind.version.to_bytes(2, "little"), _number(checksum), *checked])


def unseal(kind: FileFormat, data: bytes) -> Unsealed:
    """Header and body of a file.

    Raises:
        SegmentError: the bytes are not whole, or of another kind or version. The message follows
            the name of the file.
    """
    if not data.startswith(kind.magic):
        raise SegmentError(f"is no {kind.what}")
    version = int.from_bytes(data[MAGIC_BYTES : MAGIC_BYTES + 2], "little")
    if version != kind.version:
        raise SegmentError(
            f"is of format {version}, this version of Onyx reads format {kind.version}"
        )
    view = memoryview(data)
    checksum = _number_at(data, _CHECKED_FROM - _NUMBER_BYTES)
    if len(data) < _HEADER_FROM or checksum != zlib.crc32(view[_CHECKED_FROM:]):
        raise SegmentError(f"is damaged: {len(data)} bytes, whose checksum is wrong")
    end = _HEADER_FROM + _number_at(data, _CHECKED_FROM)
    return Unsealed(view[_HEADER_FROM:end], view[end:])


def opened(
    kind: FileFormat, header: msgspec.msgpack.Decoder[T], data: bytes, file: str
) -> tuple[T, memoryview]:
    """The header, decoded, and the body of a file of a job's state. Raises StateError: these are
    not its bytes."""
    try:
        head, body = unseal(kind, data)
        return header.decode(head), body
    except (SegmentError, *UNREADABLE) as error:
        raise StateError(f"{file} {error}; {RESTORE}") from error


def _number(value: int) -> bytes:
    return value.to_bytes(_NUMBER_BYTES, "little")


def _number_at(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + _NUMBER_BYTES], "little")
