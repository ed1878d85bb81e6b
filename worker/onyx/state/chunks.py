"""What one append makes durable, and its bytes: changes of some shards and the ids of the segments
in them.

Both in one chunk, because exactly-once rests on it: a segment is known to be applied exactly when
its change is there. What records mean is defined in `keystate/records`.

A peer that recovers some shards reads chunks of peers that had other shards too. So a shard's
values are bytes of their own, packed with those of its neighbours into compressed blocks: only
blocks that are needed are unpacked, and values are decoded shard by shard, on demand. Ids are a raw
column, because they look random and do not get smaller. Roots are compressed as distances: nearly
all are 0 or 1, which halves what is written.

The file is sealed (`codec.sealed`). Its header is msgpack (`_Header`), its body roots, lz4; ids, 8
bytes each; blocks, lz4 unless that is larger. The names in the header reveal a chunk in the wrong
file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import field
from msgspec.structs import astuple, replace

from onyx.base.runs import U64, Numbers, array_of
from onyx.base.structs import RESTORE, UNREADABLE
from onyx.codec.sealed import FileFormat, seal, unseal
from onyx.codec.segment_runs import decode_run, encode_run
from onyx.codec.segments import decode_column, encode_column
from onyx.codec.values import decode_values, encode_all, encode_records, encode_values
from onyx.errors import SegmentError, StateError
from onyx.flow.batch import EncodedRun, Segments, part_of
from onyx.keystate.records import Record
from onyx.state.local.scratch import Keep, Kept
from onyx.state.names import LogKey, TaskFolder

Watermark = int | float
"""Event time in milliseconds, or any ordered number that a window is over."""


FORMAT = FileFormat(b"ONYXST", 7, "chunk of state")
BLOCK_BYTES = 262_144
"""Size from which on a block is packed."""
_CODEC = "lz4"
_LITTLE_ENDIAN = np.dtype("<u8")
_encoder = msgspec.msgpack.Encoder()


def _no_column() -> U64:
    return np.empty(0, dtype=np.uint64)


class EmittedRun(NamedTuple):
    """What triggers of a shard have emitted, at consecutive positions."""

    first: int
    """Position of the first one."""
    segments: Segments
    child: str | None = None
    """The only child task that they are for; None: all."""
    encoded: EncodedRun | None = None
    """What `encode_run` gives of them, or stands for it, if somebody has that."""

    def behind(self, position: int) -> EmittedRun | None:
        """The part from this position on; None: there is none."""
        past = position - self.first
        if past <= 0:
            return self
        if past >= len(self.segments):
            return None
        return EmittedRun(position, part_of(self.segments, past, len(self.segments)), self.child)


class ShardChange(msgspec.Struct):
    """What became of one shard since the chunk before; in a snapshot, all of it."""

    records: Iterable[Record] = ()
    """The changes of `Operator.take_changes`, in order; of an output, `StagedOutput`. In a snapshot
    they may be read as they are asked for, and once."""
    emitted: Sequence[EmittedRun] = ()
    """What its triggers emitted, whose positions increase; in a snapshot, what is not settled."""
    settled: int = 0
    """Emission frontier: the trees of all positions below are complete. Never falls."""
    closed: bool = False
    """Whether the shard has fired for the last time."""
    keys: list[Any] = field(default_factory=list)
    """Values of the `uniquenessKey` seen; in a snapshot, all that are remembered, oldest first."""


class Chunk(msgspec.Struct):
    """One atomic step of the state of a peer."""

    shards: Mapping[int, ShardChange] = field(default_factory=dict)
    roots: Numbers = field(default_factory=_no_column)
    """The roots of the segments applied, attempt bits cleared (`lineage.first_attempts`)."""
    ids: Numbers = field(default_factory=_no_column)
    """One a root."""
    forgotten: Mapping[int, int] = field(default_factory=dict)
    """Frontiers by partition, below which nothing is ever replayed and no id is kept."""
    watermark: Watermark | None = None
    """The watermark of the task; None says nothing."""


class StateChunkKind(IntEnum):
    """What a chunk is for."""

    OPEN = 0
    """The first of a log: which shards it has, and from where they come."""
    CHANGE = 1
    SNAPSHOT = 2
    """A part of one, which counts when its last part is there."""
    FENCE = 3
    """The end of a log: a writer that finds it may not append."""


class Base(msgspec.Struct, array_like=True, frozen=True):
    """A part of an older log that shards of a newer one come from."""

    version: int
    rank: int
    shards: tuple[int, ...]
    first: int
    """Chunks `first` to before `end`."""
    end: int

    @property
    def key(self) -> LogKey:
        """The older log."""
        return LogKey(self.version, self.rank)


def merged(bases: Iterable[Base]) -> tuple[Base, ...]:
    """One base for each part of a log, oldest first."""
    shards: dict[tuple[int, int, int, int], set[int]] = {}
    for base in bases:
        shards.setdefault((*base.key, base.first, base.end), set()).update(base.shards)
    return tuple(
        Base(version, rank, tuple(sorted(numbers)), first, end)
        for (version, rank, first, end), numbers in sorted(shards.items())
    )


class ChunkFrame(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True):
    """What a chunk is, beside its content."""

    kind: StateChunkKind
    seq: int
    shards: tuple[int, ...] = ()
    """OPEN: those that the log has."""
    bases: tuple[Base, ...] = ()
    """OPEN: where they come from, oldest first."""
    start: int = 0
    """SNAPSHOT: number of its first part."""
    last: bool = False
    """SNAPSHOT: whether this is its last part."""
    carries_over: bool = False
    """OPEN: the log has its shards only once its first snapshot is marked as complete, because some
    of them come from another job."""


class _Shard(msgspec.Struct, array_like=True, frozen=True):
    number: int
    settled: int
    closed: bool
    block: int
    at: int
    """Byte within the block."""
    records: int
    """Bytes; those of emissions and of keys follow."""
    emitted: int
    keys: int


class _Header(msgspec.Struct, array_like=True, frozen=True):
    job: str
    task: str
    version: int
    rank: int
    frame: ChunkFrame
    watermark: Watermark | None
    forgotten: dict[int, int]
    segments: int
    """How many roots and ids."""
    columns: tuple[int, int]
    """Bytes of each."""
    shards: tuple[_Shard, ...]
    blocks: tuple[tuple[int, int], ...]
    """Bytes of each, unpacked and packed; the same when it is not packed."""
    values: int
    """How many records, and values in them."""


class ShardSection(NamedTuple):
    """A shard's values, encoded."""

    number: int
    change: ShardChange
    records: bytes
    emitted: bytes
    keys: bytes
    values: int
    """How many records, and values in them: what is restored one by one."""

    @property
    def size_bytes(self) -> int:
        """Encoded, before compression."""
        return len(self.records) + len(self.emitted) + len(self.keys)


