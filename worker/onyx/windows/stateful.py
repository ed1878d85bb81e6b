"""What a task with state asks of what it keeps, whatever that is: its windows (`TaskWindows`), the
state by key of a function (`keyed`), or a processor (`program.processing`).

The task keeps ids, watermark, emissions and chunks itself. When a call raises, the state is between
two batches and must be restored before it is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from onyx.keystate.extents import Extent, Number
from onyx.keystate.records import Files, Record, Records
from onyx.keystate.selection import EVERYTHING, Selection
from onyx.windows.firing import Pages


class Stateful(Protocol):
    """The state of one task on one peer, over the shards that the peer owns."""

    @property
    def at_once(self) -> bool:
        """Whether shards should fire together when the job ends."""
        ...

    @property
    def stage(self) -> str:
        """What is being computed elsewhere, in words; empty if nothing is."""
        ...

    @property
    def unfinished(self) -> bool:
        """Whether `tick` is to be called, and all its pages be asked for, before anything else."""
        ...

    @property
    def next_tick_ms(self) -> int | None:
        """When `tick` is due next, in ms since the epoch; None when no timer runs."""
        ...

    def tick(self, now_ms: int) -> Pages:
        """Timers that are due fire."""
        ...

    def advance(self, watermark: Number) -> Pages:
        """The watermark of the task has risen."""
        ...

    def passed_on(self, watermark: int) -> int:
        """The watermark of what is made, when all has been made that this one brings."""
        ...

    def complete(self, shards: Collection[int], now_ms: int) -> Pages:
        """The job ends for these shards."""
        ...

    def take_changes(self) -> Records:
        """What has changed since the last call, by shard."""
        ...

    @property
    def rest_s(self) -> float:
        """How long the next chunk should wait, because changes take their time to be found."""
        ...

    def take_files(self) -> Sequence[Files]:
        """Files that belong to the changes taken last."""
        ...

    def freeze(self, shards: Collection[int]) -> Callable[[int], list[Record]]:
        """What gives the whole state of each of these shards as it is now: once, later, from any
        thread."""
        ...

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records of `take_changes` or `freeze`, in order, to a shard. Raises UserError: the
        state is of something that the task does not have."""
        ...

    def restored(self) -> None:
        """All shards are restored."""
        ...

    def close(self) -> None:
        """The task leaves it. It is not used any more."""
        ...

    def query(
        self, name: str, asked: Selection = EVERYTHING, extents_max: int | None = None
    ) -> list[Extent]:
        """The states of a name. Raises UserError: there is no such name."""
        ...
