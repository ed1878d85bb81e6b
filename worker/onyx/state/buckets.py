"""Chunks of state between micro-batches on Spark, as state logs have them.

    <state>/<job>/buckets.spark/<task>/<number of the batch>-<bucket>-<random>

A chunk never changes, and counts when the commit of a job names it (`spark.driver.request`).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from zlib import crc32

from onyx.errors import StateError
from onyx.state.chunks import (
    Chunk,
    ChunkFrame,
    ChunkReader,
    ShardChange,
    StateChunkKind,
    StoredShard,
    all_sections_of,
    encode_chunk,
)
from onyx.state.names import LogKey, TaskFolder, bucket_chunk
from onyx.state.shard_states import ShardState
from onyx.storage.fenced_log import Missing
from onyx.storage.interface import BlobStore

ChunkShards = list[tuple[int, StoredShard]]
"""What a chunk says of shards, by their numbers."""


def bucket_of(task: str, buckets: int) -> int:
    """The bucket of a task that is not grouped: spread over all by its name."""
    return crc32(task.encode()) % buckets


def new_name(batch: int, bucket: int) -> str:
    """A name for a chunk that nobody has used."""
    return f"{batch}-{bucket}-{secrets.token_hex(6)}"


def encode_bucket(
    folder: TaskFolder,
    batch: int,
    bucket: int,
    kind: StateChunkKind,
    shards: Mapping[int, ShardChange],
) -> bytes:
    """A chunk of a bucket, made by a micro-batch.

    Raises:
        SegmentError: a value of a state has no encoding.
    """
    sections = all_sections_of(shards)
    return encode_chunk(folder, LogKey(batch, bucket), ChunkFrame(kind, 0), Chunk(), sections)


def write_bucket(
    store: BlobStore, folder: TaskFolder, batch: int, bucket: int, data: bytes
) -> tuple[str, int]:
    """Store a chunk; its name and bytes, as a commit says them."""
    name = new_name(batch, bucket)
    path = bucket_chunk(folder.job, folder.task, name)
    if not store.create(path, data):
        raise StateError(f"state chunk {path} is there already, with other bytes")
    return name, len(data)


def first_chunk(
    store: BlobStore, folder: TaskFolder, bucket: int, shards: Mapping[int, ShardChange]
) -> tuple[tuple[str, int], ...]:
    """Write what a bucket begins with, if there is anything; the chunks that a commit names."""
    there = {number: each for number, each in shards.items() if each.records or each.keys}
    if not there:
        return ()
    data = encode_bucket(folder, 0, bucket, StateChunkKind.SNAPSHOT, there)
    return (write_bucket(store, folder, 0, bucket, data),)


def read_bucket(
    store: BlobStore, folder: TaskFolder, name: str, shards: Collection[int]
) -> ChunkShards:
    """What a chunk says of some shards.

    Raises:
        Missing: it is not there, with its path.
        StateError: it is damaged.
        Unavailable, UserError: as everything of the store.
    """
    path = bucket_chunk(folder.job, folder.task, name)
    data = store.read(path)
    if data is None:
        raise Missing(path)
    batch, bucket, _ = name.split("-")
    reader = ChunkReader(folder, LogKey(int(batch), int(bucket)), 0, data)
    return list(reader.shards(set(shards)))


def shards_of(chunks: Iterable[ChunkShards]) -> dict[int, ShardState]:
    """The state of shards out of chunks in their order."""
    found: dict[int, ShardState] = {}
    for chunk in chunks:
        for number, stored in chunk:
            found.setdefault(number, ShardState()).extend(stored)
    return found


def read_buckets(
    store: BlobStore, folder: TaskFolder, names: Iterable[str], shards: Collection[int]
) -> dict[int, ShardState]:
    """The state of shards out of chunks that a commit names.

    Raises:
        StateError: a chunk is gone or damaged.
        Unavailable, UserError: as everything of the store.
    """
    wanted = set(shards)
    try:
        return shards_of(read_bucket(store, folder, name, wanted) for name in names)
    except Missing as error:
        raise StateError(
            f"state chunk {error} of the job is gone: ONYX_STATE_URL of all workers must be one "
            "folder that they share with Spark's executors and that stays, or s3://bucket/prefix; "
            "submit the job again under another name"
        ) from error
