"""Windows that take segments only in the order of their origin.

States that were folded before the shuffle are merged behind it whatever has fired there, which is
right only while no segment is late. Only data show one, so whoever adds it is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onyx.flow.batch import Segments
from onyx.flow.groups.keys import shard_of
from onyx.keystate.coded import Keyed
from onyx.spark_query.failure import Disordered
from onyx.windows.compiled import CompiledWindows
from onyx.windows.firing import Added
from onyx.windows.prepared import Taken
from onyx.windows.task_windows import TaskWindows


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
        taken: Sequence[Taken] | None = None,
    ) -> Added:
        """Take a batch.

        Raises:
            Disordered: a segment is behind the watermark.
        """
        mark = self._mark()
        if mark is not None and any(each.is_behind(mark) for each in taken or ()):
            raise Disordered(self._task)
        return super().add(segments, groups, now_ms, taken)