class StoredShard(NamedTuple):
    """A shard's values as they were read."""

    settled: int
    closed: bool
    records: Kept
    emitted: bytes
    keys: Kept
    """What `decode_emitted` and `decode_values` take, or empty. Copies, which do not hold the
    block."""


_decoder = msgspec.msgpack.Decoder(_Header)


def sections_of(shards: Iterable[tuple[int, ShardChange]]) -> Iterator[ShardSection]:
    """Shards, encoded one by one, as memory is to hold only one of them.

    Raises:
        SegmentError: a value has no encoding.
    """
    for number, change in shards:
        records = list(change.records)
        yield _section(number, change, records, encode_records(records) if records else b"")


def all_sections_of(shards: Mapping[int, ShardChange]) -> list[ShardSection]:
    """The sections of all at once, which takes less time. Raises like `sections_of`."""
    lists = {number: list(change.records) for number, change in shards.items()}
    with_records = [number for number, records in lists.items() if records]
    found = encode_all([lists[number] for number in with_records])
    encoded = dict(zip(with_records, found, strict=True))
    return [
        _section(number, change, lists[number], encoded.get(number, b""))
        for number, change in shards.items()
    ]


def _values(record: Record) -> int:
    return 1 + sum(len(each) for each in astuple(record) if type(each) is list)


