"""What the state log is told of a join of two streams."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from onyx.flow.arrays import Mask
from onyx.flow.groups.keys import SHARDS
from onyx.joins.streams.keyed_rows import KeyedRows
from onyx.joins.streams.spans import LEFT, NO_WATERMARK, RIGHT
from onyx.program.streams.keeping import Chronicle, rows_in
from onyx.windows.records import JoinRows


def keyed_rows(numbers: list[int]) -> KeyedRows:
    """Rows of shard 3, whose times are their numbers."""
    column = pa.array(numbers, pa.int64())
    rows = pa.RecordBatch.from_arrays([column], names=["n"])
    return KeyedRows.of([column], np.array(numbers), np.full(len(numbers), 3), rows)


@pytest.mark.parametrize("needed_from", [0, 2, 9])
def test_a_snapshot_has_the_rows_that_are_needed_also_if_none_of_a_part_is(
    needed_from: int,
) -> None:
    def gone(rows: KeyedRows) -> Mask:
        found: Mask = rows.times < needed_from
        return found

    chronicle = Chronicle(np.full(SHARDS, NO_WATERMARK))
    parts = [(LEFT, keyed_rows([1, 2, 3])), (RIGHT, keyed_rows([4]))]
    records = chronicle.freeze(parts, {LEFT: gone, RIGHT: gone})(3)
    rows = [rows_in(each) for each in records if isinstance(each, JoinRows)]
    found = [number for each in rows for number in each["n"].to_pylist()]
    assert found == [number for number in (1, 2, 3, 4) if number >= needed_from]
