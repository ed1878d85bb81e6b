"""What the state log is told of a join of two streams."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

from onyx.codec.values import decode_records, encode_records
from onyx.errors import SegmentError
from onyx.flow.arrays import Mask
from onyx.flow.groups.keys import SHARDS
from onyx.keystate.records import JOINED, JoinRows, Record
from onyx.operators.stream_join.changelog import ChangelogReader, ChangelogWriter
from onyx.operators.stream_join.keyed_rows import KeyedRows
from onyx.operators.stream_join.spans import LEFT, NO_WATERMARK, RIGHT, Side


def keyed_rows(numbers: list[int], kind: pa.DataType | None = None) -> KeyedRows:
    """Rows of shard 3, whose times are their numbers."""
    column = pa.array(numbers, pa.int64())
    rows = pa.RecordBatch.from_arrays([column.cast(kind or pa.int64())], names=["n"])
    return KeyedRows.of([column], np.array(numbers), np.full(len(numbers), 3), rows)


Restored = tuple[Side, list[int], list[int]]
"""A side, its rows, and their shards."""


def restoring_into(stored: list[Restored]) -> ChangelogReader:
    return ChangelogReader(
        lambda side, rows, shards: stored.append((side, rows["n"].to_pylist(), shards.tolist())),
        lambda side, schema: None,
    )


def restored(lists: dict[int, list[list[Record]]]) -> list[Restored]:
    """What lists of records by shard give back, after a way through the log."""
    stored: list[Restored] = []
    restoring = restoring_into(stored)
    for shard, records in lists.items():
        for each in chain.from_iterable(map(decode_records, map(encode_records, records))):
            restoring.apply(shard, each)  # type: ignore[arg-type]
    restoring.finish()
    return stored


def none_is_gone(rows: KeyedRows) -> Mask:
    return np.zeros(len(rows), np.bool_)


@pytest.mark.parametrize("needed_from", [0, 2, 9])
def test_a_snapshot_has_the_rows_that_are_needed_also_if_none_of_a_part_is(
    needed_from: int,
) -> None:
    def gone(rows: KeyedRows) -> Mask:
        found: Mask = rows.times < needed_from
        return found

    chronicle = ChangelogWriter(np.full(SHARDS, NO_WATERMARK))
    parts = [(LEFT, keyed_rows([1, 2, 3])), (RIGHT, keyed_rows([4]))]
    records = chronicle.freeze(parts, {LEFT: gone, RIGHT: gone})(3)
    found = [number for _, numbers, _ in restored({3: [records]}) for number in numbers]
    assert found == [number for number in (1, 2, 3, 4) if number >= needed_from]


def test_the_schema_of_rows_is_told_once_in_a_log_and_again_behind_a_snapshot() -> None:
    chronicle = ChangelogWriter(np.full(SHARDS, NO_WATERMARK))
    lists: list[list[Record]] = []
    for numbers in ([1], [2, 3], [4]):
        chronicle.added(LEFT, keyed_rows(numbers))
        lists.append(chronicle.take_changes([3])[3])
    assert [len(each) for each in lists] == [2, 1, 1]
    assert restored({3: lists}) == [(LEFT, [1, 2, 3, 4], [3] * 4)]
    lists = [chronicle.freeze([(LEFT, keyed_rows([1, 2, 3, 4]))], {LEFT: none_is_gone})(3)]
    chronicle.added(LEFT, keyed_rows([5]))
    lists.append(chronicle.take_changes([3])[3])
    assert [len(each) for each in lists] == [2, 2]
    assert restored({3: lists}) == [(LEFT, [1, 2, 3, 4, 5], [3] * 5)]


def test_rows_of_another_schema_come_back_too() -> None:
    chronicle = ChangelogWriter(np.full(SHARDS, NO_WATERMARK))
    lists: list[list[Record]] = []
    for kind in (pa.int64(), pa.int32(), pa.int64()):
        chronicle.added(LEFT, keyed_rows([1, 2], kind))
        lists.append(chronicle.take_changes([3])[3])
    assert restored({3: lists}) == [(LEFT, [1, 2, 1, 2], [3] * 4), (LEFT, [1, 2], [3, 3])]


def test_rows_of_a_shard_that_has_ended_do_not_come_back_with_those_of_others() -> None:
    chronicle = ChangelogWriter(np.full(SHARDS, NO_WATERMARK))
    chronicle.added(LEFT, keyed_rows([1, 2]))
    records = chronicle.take_changes([3])[3]
    stored: list[Restored] = []
    restoring = restoring_into(stored)
    for shard in (3, 4):
        for each in records:
            restoring.apply(shard, each)  # type: ignore[arg-type]
    restoring.forget(3)
    restoring.finish()
    assert stored == [(LEFT, [1, 2], [4, 4])]


def test_records_of_few_rows_are_put_together_before_they_are_looked_at() -> None:
    """What a record costs does not grow with how many there are."""
    chronicle = ChangelogWriter(np.full(SHARDS, NO_WATERMARK))
    lists = []
    for number in range(1_000):
        chronicle.added(LEFT if number % 2 else RIGHT, keyed_rows([number]))
        lists.append(chronicle.take_changes([3])[3])
    assert [len(numbers) for _, numbers, _ in restored({3: lists})] == [500, 500]


def test_rows_without_a_schema_are_refused() -> None:
    with pytest.raises(SegmentError, match="shard 3 of a join come before their schema"):
        restored({3: [[JoinRows(JOINED, LEFT, 1, [b"\1", bytes(8)])]]})
