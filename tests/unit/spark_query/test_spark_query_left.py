"""Rows that wait in a bucket: what counts for their size, and what of them is recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onyx.codec.values import decode_records, encode_records
from onyx.keystate.records import Record
from onyx.spark_query.folding.inbox import LeftRows
from onyx.spark_query.rows import segments_of, segments_row
from onyx.windows.watermarks import IDLE, SILENT, Mark

PARTITIONS = [("read", "a"), ("read", "b")]
ROWS = [[{"v": n} for n in range(4)], [{"v": n} for n in range(4, 7)]]


def left_with(rows: list[list[dict[str, Any]]], said: Mark = SILENT) -> LeftRows:
    left = LeftRows(PARTITIONS)
    for number, segments in enumerate(rows):
        row = segments_row(1, "work", 0, number, "read:1", 10 + number, segments, "read")
        left.add(row, segments_of(row), said)
    return left


def keep(left: LeftRows, *indices: int) -> None:
    left.keep("read", left.first("read", 100), np.array(indices, np.intp))


def restored(records: list[Record], partitions: list[tuple[str, str]] = PARTITIONS) -> LeftRows:
    left = LeftRows(partitions)
    assert left.restore(decode_records(encode_records(records))) == []
    return left


def waits(left: LeftRows) -> list[int]:
    return [segment["v"] for each in left.first("read", 100) for segment in each.segments]


def test_what_was_taken_counts_no_more_whenever_it_was_recorded() -> None:
    left = left_with(ROWS)
    keep(left, 1, 5)
    left.take_changes()
    keep(left, 1)
    left.take_changes()
    assert waits(left) == [5]
    keep(left)
    assert left.size_bytes == 0
    assert [row.mark for row in left.take_heard("read:1")] == [10, 11]
    assert left.said == {}


def test_changes_and_the_whole_restore_the_same() -> None:
    left = left_with(ROWS)
    first = left.take_changes()
    keep(left, 1, 5)
    second = left.take_changes()
    assert waits(restored([*first, *second])) == waits(restored(left.whole())) == [1, 5]
    keep(left, 1)
    assert [row.mark for row in left.take_heard("read:1")] == [10]
    assert waits(restored([*first, *second, *left.take_changes()])) == [5]
    assert left.take_changes() == []


@pytest.mark.parametrize("said", [SILENT, IDLE, 7])
def test_a_partition_is_known_by_its_name_and_what_it_had_said(said: Mark) -> None:
    records = left_with(ROWS, said).take_changes()
    assert restored(records).said == {"read:1": said}
    assert restored(records, [("read", "b")]).said == {"read:0": said}
    away = restored(records, [("read", "c")])
    assert restored(away.whole()).said == {"read:1": said}
