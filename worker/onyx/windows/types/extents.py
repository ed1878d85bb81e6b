"""What a window type is: it finds the extents of segments, folds values into their states, and says
which extents a watermark passes. Triggers decide what fires, the window (`window`) joins the two.

A type is a class with these methods, in a module of its own, and a row in `table`. An extent is a
value that only its type interprets: a number for windows whose extents are known before segments
come (`numbered`), an object for sessions. An extent has a state for each group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from onyx.keystate.buckets import Frozen, Holder, Pair
from onyx.keystate.coded import Keyed
from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards
from onyx.keystate.records import Record, Records, StatesRecord
from onyx.windows.compiled import CompiledWindow
from onyx.windows.firing import AnyFiring, FiringPages
from onyx.windows.prepared import WindowInput
from onyx.windows.triggers.timers import Unit
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.watermarks import ShardWatermarks

E = TypeVar("E")
Wanted = Callable[[Number, Number], bool]
"""Whether extents with these bounds are wanted."""
GONE: Any = object()
"""In place of a state: the group has none in this extent."""
Fire = Callable[[E, Sequence[Pair]], list[AnyFiring]]
"""Makes groups of an extent fire, with the states given, and refines them. What the trigger forgets
is left to the type, which can remove an extent as a whole."""


class OnPeer(msgspec.Struct, frozen=True):
    """What a window works with on one peer."""

    compiled: CompiledWindow
    shards: Shards
    holder: Holder
    """Makes the buckets that states are in."""
    watermarks: ShardWatermarks
    page_max: int
    """Firings of one page."""
    whole: bool = False
    """Whether batches are folded as a whole: no trigger and no watermark looks at a segment."""


class Extents(ABC, Generic[E]):
    """The extents of one window on one peer."""

    bounded: ClassVar[bool] = True
    """Whether extents end, so that a watermark can pass them."""
    merges: ClassVar[bool] = False
    """Whether extents merge, for which an aggregation needs `merge`."""

    def __init__(self, on_peer: OnPeer) -> None:
        self._window = on_peer.compiled.window.id
        self._aggregation = on_peer.compiled.aggregation
        self._lateness = on_peer.compiled.lateness
        self._shards = on_peer.shards
        self._watermarks = on_peer.watermarks
        self._page_max = on_peer.page_max

    @classmethod
    def made(cls, on_peer: OnPeer) -> Extents[E]:
        """The extents of a window, by this class or one that the window needs instead."""
        return cls(on_peer)

    # Segments come.

    @abstractmethod
    def add_one(self, taken: WindowInput, index: int, key: Any) -> Sequence[E]:
        """Fold one segment of a batch into the states of its group; gives the extents that have
        it, none if it is late."""

    @abstractmethod
    def add(self, taken: WindowInput, keys: Keyed) -> list[int]:
        """Adds for a batch of which no trigger looks at single segments; gives the indices of those
        that are late."""

    def settle(self) -> None:
        """Get all that was added into the states. Called before any method but `add`."""

    # Extents are looked at and changed.

    @abstractmethod
    def find(self, key: Any, number: int | None = None) -> Sequence[E]:
        """All extents of a group, or the one of a number if the group has it."""

    @abstractmethod
    def everything(self, wanted: Wanted) -> Iterator[tuple[Any, E]]:
        """Each group with each of its extents that is wanted, in any order."""

    @abstractmethod
    def size(self) -> int:
        """How many states there are, without a look at each. From any thread."""

    @abstractmethod
    def units(self, shards: Collection[int]) -> Callable[[int], Iterable[Unit]]:
        """What gives, for each of these shards, arguments for `find` that name all extents, in
        the order of numbers. Meanwhile extents may be changed and removed."""

    @abstractmethod
    def bounds(self, extent: E) -> tuple[Number, Number]:
        """First and last coordinate of an extent."""

    def each_bounds(self, extent: E, many: int) -> Iterable[tuple[Number, Number]]:
        """The bounds for each of so many groups of an extent."""
        return repeat(self.bounds(extent), many)

    def of_session(self, extent: E) -> tuple[Any, ...]:
        """The session key of a session, as groups are looked up; nothing of other extents."""
        return ()

    @abstractmethod
    def get(self, key: Any, extent: E) -> Any:
        """The state of a group, or GONE."""

    def look_up(self, keys: Sequence[Any]) -> list[Any]:
        """The state of each of some groups, or GONE, where a group has one extent."""
        raise NotImplementedError("validated: only global windows are looked up")

    @abstractmethod
    def put(self, key: Any, extent: E, state: Any) -> None:
        """Give a group that an extent has another state; GONE removes the group."""

    def pairs(self, number: int, keys: Sequence[Any]) -> Sequence[Pair]:
        """The groups of these that the extent of a number has, with their states."""
        raise NotImplementedError("extents that have no numbers are found by group")

    def reset(self, extent: E, keys: Collection[Any]) -> None:
        """Give groups that an extent has the first state."""
        for key in keys:
            self.put(key, extent, self._aggregation.init())

    def remove(self, extent: E, keys: Collection[Any]) -> None:
        """An extent loses groups that it has."""
        for key in keys:
            self.put(key, extent, GONE)

    # Triggers that fire at the end for what has changed.

    @abstractmethod
    def unfired(self, trigger: str, key: Any, extent: E) -> bool:
        """Whether a group that an extent has got segments since a trigger fired for it last."""

    @abstractmethod
    def have_fired(self, trigger: str, extent: E, keys: Sequence[Any]) -> None:
        """A trigger of which that is noted fires for groups of an extent, and no watermark is the
        reason. Called before they are refined."""

    # Watermarks pass.

    @abstractmethod
    def pass_watermark(
        self, trigger: Trigger, watermark: Number, shard: int | None, fire: Fire[E]
    ) -> FiringPages:
        """Have extents fire that a watermark has passed, and that got segments since they fired
        last: those of all shards, or of one."""

    @abstractmethod
    def expire(self, watermark: Number, shard: int | None) -> None:
        """Forget extents that a watermark has passed by more than the lateness allowed."""

    # State is recorded and restored.

    @abstractmethod
    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""

    @abstractmethod
    def states(self, frozen: Frozen) -> Callable[[int], Iterator[Record]]:
        """What gives the states of a shard, as they are frozen."""

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add what there is to say of some shards besides `states`."""

    @abstractmethod
    def restore(self, shard: int, record: Record) -> None:
        """Apply a record of `take_changes`, `states` or `snapshot`."""

    def is_late(self, record: StatesRecord) -> bool:
        """Whether segments of states that were folded elsewhere may be late."""
        return False

    def merge(self, record: StatesRecord) -> None:
        """Add states that were folded elsewhere from other segments."""
        raise NotImplementedError("extents that depend on segments cannot be merged by record")

    @abstractmethod
    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now, with what has changed in them."""
