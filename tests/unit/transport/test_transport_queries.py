"""Questions and answers as messages."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onyx.errors import SegmentError
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.transport.state_queries import (
    ANSWER_BYTES_MAX,
    EXTENTS_MAX,
    PIECE_BYTES,
    StateAnswer,
    StateQuery,
    decode_query,
    encode_query,
    from_pieces,
    to_pieces,
)

QUERY = StateQuery(
    "tenancy", GroupId("g"), PeerId("p"), JobId("j"), AllocationVersion(7), "w", b"k", 100
)


def test_a_question_arrives_as_it_was() -> None:
    assert decode_query(encode_query(QUERY)) == QUERY


@pytest.mark.parametrize("extents_max", [0, EXTENTS_MAX + 1])
def test_a_question_for_nothing_or_too_much_is_refused(extents_max: int) -> None:
    with pytest.raises(SegmentError, match=f"{extents_max} extents"):
        decode_query(encode_query(replace(QUERY, extents_max=extents_max)))


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES])
def test_an_answer_of_any_size_travels_in_pieces(size: int) -> None:
    answer = StateAnswer(bytes(size), size > 1)
    pieces = list(to_pieces(answer))
    assert from_pieces(pieces) == answer
    assert len(pieces) == max(1, -(-size // PIECE_BYTES))


def test_bytes_of_another_kind_are_refused() -> None:
    with pytest.raises(SegmentError):
        decode_query(b"\xff\xff")
    with pytest.raises(SegmentError):
        from_pieces([b"\xff\xff"])


def test_an_answer_without_end_is_refused() -> None:
    (piece,) = to_pieces(StateAnswer(bytes(PIECE_BYTES), True))
    with pytest.raises(SegmentError, match=str(ANSWER_BYTES_MAX)):
        from_pieces(piece for _ in range(10**9))
