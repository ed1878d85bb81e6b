"""The writing side of an output task: only what is durable is acked.

Batches are remembered with the running count of segments at which they are wholly written; when the
plugin says that many are durable, their ids go to the ackers. After a re-allocation what was not
acked is forgotten here (its roots are replayed), while the running count goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from onyx.flow.batch import Segments
from onyx.flow.segment_failure import SegmentFailure
from onyx.ids import GroupId
from onyx.plugins.checked import DurableCount
from onyx.plugins.other_jobs import FollowedOutput, UpgradedJob
from onyx.plugins.protocol import (
    Commit,
    OneResultOutput,
    Output,
    StageOutput,
    Token,
    TransactionalOutput,
)
from onyx.program.writer import Writer
from onyx.replica.commands.seal_output import PARTS_MAX
from onyx.runs import Numbers


class Sink:
    """The plugin of one output task and what waits for it to be durable."""

    def __init__(self, plugin: Output, name: str) -> None:
        """`name`: what the job calls the plugin."""
        self._plugin = plugin
        self._stage = plugin if isinstance(plugin, StageOutput) else None
        self._writer = Writer(plugin)
        self._durable = DurableCount(plugin, name)
        self._written = 0
        self.acknowledged = 0
        """Batches that are durable."""
        self._waiting: deque[tuple[int, Numbers, Numbers]] = deque()
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

    def write(self, segments: Segments, roots: Numbers | None, values: Numbers | None) -> None:
        """Write a batch whose trees are `roots`; `values` are acked once it is durable."""
        if len(segments):
            self._writer.write(segments)
            self._written += len(segments)
        if roots is not None and values is not None and len(roots):
            self._waiting.append((self._written, roots, values))

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
        self._waiting.clear()
        self._plugin.begin(commit)
        self._written = self._durable.after(self._written)

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

    def take_durable(self) -> list[tuple[Numbers, Numbers]]:
        """Roots and values that may be acked now."""
        if not self._waiting:
            return []
        durable = self._durable.after(self._written)
        ready = []
        while self._waiting and self._waiting[0][0] <= durable:
            _, roots, values = self._waiting.popleft()
            ready.append((roots, values))
        self.acknowledged += len(ready)
        return ready

    @property
    def waiting_segments(self) -> int:
        """Segments written and not known to be durable, about."""
        return sum(len(roots) for _, roots, _ in tuple(self._waiting))

    def waiting_roots(self) -> list[Numbers]:
        """The roots of the segments written and not known to be durable; from any thread."""
        return [roots for _, roots, _ in tuple(self._waiting)]

    def all_durable(self) -> bool:
        """Whether all that was written is durable."""
        return self._durable.after(self._written) >= self._written

    def rewire(self, live: Sequence[GroupId]) -> None:
        """A new allocation version: acks of old roots would be refused, and the dead are fenced."""
        self._waiting.clear()
        self.fence(live)

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