def _section(
    number: int, change: ShardChange, records: Sequence[Record], encoded: bytes
) -> ShardSection:
    emitted = encode_emitted(change.emitted) if change.emitted else b""
    keys = encode_values(change.keys) if change.keys else b""
    values = sum(map(_values, records))
    return ShardSection(number, change, encoded, emitted, keys, values)


def encode_emitted(runs: Sequence[EmittedRun]) -> bytes:
    """The bytes of some runs.

    Raises:
        SegmentError: a value has no encoding.
    """
    ends = [each.first + len(each.segments) for each in runs]
    assert all(end <= each.first for end, each in zip(ends, runs[1:], strict=False)), "in order"
    encoded = [each.encoded or encode_run(each.segments) for each in runs]
    return encode_values(
        [[each.first, each.child, *data] for each, data in zip(runs, encoded, strict=True)]
    )


def decode_emitted(data: bytes) -> Iterator[EmittedRun]:
    """The runs of `encode_emitted`.

    Raises:
        SegmentError: the bytes are not those of runs.
    """
    for first, child, payload, schema in decode_values(data):
        yield EmittedRun(first, decode_run(payload, schema), child)


def encode_chunk(
    folder: TaskFolder,
    key: LogKey,
    frame: ChunkFrame,
    chunk: Chunk,
    sections: Sequence[ShardSection],
) -> bytes:
    """The bytes of a chunk; those of its shards are in the sections."""
    assert len(chunk.roots) == len(chunk.ids), "an id a root"
    assert frame.start <= frame.seq, "the first part of a snapshot is not behind another"
    columns = [_packed_roots(array_of(chunk.roots)), encode_column(chunk.ids)]
    shards, blocks = _packed(sections)
    header = _encoder.encode(
        _Header(
            folder.job,
            folder.task,
            key.version,
            key.rank,
            frame,
            chunk.watermark,
            dict(chunk.forgotten),
            len(chunk.roots),
            (len(columns[0]), len(columns[1])),
            tuple(shards),
            tuple((size, len(block)) for size, block in blocks),
            sum(section.values for section in sections),
        )
    )
    return seal(FORMAT, header, [*columns, *(block for _, block in blocks)])


class ChunkReader:
    """A chunk as it was read: its header, and the rest on demand."""

    def __init__(
        self, folder: TaskFolder, key: LogKey, seq: int, data: bytes, keep: Keep = bytes
    ) -> None:
        """
        Raises:
            StateError: these are not the bytes of this chunk.
        """
        self._keep = keep
        self._where = f"{folder.chunk(key, seq)} (job {folder.job!r}, task {folder.task!r})"
        self.size_bytes = len(data)
        header, self._body = _opened(data, self._where)
        wanted = (folder.job, folder.task, key.version, key.rank, seq)
        found = (header.job, header.task, header.version, header.rank, header.frame.seq)
        if found != wanted:
            raise _wrong(
                self._where, "holds a chunk of another file, {}/{} {}-{} {}".format(*found)
            )
        self.frame = header.frame
        self.watermark = header.watermark
        self.forgotten = header.forgotten
        self.values = header.values
        self._header = header

    @property
    def is_fence(self) -> bool:
        """Whether it ends its log."""
        return self.frame.kind is StateChunkKind.FENCE

    def columns(self) -> tuple[Numbers, Numbers]:
        """Roots and ids."""
        count, (roots, ids) = self._header.segments, self._header.columns
        found = (
            _unpacked_roots(bytes(self._body[:roots]), count),
            decode_column(bytes(self._body[roots : roots + ids]), count),
        )
        empty = np.empty(0, dtype=np.uint64)
        return tuple(empty if each is None else each for each in found)  # type: ignore[return-value]

    def shards(self, wanted: set[int]) -> Iterator[tuple[int, StoredShard]]:
        """The shards that the chunk has something of, in its order."""
        unpacked, block = -1, memoryview(b"")
        for each in self._header.shards:
            if each.number not in wanted:
                continue
            if each.block != unpacked:
                unpacked, block = each.block, self._block(each.block)
            ends = accumulate((each.at, each.records, each.emitted, each.keys))
            records, emitted, keys = (block[first:end] for first, end in pairwise(ends))
            kept = [self._keep(data) if data else b"" for data in (records, keys)]
            yield (
                each.number,
                StoredShard(each.settled, each.closed, kept[0], bytes(emitted), kept[1]),
            )

    def _block(self, number: int) -> memoryview:
        sizes = self._header.blocks
        first = sum(self._header.columns) + sum(packed for _, packed in sizes[:number])
        size, packed = sizes[number]
        block = self._body[first : first + packed]
        if size == packed:
            return block
        return memoryview(pa.Codec(_CODEC).decompress(block, size, asbytes=True))


