"""Windows that are folded before the shuffle: states are shuffled instead of segments.

Each origin folds its own segments with the code of peers, without triggers. Now and then, and at
the end of the origin, the states go to the buckets of their groups, which merge them and let them
fire. `model.combining` says for which windows this is right, but one thing only data show: a
segment behind the watermark of its own origin. It stops the query, which runs again without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from onyx.codec.records import encode_records
from onyx.flow.batch import EncodedRun, Segments
from onyx.keystate.records import StatesRecord
from onyx.program.assign import assign
from onyx.program.batch_work import BatchWork
from onyx.program.combining import states_of
from onyx.program.prepare import prepare
from onyx.program.program import Program
from onyx.spark_query.folding.ordered import OrderedWindows
from onyx.spark_query.folding.untracked import UntrackedFolding
from onyx.windows.task_windows import TaskWindows

SEGMENTS_MAX = 500_000
"""Segments whose states are gathered before they go to their buckets: what bounds the memory."""


class Combining(UntrackedFolding):
    """The windows of one task over the segments of one origin (`program.folding.Folding`)."""

    def __init__(self, program: Program, watermark: Callable[[], int | None]) -> None:
        """`watermark`: that of the origin, before the batch that is worked on."""
        super().__init__(program)
        assert program.windowed is not None, "only windows are folded before the shuffle"
        self._program = program
        self._compiled = program.windowed.compiled.only_folding()
        self._watermark = watermark
        self._segments = 0
        self.windows: TaskWindows = OrderedWindows(self._compiled, watermark)

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
        for shard, states in states_of(self.windows).items():
            found.setdefault(bucket_of(shard), []).extend(states)
        self.windows = OrderedWindows(self._compiled, self._watermark)
        self._segments = 0
        for bucket, states in found.items():
            yield bucket, encode_records(states)

    # What segments do.

    def look(self, work: BatchWork) -> None:
        """What windows need of a batch is found before it is routed."""
        assert work.leaves is not None, "of a batch"
        work.prepared = prepare(self._program, work.leaves)

    def change(self, work: BatchWork) -> None:
        """A batch that has been routed is folded."""
        assign(self._program, self, work)

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

    def changed(self, segments: int) -> None:
        """So many segments were added."""
        self._segments += segments
