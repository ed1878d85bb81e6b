"""Groups that are asked for and their states, as bytes: as many at a time as fit.

Whole lists are encoded at once, because a call for each value would take longer than all else that
is done with it. What does not fit is halved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onyx.codec.values import decode_values, encode_values
from onyx.errors import SegmentError
from onyx.keystate.groups import dump_keys, load_keys


def key_pieces(keys: list[Any], bytes_max: int) -> Iterator[tuple[list[Any], bytes]]:
    """All keys (`groups.hashable_key`) in pieces, each with its bytes. A single key may have more
    than `bytes_max`.

    Raises:
        SegmentError: a key has no encoding.
    """
    data = encode_values(dump_keys(keys))
    if len(data) <= bytes_max or len(keys) <= 1:
        yield keys, data
        return
    half = len(keys) // 2
    yield from key_pieces(keys[:half], bytes_max)
    yield from key_pieces(keys[half:], bytes_max)


def decode_keys(data: bytes) -> Sequence[Any]:
    """The keys of a piece. Raises SegmentError: the bytes are something else."""
    return load_keys(decode_values(data))


def encode_states(found: Sequence[Sequence[Any]], bytes_max: int) -> tuple[bytes, int]:
    """What the first keys have, and how many these are: as many as fit, and at least one.

    Args:
        found: for each key a list with its state, which is empty if it has none.

    Raises:
        SegmentError: a state has no encoding.
    """
    while True:
        missing = [index for index, each in enumerate(found) if not each]
        states = [state for each in found for state in each]
        data = encode_values([len(found), missing, states])
        if len(data) <= bytes_max or len(found) <= 1:
            return data, len(found)
        found = found[: len(found) // 2]


def decode_states(data: bytes, keys: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The keys that have a state, their states, and the keys that are still to be asked for. Raises
    SegmentError: the bytes are something else."""
    try:
        many, missing, states = decode_values(data)
        there = keys[:many]
        for index in reversed(missing):
            del there[index]
    except (TypeError, ValueError, IndexError) as error:
        raise SegmentError(f"{len(data)} bytes are no states of groups: {error}") from error
    if len(there) != len(states):
        raise SegmentError(f"{len(states)} states came for {len(there)} groups")
    return there, states, keys[many:]
