"""Exactly-once outputs: which segments a part holds is durable before the part is published.

A part is staged, then a chunk of the state log commits it: the chunk holds the token that
publishes the part, and which segments are in it. Then the part is published. The chunk decides:
segments in it are never written again, and whoever takes over publishes the part if that had not
been done. What was written and is in no chunk is dropped and replayed.

Segments are dealt to the peers of such an output by their ids, so that a repeat comes to whoever
has the log of the first time. A log commits one part after another, and only the last one may be
unpublished; its token is a record of the lowest shard of the writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np

from onyx.base.runs import Numbers, array_of, joined, taken
from onyx.errors import Fenced, Unavailable
from onyx.flow.batch import Batch, chosen_by
from onyx.flow.leaves import Leaves
from onyx.keystate.records import StagedOutput
from onyx.ledger.applied import Applied
from onyx.ledger.lineage import without_attempts
from onyx.plugins.protocol import Token
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.log import LogCollector
from onyx.state.recovery import RecoveredState
from onyx.task.sink.sink import Sink


class OutputCommits:
    """The commits of one output task on one peer, in one allocation version. Used by the task's
    thread."""

    def __init__(
        self,
        recovered: RecoveredState,
        sink: Sink,
        background: Callable[[Callable[[], None]], Future[None]],
    ) -> None:
        """`background` runs work on another thread."""
        self._log = recovered.log
        self._collector = LogCollector(recovered.log, background)
        self._shards = sorted(recovered.shards)
        self._sink = sink
        self._applied = Applied(recovered.roots, recovered.ids)
        self._applied.rewired()
        self._columns: deque[tuple[int, Numbers, Numbers]] = deque()
        """Written and not committed, with the count of segments written by then."""
        self._committed = 0
        self._forgotten: dict[int, int] = {}
        self._doubtful: tuple[Token, Chunk] | None = None

    def begin(self) -> None:
        """From now on the plugin commits what it writes."""
        self._sink.begin(self.commit)
        self._committed = self._sink.written

    def write(self, batch: Batch, leaves: Leaves) -> None:
        """Write what has not been written before; all of the batch is acked when that is published.

        Raises:
            Unavailable: nothing was taken; the same batch is to be written again.
            Exception: nothing was taken; the plugin cannot write some of it.
        """
        roots, ids = batch.roots, batch.ids
        assert roots is not None
        assert ids is not None
        segments, parents = leaves.segments, leaves.parents
        known = self._applied.known(roots, ids)
        fresh_roots, fresh_ids = roots, ids
        if known is not None:
            news = ~known
            parents = np.arange(len(segments)) if parents is None else parents
            fresh = news[parents]
            segments, parents = chosen_by(segments, fresh), parents[fresh]
            fresh_roots, fresh_ids = taken(roots, news), taken(ids, news)
        self._columns.append((self._sink.written + len(segments), fresh_roots, fresh_ids))
        try:
            self._sink.write(segments, roots, ids, parents)
        except Exception:
            self._columns.pop()
            raise
        self._applied.add(fresh_roots, fresh_ids)

    def commit(self, token: Token, segments: int) -> None:
        """The plugin is about to publish its next so many segments."""
        until = self._committed + segments
        if self._doubtful is None or self._doubtful[0] is not token:
            self._snapshot_if_due()
            self._doubtful = token, self._chunk(token, until)
        try:
            self._log.append(self._doubtful[1])
        except Fenced as error:
            raise Unavailable(f"{error}; waiting for the new allocation") from error
        self._doubtful = None
        self._committed = until
        self._forgotten = {}
        while self._columns and self._columns[0][0] <= until:
            self._columns.popleft()

    def forget(self, frontiers: dict[int, int]) -> None:
        """Nothing below these positions of their partitions comes again."""
        if frontiers:
            self._applied.forget(frontiers)
            self._forgotten |= frontiers

    def _chunk(self, token: Token, until: int) -> Chunk:
        columns = [(roots, ids) for at, roots, ids in self._columns if at <= until]
        return Chunk(
            shards={self._shards[0]: ShardChange(records=[StagedOutput(dict(token))])},
            roots=without_attempts(array_of(joined([roots for roots, _ in columns]))),
            ids=array_of(joined([ids for _, ids in columns])),
            forgotten=self._forgotten,
        )

    def _snapshot_if_due(self) -> None:
        """All parts before are published, so the ids of what they hold are the whole state."""
        if not self._log.wants_snapshot:
            return
        roots, ids = self._applied.columns()
        if self._columns:
            uncommitted = array_of(joined([each for _, _, each in self._columns]))
            kept = ~np.isin(ids, uncommitted)
            roots, ids = roots[kept], ids[kept]
        empty = {shard: ShardChange() for shard in self._shards}
        try:
            self._log.snapshot(Chunk(empty, roots, ids))
        except Fenced as error:
            raise Unavailable(f"{error}; waiting for the new allocation") from error
        self._collector.begin()
