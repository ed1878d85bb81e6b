"""What trees give back, as bytes: one msgpack array."""

from __future__ import annotations

from collections.abc import Iterator

from onyx.codec.values import decode_values, encode_values
from onyx.errors import SegmentError
from onyx.ledger.returns import Parts, ReturnPart, Trees

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
