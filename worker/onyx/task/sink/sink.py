"""The writing side of an output task: only what is durable is acked.

Batches are remembered with the running count of segments at which they are wholly written; when the
plugin says that many are durable, their ids go to the ackers. After a re-allocation what was not
acked is forgotten here (its roots are replayed), while the running count goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from onyx.base.runs import Numbers, taken
from onyx.flow.batch import Indices, Segments
from onyx.flow.segment import SegmentFailure
from onyx.ids import GroupId
from onyx.plugins.checked import DurableCount
from onyx.plugins.protocol import (
    Commit,
    FollowedOutput,
    OneResultOutput,
    Output,
    RefusedSegments,
    RefusingOutput,
    StageOutput,
    Token,
    TransactionalOutput,
    UpgradedJob,
)
from onyx.program.plugin_forms import PluginWriter
from onyx.replica.commands.seal_output import PARTS_MAX


class _Written(NamedTuple):
    """A batch that the plugin has taken."""

    first: int
    """The count of segments written before it."""
    until: int
    """And with it."""
    roots: Numbers
    values: Numbers
    parents: Indices | None
    """For each segment written the index of its root; None: the i-th is of the i-th."""
    refused: set[int]
    """Indices of roots of which a segment was refused later."""


class SinkRefusal(NamedTuple):
    """Segments that the plugin had taken and cannot write."""

    roots: Numbers | None
    """The roots of the segments of a batch that they were made of, each once; None: nobody
    accounts for them."""
    error: Exception
    kept: bool
    """Whether the plugin keeps them as dead letters."""


class SinkSettlement(NamedTuple):
    """What has become of segments that the plugin had taken."""

    acks: list[tuple[Numbers, Numbers]]
    """Roots and values that may be acked now."""
    refusals: list[SinkRefusal]
    """Segments of these are acked now or later."""
    all: bool
    """Whether nothing is left."""


class Sink:
    """The plugin of one output task and what waits for it to be durable."""

    def __init__(self, plugin: Output, name: str) -> None:
        """`name`: what the job calls the plugin."""
        self._plugin = plugin
        self._stage = plugin if isinstance(plugin, StageOutput) else None
        self._writer = PluginWriter(plugin)
        self._durable = DurableCount(plugin, name)
        self._written = 0
        self.acknowledged = 0
        """Batches that are durable."""
        self._waiting: deque[_Written] = deque()
        self._refusing = plugin if isinstance(plugin, RefusingOutput) else None
        self._accounted = True
        """Whether all segments written are accounted for."""
        self._version_from = 0
        """The count of segments written in older allocation versions, if they come again."""
        self.upgraded = not isinstance(plugin, OneResultOutput)
        """Whether its result, if it makes one, holds the parts of earlier versions of the job."""

    def choose(self, upstream: str | None) -> None:
        """What is written next comes from this task: only a stage asks."""
        if self._stage is not None and upstream is not None:
            self._stage.choose(upstream)

    def misfits(self, upstream: str | None, segments: Segments) -> list[SegmentFailure]:
        """The segments of a task that a stage cannot have, by index."""
        if self._stage is None:
            return []
        self.choose(upstream)
        return self._stage.misfits(segments)

    def lead(self, leads: bool) -> None:
        """Whether this peer is the one that runs the stage, if there is one."""
        if self._stage is not None:
            self._stage.lead(leads)

    @property
    def doing(self) -> str:
        """What the stage of a task does now, in words; empty if nothing runs."""
        return "" if self._stage is None else self._stage.doing

    def write(
        self,
        segments: Segments,
        roots: Numbers | None,
        values: Numbers | None,
        parents: Indices | None = None,
    ) -> None:
        """Write a batch whose trees are `roots`; `values` are acked once it is durable.

        Args:
            parents: for each segment the index of its root; None: the i-th is of the i-th.
        """
        first = self._written
        if len(segments):
            self._writer.write(segments)
            self._written += len(segments)
        if roots is None:
            self._accounted = False
        elif values is not None and len(roots):
            self._waiting.append(_Written(first, self._written, roots, values, parents, set()))

    @property
    def transactional(self) -> bool:
        """Whether it can write exactly once."""
        return isinstance(self._plugin, TransactionalOutput)

    @property
    def written(self) -> int:
        """Segments written to the plugin, as `Commit` counts them."""
        return self._written

    def begin(self, commit: Commit) -> None:
        """A new allocation version, for a sink that writes exactly once."""
        assert isinstance(self._plugin, TransactionalOutput), "asked before"
        self._plugin.begin(commit)
        self._written = self._durable.after(self._written)
        self._forget_waiting()

    def finish(self, token: Token) -> None:
        """Publish what a writer of this output has committed."""
        assert isinstance(self._plugin, TransactionalOutput), "asked before"
        self._plugin.finish(token)

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> bool:
        """Add the parts of earlier versions of the job to the result; blocks."""
        assert isinstance(self._plugin, OneResultOutput), "asked before"
        self._plugin.upgrade(old)
        self.upgraded = True
        return True

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence off all groups but these: what others have staged is never published."""
        self._plugin.fence(live)

    def flush(self) -> None:
        """Make durable all that was written."""
        self._plugin.flush()

    def tick(self) -> None:
        """Give the plugin time for what is due by its clock."""
        self._plugin.tick()

    def settle(self) -> SinkSettlement:
        """What the plugin says of what was written, since the last call."""
        durable = self._durable.after(self._written)  # first: refusals of it are known
        refusals = self._refusals()
        acks = []
        while self._waiting and self._waiting[0].until <= durable:
            each = self._waiting.popleft()
            acks.append((each.roots, each.values))
        self.acknowledged += len(acks)
        return SinkSettlement(acks, refusals, durable >= self._written)

    def _refusals(self) -> list[SinkRefusal]:
        if self._refusing is None:
            return []
        return [
            each for refused in self._refusing.take_refused() for each in self._refused(refused)
        ]

    def _refused(self, refused: RefusedSegments) -> Iterator[SinkRefusal]:
        """By batches. What an older version has written comes again, unless nobody accounts for
        it."""
        known, end = 0, refused.first + refused.segments
        for each in self._waiting:
            first, until = max(refused.first, each.first), min(end, each.until)
            if first >= until:
                continue
            known += until - first
            parents = np.arange(first - each.first, until - each.first)
            if each.parents is not None:
                parents = each.parents[parents]
            news = sorted(set(parents.tolist()) - each.refused)
            each.refused.update(news)
            if news:
                yield SinkRefusal(taken(each.roots, np.array(news)), refused.error, refused.kept)
        if known < refused.segments and refused.first >= self._version_from:
            yield SinkRefusal(None, refused.error, refused.kept)

    @property
    def waits(self) -> bool:
        """Whether something was written that may become durable at any time."""
        return bool(self._waiting)

    @property
    def waiting_segments(self) -> int:
        """Segments written and not known to be durable, about."""
        return sum(len(each.roots) for each in tuple(self._waiting))

    def waiting_roots(self) -> list[Numbers]:
        """The roots of the segments written and not known to be durable; from any thread."""
        return [each.roots for each in tuple(self._waiting)]

    def rewire(self, live: Sequence[GroupId]) -> None:
        """A new allocation version: acks of old roots would be refused, and the dead are fenced."""
        self._forget_waiting()
        self.fence(live)

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        if self._accounted:
            self._version_from = self._written

    def seal(self) -> None:
        """Seal the output of the whole task."""
        self._plugin.seal()

    def last_parts(self) -> tuple[str, ...]:
        """What those who follow the output are told of its end."""
        if not isinstance(self._plugin, FollowedOutput):
            return ()
        names = self._plugin.last_parts()
        return tuple(names) if len(names) <= PARTS_MAX else ()

    def close(self) -> None:
        """Close the plugin; what is not durable is dropped."""
        self._plugin.close()
