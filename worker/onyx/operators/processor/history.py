"""What a processor has done since its state was saved, so that it can be done again.

It keeps items alive until the next chunk, which costs a processor that does little with each of
them a tenth of its time. So only those have it that are likely to need it: for a while after the
start, and where the job says what becomes of segments that fail. Who needs it and has none starts
again, with state and segments from before, and has it then. On Spark nobody starts again in the
middle of a query, so it is always kept there, and the state is saved when it is long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from onyx.errors import WorkLost

KEPT_FIRST = 200_000
"""After the start everything is kept for so many segments: more than a task can have to do again
that has started anew."""


class Done(NamedTuple):
    """Calls of a method, until it was done."""

    method: str
    arguments: tuple[Any, ...]
    made: Sequence[Any]


class History:
    """The calls of one processor since its state was saved."""

    def __init__(self, kept_first: int = KEPT_FIRST) -> None:
        self._left = kept_first
        self._calls: list[Done] = []
        self._gap = False
        self._kept = 0
        """So many segments."""

    def add(self, done: Done, segments: int, wanted: bool) -> None:
        """Something was done.

        Args:
            segments: how many the processor has taken.
            wanted: whether to keep it in any case.
        """
        if wanted or self._left > 0:
            self._calls.append(done)
            self._left -= segments
            self._kept += segments
        else:
            self._gap = True

    @property
    def is_full(self) -> bool:
        """Whether so much is kept that the state should be saved."""
        return self._kept >= KEPT_FIRST

    def saved(self) -> None:
        """The state was saved: this begins anew."""
        self._calls, self._gap, self._kept = [], False, 0

    def __iter__(self) -> Iterator[Done]:
        """The calls in order. Raises WorkLost: they are not known."""
        if self._gap:
            raise WorkLost(
                "an item of a processor has failed, or makes much, and what was done since its "
                "state was saved is not kept: it is done again, and kept then"
            )
        return iter(self._calls)
