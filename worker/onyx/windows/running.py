"""What a task asks of each of its windows, whoever aggregates: peers in memory (`window.Window`),
or an engine elsewhere, whose values of groups are files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

from onyx.flow.batch import Segments
from onyx.keystate.buckets import Frozen
from onyx.keystate.coded import Keyed
from onyx.keystate.extents import Extent, Number
from onyx.keystate.groups import Shards
from onyx.keystate.records import Record, Records, StateFiles
from onyx.keystate.selection import Selection
from onyx.reports.measures import StateMeasures
from onyx.windows.compiled import CompiledWindow
from onyx.windows.firing import AnyFiring, FiringPages
from onyx.windows.prepared import WindowInput


class RunningWindow(Protocol):
    """A window on one peer. See `window.Window` for what each method does."""

    compiled: CompiledWindow

    @property
    def doing(self) -> str:
        """What is being computed elsewhere, in words; empty if nothing is."""
        ...

    def add(
        self, segments: Segments, taken: WindowInput, keys: Keyed, now_ms: int
    ) -> tuple[list[tuple[int, AnyFiring]], list[int]]:
        """Take a batch."""
        ...

    def settle(self) -> None:
        """Get all that was added into the states."""
        ...

    def advance(self, watermark: Number) -> FiringPages:
        """The watermark that inputs have assigned has risen."""
        ...

    def tick(self, now_ms: int) -> FiringPages:
        """Timers fire that were due before `now_ms`."""
        ...

    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do."""
        ...

    def complete(self, shards: Collection[int], now_ms: int) -> FiringPages:
        """The job ends for these shards."""
        ...

    def query(self, asked: Selection, extents_max: int | None) -> list[Extent]:
        """Extents that are asked for. Raises UserError: they are not on the peer."""
        ...

    def look_up(self, keys: Sequence[Any]) -> list[list[Any]]:
        """For each group a list with its state, which is empty if it has none; of a window with one
        extent for each group. Raises UserError: they are not on the peer."""
        ...

    def measures(self) -> StateMeasures:
        """Groups and timers, as far as it counts them. From any thread."""
        ...

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        ...

    def take_files(self) -> Sequence[StateFiles]:
        """Files that belong to the changes taken last."""
        ...

    def snapshot(
        self, frozen: Frozen, shards: Collection[int]
    ) -> Callable[[int], Iterator[Record]]:
        """What gives the whole state of each of these shards, as it is now."""
        ...

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record."""
        ...

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        ...


class AllInRecords:
    """A window of which nothing is elsewhere."""

    doing = ""
    """What is being computed elsewhere, in words; empty if nothing is."""

    def take_files(self) -> tuple[()]:
        """Files that belong to the changes taken last."""
        return ()


Make = Callable[[CompiledWindow, bool, Shards], RunningWindow]
"""Makes a window elsewhere: of what is compiled, whether its task is grouped, and the shards."""
