"""State of windows and joins between micro-batches: chunks in the state store, as state logs have
them.

A chunk (`state.buckets`) counts when a committed document names it (`request.BucketState`), so a
try that was not committed changes nothing, whoever made it and however late. First the whole state
of a bucket, then what each batch has changed; when changes are as large as the whole, or many, it
is written anew.

A process of Spark remembers what it has written last, because it often gets the bucket again. That
counts only if the document names exactly this.

Rejected: `transformWithState`, whose store would have to be on a volume for all workers, would move
every state through the JVM, and cannot be committed together with positions and outputs.
"""

from __future__ import annotations

from functools import lru_cache

from onyx.program.program import Program
from onyx.spark.driver.request import BucketState
from onyx.spark_query.folding.contents import Contents
from onyx.spark_query.programs import Query
from onyx.state.buckets import encode_bucket, read_buckets, write_bucket
from onyx.state.chunks import Kind
from onyx.state.names import TaskFolder
from onyx.state.opening import open_store

CHUNKS_MAX = 8
"""The chunks of one bucket, before its state is written anew: a process that does not have it reads
them all.
"""
WARM_BYTES_MAX = 64 * 1024 * 1024
"""The size of chunks whose state a process remembers: in memory it is several times as large."""


_store = lru_cache(maxsize=4)(open_store)
"""One for all fragments and micro-batches of a process: that of S3 takes its time to open."""
_warm: dict[tuple[str, str, int], tuple[Query, BucketState, Contents]] = {}
"""By job, task and bucket: what it was when this process had it last, for a query, whose tables an
operator may have. Oldest first."""


class KeptStates:
    """The states of the buckets that one fragment works on. Everything blocks.

    Everything raises Unavailable and UserError as the state store does.
    """

    def __init__(self, query: Query) -> None:
        request, self._query = query.request, query
        self._job = request.job_id
        self._store = _store(request.state_location, request.state_group_access)

    def load(self, program: Program, state: BucketState) -> Contents:
        """What a bucket held behind the last batch.

        Raises:
            StateError: a chunk is gone or damaged.
        """
        known = _warm.pop((self._job, state.task, state.bucket), None)
        if known is not None:
            query, before, contents = known
            if query is self._query and before == state:
                return contents
            contents.operator.close()
        contents = Contents.empty(program, state.bucket, self._query.config)
        names, folder = (name for name, _ in state.files), TaskFolder(self._job, state.task)
        contents.restore(read_buckets(self._store, folder, names, contents.shards))
        if state.mark is not None:
            contents.resume(state.mark)
        return contents

    def save(
        self, contents: Contents, state: BucketState, number: int
    ) -> tuple[tuple[str, int], ...]:
        """Write what a batch has changed; what is the state of the bucket from now on.

        Args:
            state: before the batch.
            number: of the batch.

        Raises:
            SegmentError: a value of a state has no encoding.
        """
        changes, folder = contents.changes(), TaskFolder(self._job, state.task)
        if not changes:
            return state.files
        if state.files:
            data = encode_bucket(folder, number, state.bucket, Kind.CHANGE, changes)
            (_, whole), *since = state.files
            if len(state.files) < CHUNKS_MAX and sum(n for _, n in since) + len(data) < whole:
                return (*state.files, write_bucket(self._store, folder, number, state.bucket, data))
        all_there_is = contents.whole()
        if not all_there_is:
            return ()
        data = encode_bucket(folder, number, state.bucket, Kind.SNAPSHOT, all_there_is)
        return (write_bucket(self._store, folder, number, state.bucket, data),)

    def remember(self, state: BucketState, contents: Contents) -> None:
        """Keep them in memory, as they are behind a batch."""
        if state.files:
            _warm[self._job, state.task, state.bucket] = self._query, state, contents
        else:
            contents.operator.close()
        sizes = [(key, sum(size for _, size in its.files)) for key, (_, its, _) in _warm.items()]
        total = sum(size for _, size in sizes)
        for key, size in sizes:
            if total <= WARM_BYTES_MAX:
                break
            _warm.pop(key)[-1].operator.close()
            total -= size
