"""The keyed state of one task on one peer, over the shards of state that the peer owns.

States have names and are made once, before anything is restored. Records are those of windows
(`keystate.records`) with the name of a state in place of that of a window, so the state log,
upgrades and readers know no second format. A name that begins with a dot is Onyx's own.

When a call raises, the state is between two batches and must be restored before it is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from onyx.errors import UserError
from onyx.keystate.buckets import Holder, InMemory
from onyx.keystate.groups import Shards
from onyx.keystate.records import Record, Records, WindowRecord
from onyx.operators.keyed.states import Lists, Maps, States, Values

Kind = TypeVar("Kind", bound=States)


class KeyedStore:
    """All states of a task."""

    def __init__(self, shards: Shards, holder: Holder | None = None) -> None:
        """
        Args:
            shards: gives the shard of a key.
            holder: has the states; None: in memory.
        """
        self.shards = shards
        self.holder = holder or InMemory()
        self.states: dict[str, States] = {}
        self._upon_restored: list[Callable[[], None]] = []

    def values(self, name: str) -> Values:
        """A new state, of values."""
        return self._added(Values(name, self.shards, self.holder))

    def lists(self, name: str) -> Lists:
        """A new state, of lists."""
        return self._added(Lists(name, self.shards, self.holder))

    def maps(self, name: str) -> Maps:
        """A new state, of maps."""
        return self._added(Maps(name, self.shards, self.holder))

    def _added(self, states: Kind) -> Kind:
        assert states.name not in self.states, "each name once"
        self.states[states.name] = states
        return states

    def trim(self) -> None:
        """Put on disk what was used least. Between two calls, when no state is in use."""
        for states in self.states.values():
            states.free()
        self.holder.trim()

    # What is recorded and restored.

    def take_changes(self) -> Records:
        """What has changed since the last call, by shard."""
        records: Records = {}
        for each in self.states.values():
            each.take_changes(records)
        return records

    def freeze(self, shards: Collection[int]) -> Callable[[int], Iterable[Record]]:
        """What gives the whole state of each of these shards as it is now: once, later, from any
        thread."""
        frozen = self.holder.freeze()
        parts = [each.records(frozen) for each in self.states.values()]

        def of_shard(shard: int) -> Iterable[Record]:
            return chain.from_iterable(part(shard) for part in parts)

        if self.holder.in_memory:
            return {shard: list(of_shard(shard)) for shard in shards}.__getitem__
        return of_shard

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records of `take_changes` or `freeze`, in order, to a shard. Before anything else
        is done with the states, and `restored` behind the last shard.

        Raises:
            UserError: the state is of a name that the task does not have.
        """
        self.shards.known[shard] = None
        for record in records:
            assert isinstance(record, WindowRecord), "the state log of a task with state"
            states = self.states.get(record.window)
            if states is None:
                raise UserError(
                    f"there is no state {record.window!r}, but {', '.join(self.states)}"
                )
            states.restore(record)
            self.holder.trim()

    def upon_restored(self, call: Callable[[], None]) -> None:
        """Have this called when all is restored: for what is made of states and not recorded."""
        self._upon_restored.append(call)

    def restored(self) -> None:
        """All shards are restored."""
        for call in self._upon_restored:
            call()
        self.holder.trim()
