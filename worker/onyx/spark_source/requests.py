"""The rows of a part as requests: neither too many nor too large."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from onyx.errors import UserError

REQUEST_BYTES_MAX = 3_900_000
"""A request has at most 4,000,000 with what is around the rows."""


def requests_of(batches: Iterator[pa.RecordBatch], rows_max: int) -> Iterator[pa.RecordBatch]:
    """The rows of all batches, in order, in as few batches as that takes.

    Args:
        rows_max: of one of them.

    Raises:
        UserError: a row alone is too large.
    """
    gathered: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        for piece in _pieces(batch, rows_max):
            piece_bytes = pa.ipc.get_record_batch_size(piece)
            full = rows + len(piece) > rows_max or size_bytes + piece_bytes > REQUEST_BYTES_MAX
            if gathered and full:
                yield _joined(gathered)
                gathered, rows, size_bytes = [], 0, 0
            gathered.append(piece)
            rows += len(piece)
            size_bytes += piece_bytes
    if gathered:
        yield _joined(gathered)


def _pieces(batch: pa.RecordBatch, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Slices of a batch that are small enough."""
    if not len(batch):
        return
    large = pa.ipc.get_record_batch_size(batch) > REQUEST_BYTES_MAX
    if len(batch) <= rows_max and not large:
        yield batch
    elif len(batch) == 1:
        raise UserError(
            f"a row has more than {REQUEST_BYTES_MAX:,} bytes, which is more than a request holds"
        )
    else:
        half = len(batch) // 2
        for first, count in ((0, half), (half, len(batch) - half)):
            yield from _pieces(batch.slice(first, count), rows_max)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
