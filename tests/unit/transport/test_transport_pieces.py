"""Batches cut so that each piece fits in a frame: in order, complete, with their lineage."""

import numpy as np
import pyarrow as pa
import pytest

from onyx.codec.columns import ROWS_MAX
from onyx.errors import SegmentError
from onyx.flow.batch import Batch, as_dicts
from onyx.flow.columns.record_batch import Columns
from onyx.transport.frames import encoder
from onyx.transport.pieces import encoded_pieces

FRAME_BYTES_MAX = 5_000
NUMBERED = [{"n": number, "name": f"name {number}"} for number in range(3_000)]


def columns(segments) -> Columns:
    return Columns.of(pa.RecordBatch.from_pylist(segments))


def pieces(segments) -> list[Batch]:
    column = np.arange(len(segments), dtype=np.uint64)
    batch = Batch(segments, column, column + np.uint64(7))
    found = list(encoded_pieces(batch, FRAME_BYTES_MAX))
    for piece in found:
        assert len(encoder.frame(1, 1, [encoder.item_packet(1, 1, piece)])) <= FRAME_BYTES_MAX
    return [piece.decode() for piece in found]


@pytest.mark.parametrize("segments", [NUMBERED, columns(NUMBERED)], ids=["dicts", "columns"])
def test_the_pieces_of_a_batch_are_the_batch(segments):
    found = pieces(segments)
    assert len(found) > 10
    assert [each for piece in found for each in as_dicts(piece.segments)] == NUMBERED
    assert [root for piece in found for root in piece.roots.tolist()] == list(range(3_000))
    assert [number for piece in found for number in piece.ids.tolist()] == list(range(7, 3_007))


def test_pieces_of_columns_carry_only_their_own_rows():
    rows = [{"page": "x" * 1_000, "tags": [str(number)] * 5} for number in range(64)]
    assert [len(piece) for piece in pieces(columns(rows))] == [4] * 16


def test_rows_that_occupy_no_bytes_are_bounded_too():
    rows = Columns(pa.record_batch({"nothing": pa.nulls(2 * ROWS_MAX)}))
    found = list(encoded_pieces(Batch(rows), 100_000_000))
    assert [piece.segments for piece in found] == [ROWS_MAX] * 2


@pytest.mark.parametrize("segment", [0, 7, 99])
def test_a_row_larger_than_a_frame_is_named_with_its_largest_key(segment):
    rows = [{"n": n, "page": "x" * (6_000 if n == segment else 20)} for n in range(100)]
    message = f"segment {segment} of the batch takes 60.. bytes, of which key 'page' takes 60"
    with pytest.raises(SegmentError, match=message):
        pieces(columns(rows))
