"""Chunks as bytes: what goes in comes out, and nothing but a chunk of its own folder is read."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.log.records import noted, notes

from onyx.codec.values import decode_records, decode_values
from onyx.errors import SegmentError, StateError
from onyx.flow.batch import as_dicts
from onyx.flow.columns.record_batch import Columns
from onyx.keystate.records import AddUpdates, SetStates, StagedOutput
from onyx.state.chunks import (
    BLOCK_BYTES,
    FORMAT,
    Base,
    Chunk,
    ChunkFrame,
    ChunkReader,
    EmittedRun,
    ShardChange,
    StateChunkKind,
    all_sections_of,
    decode_emitted,
    encode_chunk,
    sections_of,
)
from onyx.state.local.scratch import bytes_of
from onyx.state.names import LogKey, TaskFolder

PLACE = TaskFolder("flights", "hourly")
KEY = LogKey(17, 2)
NAME = "flights/hourly/00000000000000000017-00002/00000005"


def column(*values: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array(values, dtype=np.uint64)


def encoded(chunk: Chunk, frame: ChunkFrame | None = None) -> bytes:
    frame = frame or ChunkFrame(StateChunkKind.CHANGE, 5)
    return encode_chunk(PLACE, KEY, frame, chunk, list(sections_of(chunk.shards.items())))


def read(data: bytes, seq: int = 5) -> ChunkReader:
    return ChunkReader(PLACE, KEY, seq, data)


VALUES = [1, -2, 2**63, 1.5, None, True, "ö", b"\x00", datetime(2026, 1, 1, tzinfo=UTC)]
EMITTED = [
    EmittedRun(7, [{"x": 1}, {"x": 2}]),
    EmittedRun(9, Columns(pa.record_batch({"x": [3]})), "late"),
]
RECORDS = [
    SetStates("hours", 7, ["SFO"], [3]),
    AddUpdates("lists", 7, "SFO", VALUES),
    StagedOutput({"key": {7: "a number as a key"}}),
]


def test_a_chunk_comes_back_as_it_was() -> None:
    chunk = Chunk(
        shards={
            3: ShardChange(RECORDS, EMITTED, settled=6, keys=["a", 1]),
            9: ShardChange(closed=True),
        },
        roots=column(1, 2, 2**63),
        ids=column(2**64 - 1, 0, 5),
        forgotten={0: 12, 40: 2**39},
        watermark=1_700_000_000_000,
    )

    found = read(encoded(chunk))
    shards = dict(found.shards({3, 9}))

    assert found.frame == ChunkFrame(StateChunkKind.CHANGE, 5)
    assert [each.tolist() for each in found.columns()] == [[1, 2, 2**63], [2**64 - 1, 0, 5]]
    assert found.forgotten == {0: 12, 40: 2**39}
    assert found.watermark == 1_700_000_000_000
    assert decode_records(bytes_of(shards[3].records)) == RECORDS
    found_runs = [
        (run.first, as_dicts(run.segments), run.child) for run in decode_emitted(shards[3].emitted)
    ]
    assert found_runs == [(7, [{"x": 1}, {"x": 2}], None), (9, [{"x": 3}], "late")]
    assert decode_values(shards[3].keys) == ["a", 1]
    assert (shards[3].settled, shards[3].closed) == (6, False)
    assert (shards[9].settled, shards[9].closed, shards[9].records) == (0, True, b"")


@pytest.mark.parametrize("odd", [3, Decimal("1.5"), (1, 2)])
def test_shards_that_are_encoded_together_have_the_bytes_of_each_alone(odd: Any) -> None:
    shards = {
        1: ShardChange([SetStates("hours", 7, ["SFO"], [odd])], EMITTED),
        4: ShardChange(settled=3),
        5: ShardChange(RECORDS[:1], keys=["a"]),
    }
    assert all_sections_of(shards) == list(sections_of(shards.items()))


def test_the_first_chunk_says_where_shards_come_from() -> None:
    frame = ChunkFrame(
        StateChunkKind.OPEN, 5, (0, 4), (Base(3, 1, (0,), 1, 9), Base(3, 2, (4,), 7, 8))
    )
    assert read(encoded(Chunk(watermark=1.5), frame)).frame == frame


def test_only_the_blocks_of_the_shards_that_are_wanted_are_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    big = "x" * (BLOCK_BYTES // 4)
    chunk = Chunk({shard: ShardChange(notes(shard, big) * 3) for shard in range(8)})
    found = read(encoded(chunk))
    unpacked = []
    block = ChunkReader._block

    def spied(reader: ChunkReader, number: int) -> memoryview:
        unpacked.append(number)
        return block(reader, number)

    monkeypatch.setattr(ChunkReader, "_block", spied)
    shards = list(found.shards({2, 3, 7}))

    assert [number for number, _ in shards] == [2, 3, 7]
    assert noted(decode_records(bytes_of(shards[0][1].records))) == [2, big] * 3
    assert unpacked == [1, 3]


def test_what_does_not_get_smaller_is_kept_as_it_is() -> None:
    noise = bytes(np.random.default_rng(1).integers(0, 256, 100_000, dtype=np.uint8))
    found = read(encoded(Chunk({0: ShardChange(notes(noise))})))
    assert noted(decode_records(bytes_of(dict(found.shards({0}))[0].records))) == [noise]


def test_a_chunk_of_a_thousand_records_and_ten_thousand_ids_is_not_much_more_than_its_ids() -> None:
    records = [SetStates("w", n % 7, [f"key-{n}"], [n]) for n in range(1000)]
    ids = np.random.default_rng(1).integers(0, 2**63, 10_000, dtype=np.uint64)
    roots = np.arange(5_000, 15_000, dtype=np.uint64)

    data = encoded(Chunk({0: ShardChange(records)}, roots, ids))

    assert len(data) < 8 * 10_000 + 16 * 1000


# --- what is no chunk ----------------------------------------------------------------------------

GOOD = encoded(Chunk({1: ShardChange(RECORDS)}, column(1), column(2)))


def test_every_flipped_bit_is_noticed_and_reported_with_file_job_task_and_what_to_do() -> None:
    for at in range(len(GOOD)):
        damaged = bytearray(GOOD)
        damaged[at] ^= 1 << (at % 8)
        with pytest.raises(StateError) as caught:
            read(bytes(damaged))
        message = str(caught.value)
        assert NAME in message
        assert "job 'flights', task 'hourly'" in message
        assert "restore it from a copy" in message


def test_every_truncated_chunk_is_noticed() -> None:
    for length in range(len(GOOD)):
        with pytest.raises(StateError, match="00000005"):
            read(GOOD[:length])


def test_bytes_after_the_end_are_noticed() -> None:
    with pytest.raises(StateError, match="damaged"):
        read(GOOD + b"x")


@pytest.mark.parametrize(
    ("folder", "key", "seq"),
    [
        (TaskFolder("other", "hourly"), KEY, 5),
        (TaskFolder("flights", "daily"), KEY, 5),
        (PLACE, LogKey(18, 2), 5),
        (PLACE, LogKey(17, 1), 5),
        (PLACE, KEY, 6),
    ],
)
def test_a_chunk_in_the_wrong_file_is_noticed(folder: TaskFolder, key: LogKey, seq: int) -> None:
    with pytest.raises(StateError, match="another file, flights/hourly 17-2 5"):
        ChunkReader(folder, key, seq, GOOD)


def test_a_chunk_of_a_later_version_is_not_taken_for_damage() -> None:
    magic, version, _ = FORMAT
    newer = magic + (version + 1).to_bytes(2, "little") + GOOD[len(magic) + 2 :]
    message = f"is of format {version + 1}, this version of Onyx reads format {version}"
    with pytest.raises(StateError, match=message):
        read(newer)


@pytest.mark.parametrize(
    "roots",
    [[], [2**64 - 1], [0, 0, 0, 1, 1, 2], [5, 6, 2**48, 2**48 + 1, 7], [2**63, 0, 2**64 - 1]],
)
def test_roots_come_back_in_whatever_order_they_are(roots: list[int]) -> None:
    chunk = Chunk(roots=column(*roots), ids=column(*range(len(roots))))
    assert read(encoded(chunk)).columns()[0].tolist() == roots


def test_the_roots_of_many_leaves_take_hardly_any_room() -> None:
    roots = column(*range(1_000)).repeat(10)
    plain = encoded(Chunk(roots=roots, ids=roots))
    assert len(plain) < len(roots) * 8 * 1.1


def test_something_else_is_not_a_chunk() -> None:
    with pytest.raises(StateError, match="is no chunk of state"):
        read(b"PAR1" + bytes(100))


# --- what cannot be written ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (2**64, "an int beyond 64 bits"),
        ({1, 2}, "a set"),
        (object(), "an object"),
        (datetime(2026, 1, 1), "without a time zone"),  # noqa: DTZ001
    ],
)
def test_state_that_would_not_come_back_is_refused(state: Any, reason: str) -> None:
    with pytest.raises(SegmentError, match=f"state cannot be written.*{reason}.*may have"):
        encoded(Chunk({0: ShardChange(notes(state))}))
    with pytest.raises(SegmentError, match=f"state cannot be written.*{reason}.*may have"):
        all_sections_of({0: ShardChange(notes(state)), 1: ShardChange(notes(1))})
