"""Windows that are folded before the shuffle: states are shuffled instead of segments.

Each origin folds its own segments with the code of peers, without triggers. Now and then, and at
the end of the origin, the states go to the buckets of their groups, which merge them and let them
fire. `model.combining` says for which windows this is right, but one thing only data show: a
segment behind the watermark of its own origin. States that were folded before the shuffle are
merged behind it whatever has fired there. So whoever adds such a segment is stopped, and the query
runs again without.

Nothing says which segments have been applied, here and behind the shuffle (`Untracked`): Spark
takes the rows of a task of its own once, whatever it repeats, so none comes twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from onyx.base.runs import Numbers
from onyx.base.seams import Clock
from onyx.codec.values import encode_records
from onyx.flow.batch import Batch, EncodedRun, Segments
from onyx.flow.groups.keys import shard_of
from onyx.keystate.coded import Keyed
from onyx.keystate.groups import Shards
from onyx.keystate.records import StatesRecord
from onyx.ledger.applied import Mask, without
from onyx.operators.windowed.combining import folding_operator, states_of
from onyx.program.program import Program
from onyx.spark_query.failure import Disordered
from onyx.windows.compiled import CompiledWindows
from onyx.windows.firing import BatchOutcome
from onyx.windows.prepared import WindowInput
from onyx.windows.task_windows import TaskWindows

SEGMENTS_MAX = 500_000
"""Segments whose states are gathered before they go to their buckets: what bounds the memory."""


class Untracked:
    """What is alike wherever a query keeps state (`program.operator.Keeper`)."""

    closed: frozenset[int] = frozenset()
    """None: a key group fires for the last time behind all that comes."""

    def __init__(self, shard_of: Shards, clock: Clock) -> None:
        self.shard_of = shard_of
        self.clock = clock

    def unapplied(self, batch: Batch) -> Mask | None:
        """All segments: nothing comes twice."""
        return None

    def fresh(self, batch: Batch, withdrawn: Sequence[int]) -> Mask | None:
        """All but those that are withdrawn."""
        return without(len(batch), withdrawn)


class Combining(Untracked):
    """The windows of one task over the segments of one origin."""

    def __init__(self, program: Program, watermark: Callable[[], int | None]) -> None:
        """`watermark`: that of the origin, before the batch that is worked on."""
        its = program.operator
        assert its is not None, "asked before"
        super().__init__(its.shards(), program.clock)
        self._its, self._program = its, program
        self._watermark = watermark
        self._segments = 0
        self._begin()

    def _begin(self) -> None:
        """Windows without any states."""
        make = partial(OrderedWindows, watermark=self._watermark)
        self.operator = folding_operator(self._its, make)
        self.operator.begin(self._program, self)

    @property
    def full(self) -> bool:
        """Whether the states should go."""
        return self._segments >= SEGMENTS_MAX

    def take(self, bucket_of: Callable[[int], int]) -> Iterator[tuple[int, bytes]]:
        """The states, encoded, with the bucket of each part; nothing is left.

        Args:
            bucket_of: gives the bucket of a shard.
        """
        found: dict[int, list[StatesRecord]] = {}
        for shard, states in states_of(self.operator.windows).items():
            found.setdefault(bucket_of(shard), []).extend(states)
        self._begin()
        self._segments = 0
        for bucket, states in found.items():
            yield bucket, encode_records(states)

    # What the operator asks.

    def has_seen(self, shard: int, value: Any) -> bool:
        """Tasks with a uniqueness key do not combine."""
        raise AssertionError("no uniqueness key")

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """Tasks with a uniqueness key do not combine."""
        raise AssertionError("no uniqueness key")

    def emit(
        self,
        shard: int,
        segments: Segments,
        child: str | None = None,
        encoded: EncodedRun | None = None,
    ) -> None:
        """Nothing fires here."""
        assert not len(segments), "no trigger, nothing late"

    def emit_for(self, shard: int, segments: Segments, parents: Numbers) -> None:
        """Nothing is made here."""
        raise AssertionError("windows are of nobody's request")

    def changed(self, segments: int) -> None:
        """So many segments were added."""
        self._segments += segments


class OrderedWindows(TaskWindows):
    """Windows of one origin; none of its segments is behind its watermark."""

    def __init__(self, compiled: CompiledWindows, watermark: Callable[[], int | None]) -> None:
        """`watermark`: that of the origin, before the batch that is worked on."""
        super().__init__(compiled, shard_of)
        self._mark = watermark

    def add(
        self,
        segments: Segments,
        groups: Keyed | None,
        now_ms: int,
        taken: Sequence[WindowInput] | None = None,
    ) -> BatchOutcome:
        """Take a batch.

        Raises:
            Disordered: a segment is behind the watermark.
        """
        mark = self._mark()
        if mark is not None and any(each.is_behind(mark) for each in taken or ()):
            raise Disordered(self._task)
        return super().add(segments, groups, now_ms, taken)
