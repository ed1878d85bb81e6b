"""The state that a job on Spark holds between two micro-batches.

The commit of a micro-batch names the chunks that are its state, so what they say is durable. They
never change; but the next commit may do without some of them, and its worker removes these. Whoever
finds one gone reads the commit again. A chunk that is read stays read, so each time is shorter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from onyx.errors import Unavailable
from onyx.ids import JobId
from onyx.log.interface import LogReader
from onyx.spark.driver.committed import committed
from onyx.state.buckets import ChunkShards, read_bucket, shards_of
from onyx.state.names import TaskFolder
from onyx.state.reading import THREADS
from onyx.state.shard_state import ShardState
from onyx.storage.fenced_log import Missing
from onyx.storage.interface import BlobStore

COMMITS_MAX = 8
"""So many commits are tried."""


def committed_state(
    log: LogReader, store: BlobStore, job: JobId, task: str, shards: Collection[int] | None
) -> Mapping[int, ShardState]:
    """The state of shards of a windowed task, all as of one commit; shards without any are left
    out.

    Args:
        shards: None: the only one of a task that is not grouped, whichever bucket has it.

    Raises:
        StateError: a chunk is damaged.
        Unavailable: a chunk is gone each time, or log or store does not answer.
    """
    wanted = {0} if shards is None else set(shards)
    known: dict[str, ChunkShards] = {}
    read = partial(_read, known, store, TaskFolder(job, task), wanted)
    gone = ""
    with ThreadPoolExecutor(THREADS, "onyx-state") as threads:
        for _ in range(COMMITS_MAX):
            found = committed(log, job)
            if found is None:
                return {}
            buckets = found[0].held.of(task, shards)
            names = [name for bucket in buckets for name, _ in bucket.files]
            try:
                return shards_of(threads.map(read, names))
            except Missing as error:
                gone = str(error)
    raise Unavailable(
        f"state chunk {gone} is gone: micro-batches of the job follow each other faster than their "
        "state is read, or it is lost"
    )


def _read(
    known: dict[str, ChunkShards], store: BlobStore, folder: TaskFolder, shards: set[int], name: str
) -> ChunkShards:
    """What a chunk says, read once."""
    if name not in known:
        known[name] = read_bucket(store, folder, name, shards)
    return known[name]
