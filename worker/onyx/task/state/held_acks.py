"""Acks that wait until all is processed that a task with state has made of what it acks.

What a task has emitted is a tree of its own, begun by the state log. So the tree of a request would
be complete when the log has it, and whoever is answered then would not find it in the outputs.
Where requests may come from, the acks of a chunk wait for the trees of what the chunk emitted; a
flush goes behind these, so that outputs publish at once. What functions of the tasks behind give
back for such a tree goes to the tree that it was made of.

A segment that had been applied before is acked when everything is complete that was emitted until
then: what was made of it is among that, also where it was taken over from a peer of before. In a
loop this might wait for itself, so there only its own chunk is waited for.

Rejected: asking only for those trees somebody waits for. Who asks again under the same id later,
and who asks another worker after a crash, would be answered too soon.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from onyx.base.runs import Numbers, array_of
from onyx.flow.batch import U64
from onyx.ledger.lineage import PARTITION_SHIFT, POSITIONS_MAX
from onyx.ledger.returns import Parts, Trees, without_values
from onyx.task.state.chunks import Columns, PendingChunk
from onyx.task.state.emissions import Emissions, Span

MIXED = (
    "it was given back for what a task with state has made of several segments at once, and cannot "
    "be separated: send one request at a time, or give it back before that task"
)


class _Chunk(msgspec.Struct):
    """What one chunk acks, and the emissions that it waits for."""

    values: list[Columns]
    spans: list[Span]
    unfinished: bool
    """More is to be made of some of it, and waited for."""
    own: list[tuple[Span, U64 | None]]
    """What it has emitted itself, each with the root that each segment was made of; None: that is
    not known."""

    @property
    def waits(self) -> bool:
        """Whether it has to wait."""
        return bool(self.spans) or self.unfinished


class HeldAcks:
    """Not thread-safe, but for `waiting_roots`."""

    def __init__(self, emissions: Emissions, in_a_loop: bool) -> None:
        self._emissions = emissions
        self._in_a_loop = in_a_loop
        self._held: deque[_Chunk] = deque()
        self._flush_at = -1
        """A flush goes out when so many emissions have been sent; -1: none."""

    def hold(self, durable: PendingChunk) -> list[Columns]:
        """A chunk is durable, and its emissions were released; what may be acked at once."""
        own = [
            (Span(shard, first, first + len(run.segments)), run.parents)
            for shard, runs in durable.emitted.items()
            for first, run in runs
        ]
        waits_for_all = durable.again and not self._in_a_loop
        spans = self._emissions.incomplete() if waits_for_all else [span for span, _ in own]
        if not durable.unfinished:
            self._finish()
        if not durable.values or not (spans or durable.unfinished):
            return durable.values
        self._held.append(_Chunk(durable.values, spans, durable.unfinished, own))
        return []

    def _finish(self) -> None:
        """All has been emitted that is made of what the chunks before ack; outputs make it durable
        at once, as what was emitted before."""
        for chunk in self._held:
            if chunk.unfinished:
                chunk.unfinished = False
                if not self._in_a_loop:
                    chunk.spans = self._emissions.incomplete()
                self.flush_behind()

    def take(self) -> list[Columns]:
        """What has become free."""
        found: list[Columns] = []
        for chunk in self._held:
            chunk.spans = [each for each in chunk.spans if not self._emissions.is_complete(each)]
            if not chunk.waits:
                found += chunk.values
        if found:
            self._held = deque(chunk for chunk in self._held if chunk.waits)
        return found

    def waiting_roots(self) -> list[Numbers]:
        """The roots of what is held; from any thread."""
        return [roots for chunk in tuple(self._held) for roots, _ in chunk.values]

    def returned(self, trees: Trees) -> Iterator[tuple[int, Parts]]:
        """What functions give back for trees of emissions, by the roots that these were made of."""
        for root, parts in trees.items():
            shard = self._emissions.shard_of(root >> PARTITION_SHIFT)
            position = root & (POSITIONS_MAX - 1)
            for chunk in self._held:
                yield from _given(chunk, shard, position, parts)

    # --- flushes --------------------------------------------------------------------------------

    def flush_behind(self) -> None:
        """Somebody upstream waits for all that has been read."""
        if self._emissions.sent_through < self._emissions.added:
            self._flush_at = self._emissions.added

    def wants_flush(self) -> bool:
        """Whether what was emitted until `flush_behind` has been sent, once."""
        due = 0 <= self._flush_at <= self._emissions.sent_through
        if due:
            self._flush_at = -1
        return due


def _given(chunk: _Chunk, shard: int, position: int, parts: Parts) -> Iterator[tuple[int, Parts]]:
    for span, parents in chunk.own:
        if span.shard != shard or not span.first <= position < span.end:
            continue
        if parents is not None:
            yield int(parents[position - span.first]), parts
            continue
        roots = _all_roots(chunk.values)
        if len(roots) > 1:
            parts = without_values(parts, MIXED)  # what failed has failed for all of them
        for root in roots:
            yield root, parts


def _all_roots(values: Iterable[Columns]) -> list[int]:
    columns = [array_of(roots) for roots, _ in values]
    found: list[int] = np.unique(np.concatenate(columns)).tolist() if columns else []
    return found
