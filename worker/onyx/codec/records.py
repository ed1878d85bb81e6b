"""Records of state logs (`keystate/records`) as bytes: one msgpack array of tagged arrays.

The values in a record have the types and limits of segments' values (`kinds`), and all of them are
checked. Keys of dicts may be of any of these types, because only the aggregation that made a state
reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from onyx.base.structs import UNREADABLE
from onyx.codec.kinds import packed, unpacked
from onyx.codec.values import WRONG, all_native, unencodable
from onyx.errors import SegmentError
from onyx.keystate.records import AnyRecord, Record, WindowRecord

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyRecord], ext_hook=unpacked)


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
        return list[Record](_decoder.decode(data))
    except (*UNREADABLE, OverflowError, MemoryError) as error:
        raise SegmentError(f"{len(data)} bytes are not a list of records ({error})") from error


def _packed(record: Record) -> list[Any]:
    """The array that a record is, with values of types that msgpack has."""
    return [record.__struct_config__.tag, *map(packed, astuple(record))]