def of_job(data: bytes, job: str, where: str) -> bytes:
    """A chunk as one of another job. Raises StateError: these are not the bytes of a chunk."""
    header, body = _opened(data, where)
    return seal(FORMAT, _encoder.encode(replace(header, job=job)), [bytes(body)])


def _packed(sections: Sequence[ShardSection]) -> tuple[list[_Shard], list[tuple[int, bytes]]]:
    """The shards, and the blocks that their values are in, each with its size unpacked."""
    shards: list[_Shard] = []
    blocks: list[tuple[int, bytes]] = []
    values: list[bytes] = []
    size = 0
    for number, change, records, emitted, keys, _ in sections:
        lengths = len(records), len(emitted), len(keys)
        shards.append(_Shard(number, change.settled, change.closed, len(blocks), size, *lengths))
        values += (records, emitted, keys)
        size += sum(lengths)
        # Only behind a shard, however large it is: whoever wants a shard unpacks one block.
        if size >= BLOCK_BYTES:
            blocks.append(_block(values))
            values, size = [], 0
    blocks.append(_block(values))
    assert not shards or shards[-1].block < len(blocks), "each shard is in a block"
    return shards, blocks


def _block(values: list[bytes]) -> tuple[int, bytes]:
    raw = b"".join(values)
    packed = pa.Codec(_CODEC).compress(raw, asbytes=True) if raw else raw
    return len(raw), packed if len(packed) < len(raw) else raw


def _packed_roots(roots: U64) -> bytes:
    # There may be millions of them: this makes one array, and no copies of it.
    distances = np.empty(len(roots), dtype=_LITTLE_ENDIAN)
    distances[:1] = roots[:1]
    np.subtract(roots[1:], roots[:-1], out=distances[1:])
    packed: bytes = pa.Codec(_CODEC).compress(distances, asbytes=True)
    return packed


def _unpacked_roots(packed: bytes, count: int) -> U64:
    size = count * _LITTLE_ENDIAN.itemsize
    distances = pa.Codec(_CODEC).decompress(packed, size, asbytes=True)
    return np.cumsum(np.frombuffer(distances, _LITTLE_ENDIAN), dtype=np.uint64)


def _opened(data: bytes, where: str) -> tuple[_Header, memoryview]:
    try:
        header, body = unseal(FORMAT, data)
    except SegmentError as error:
        raise _wrong(where, str(error)) from error
    try:
        return _decoder.decode(header), body
    except (*UNREADABLE, OverflowError) as error:
        raise _wrong(where, f"is of another version of Onyx ({error})") from error


def _wrong(where: str, what: str) -> StateError:
    return StateError(f"state chunk {where} {what}; {RESTORE}")
