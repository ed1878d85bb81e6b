"""What is kept of a task as bytes: lists of plain values (emissions, unique keys, spilled states),
what trees give back, and records of state logs.

The same msgpack as that of segments, the same types and limits (`kinds`), and all values are
checked. Keys of dicts may be of any of these types, because only the aggregation that made a state
reads it.

Records (`keystate/records`) are one msgpack array of tagged arrays, and what trees give back is one
array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from onyx.base.structs import UNREADABLE
from onyx.codec.kinds import KINDS, fits, is_native, levels, packed, reason, unpacked
from onyx.errors import SegmentError
from onyx.keystate.records import AnyRecord, Record, WindowRecord
from onyx.ledger.returns import Parts, ReturnPart, Trees

WRONG = (TypeError, ValueError, OverflowError, RecursionError)
"""What checking and encoding raise for values that have no encoding."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Any], ext_hook=unpacked)


def encode_values(values: Sequence[Any]) -> bytes:
    """One msgpack array.

    Raises:
        SegmentError: a value has no encoding, or is nested too deeply.
    """
    try:
        return _encoder.encode(values if all_native(values) else list(map(packed, values)))
    except WRONG as error:
        default = SegmentError(f"state cannot be written: {error}")
        raise unencodable(values, "") or default from error


def encode_each(lists: Sequence[Sequence[Any]]) -> list[bytes]:
    """What `encode_values` gives of each: together, because to look at few values takes about as
    long as to look at many. Raises as `encode_values`.
    """
    try:
        if all_native([value for each in lists for value in each]):
            return list(map(_encoder.encode, lists))
    except WRONG:
        pass
    return list(map(encode_values, lists))


def decode_values(data: bytes | memoryview) -> list[Any]:
    """The values of `encode_values`.

    Raises:
        SegmentError: the bytes are not an array of values.
    """
    try:
        return _decoder.decode(data)
    except (*UNREADABLE, OverflowError, MemoryError) as error:
        raise SegmentError(f"{len(data)} bytes are not a list of values ({error})") from error


def all_native(values: Sequence[Any]) -> bool:
    """Whether msgpack has all types that the values are of and hold; if not, they are `packed`.

    Raises:
        TypeError, RecursionError: a type has no encoding, or values are nested too deeply.
    """
    found = list(levels(values))
    if not all(fits(each, KINDS) for each in found):
        raise TypeError("a type that cannot be written")
    return all(map(is_native, found))


def unencodable(values: Iterable[Any], where: str) -> SegmentError | None:
    """The error that says which value has no encoding, and why; None if all have one.

    Args:
        where: follows "state" in the message.
    """
    for value in values:
        found = reason(value, KINDS)
        if found:
            return SegmentError(
                f"state{where} cannot be written: it holds {found}; aggregations, triggers and "
                "group keys may have what a segment may have"
            )
    return None


PIECE_BYTES = 1_048_576
"""Size from which on trees go into another piece."""


def size_bytes(value: object) -> int:
    """The size of a value, encoded. Raises SegmentError: it cannot travel."""
    return len(encode_values([value]))


def encode_returns(trees: Trees) -> bytes:
    """The bytes of some trees. Raises SegmentError: a value cannot travel."""
    return encode_values(
        [[root, [[key, *part] for key, part in parts.items()]] for root, parts in trees.items()]
    )


def decode_returns(data: bytes) -> Trees:
    """The trees of `encode_returns`. Raises SegmentError: these are not its bytes."""
    try:
        return {
            root: {key: ReturnPart(*part) for key, *part in parts}
            for root, parts in decode_values(data)
        }
    except (TypeError, ValueError) as error:
        raise SegmentError(f"{len(data)} bytes are not what functions gave back") from error


def pieces_of(trees: Trees) -> Iterator[bytes]:
    """The bytes of trees in pieces of some size, each tree in one."""
    piece: Trees = {}
    size = 0
    for root, parts in trees.items():
        piece[root] = parts
        size += _size(parts)
        if size >= PIECE_BYTES:
            yield encode_returns(piece)
            piece, size = {}, 0
    if piece:
        yield encode_returns(piece)


def _size(parts: Parts) -> int:
    return sum(part.size_bytes for part in parts.values())


_record_decoder = msgspec.msgpack.Decoder(list[AnyRecord], ext_hook=unpacked)


def encode_records(records: Sequence[Record]) -> bytes:
    """
    Raises:
        SegmentError: a value has no encoding, or is nested too deeply; the window is named.
    """
    try:
        if all_native([value for record in records for value in astuple(record)]):
            return _encoder.encode(records)
        return _encoder.encode([_packed(record) for record in records])
    except WRONG as error:
        for record in records:
            where = f" of window {record.window}" if isinstance(record, WindowRecord) else ""
            found = unencodable(astuple(record), where)
            if found is not None:
                raise found from error
        raise SegmentError(f"state cannot be written: {error}") from error


def encode_all(lists: Sequence[Sequence[Record]]) -> list[bytes]:
    """What `encode_records` gives of each: together, because to look at few values takes about as
    long as to look at many, and a chunk has a record or two of each of 128 shards.

    Raises:
        SegmentError: as `encode_records`.
    """
    try:
        if all_native([value for each in lists for record in each for value in astuple(record)]):
            return list(map(_encoder.encode, lists))
    except WRONG:
        pass
    return list(map(encode_records, lists))


def decode_records(data: bytes | memoryview) -> list[Record]:
    """The records of `encode_records`.

    Raises:
        SegmentError: the bytes are not an array of records.
    """
    try:
        return list[Record](_record_decoder.decode(data))
    except (*UNREADABLE, OverflowError, MemoryError) as error:
        raise SegmentError(f"{len(data)} bytes are not a list of records ({error})") from error


def _packed(record: Record) -> list[Any]:
    """The array that a record is, with values of types that msgpack has."""
    return [record.__struct_config__.tag, *map(packed, astuple(record))]
