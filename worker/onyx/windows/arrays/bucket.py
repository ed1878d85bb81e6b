"""A bucket whose states are rows of arrays, for tasks over columns.

Batches come as a whole (`rows`). Python objects are made of the groups and states that somebody
asks for. Who asks for one group after the other does so in the order in which the bucket gives
them; so the rows of those given last are remembered, and their shards.

What arrays cannot do (an int beyond 64 bits, a state of another type) changes nothing here and is
said; then the window takes the states over into a bucket of Python's (`plain`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from onyx.flow.batch import Indices
from onyx.keystate.buckets import Bucket, Form, Pair
from onyx.keystate.coded import Groups, Values
from onyx.keystate.groups import Shards, dump_keys
from onyx.keystate.records import DeleteGroups, Record, Records, SetArrays, append
from onyx.windows.aggregations.array_forms import ArrayForm, States
from onyx.windows.arrays.pairs import PairsOfRows
from onyx.windows.arrays.rows import Rows

_GONE: Any = object()
_PAGE = 1_024
"""Groups of which Python objects are made at once."""


class ArrayBucket(Bucket):
    """States by group, in arrays. The dict that it is has nothing."""

    __slots__ = ("_array_form", "_near", "_rows")

    def __init__(self, form: Form, array_form: ArrayForm, shards: Shards) -> None:
        super().__init__(form, shards)
        self._array_form = array_form
        self._rows = Rows(array_form, shards)
        self._near: dict[Any, int] = {}
        """The rows of the groups that were given last."""

    # Whole batches. Each gives the rows of the groups, or None: arrays cannot do it, and no state
    # has changed.

    def fold(self, groups: Groups, values: Values) -> Indices | None:
        """Apply what the segments of a batch do."""
        return self._rows.fold(groups, values)

    def merge(self, groups: Groups, states: States) -> Indices | None:
        """Merge states of different groups with those that are there."""
        return self._rows.merge(groups, states)

    def restore(self, groups: Groups, states: States, shard: int) -> Indices | None:
        """Set the states of different groups of a shard, which is no change."""
        return self._rows.restore(groups, states, shard)

    def put_all(self, keys: list[Any], states: list[Any]) -> bool:
        """Set the states of different groups; False: arrays cannot hold them."""
        columns = self._array_form.from_python(states)
        if columns is None:
            return False
        rows = self._near_rows(keys)
        if rows is None:
            return self._rows.set(Groups.each(keys), columns) is not None
        return self._rows.put(rows, columns)

    def touched(self, rows: Indices) -> Iterable[Any]:
        """The groups of rows, made when somebody asks."""
        return _Touched(self, rows)

    def forget(self, shards: Collection[int], keys: Iterable[Any] = ()) -> None:
        """Groups of some shards go, and some others; nothing of them is recorded."""
        rows = self._rows.find(list(keys))
        self._rows.forget(rows[rows >= 0], shards)

    def plain(self) -> Bucket:
        """The groups and states in a bucket of Python's."""
        made = Bucket(self._form, self._shards)
        made.update(self.items())
        return made

    # As a mapping.

    def __missing__(self, key: Any) -> Any:
        state = self.get(key, _GONE)
        return self._init() if state is _GONE else state

    def __setitem__(self, key: Any, state: Any) -> None:
        if not self.put_all([key], [state]):
            raise TypeError(f"arrays cannot hold {state!r}")

    def __delitem__(self, key: Any) -> None:
        row = self._row(key)
        if row < 0:
            raise KeyError(key)
        self._rows.remove(np.array([row]))

    def __contains__(self, key: Any) -> bool:
        return self._row(key) >= 0

    def __len__(self) -> int:
        return self._rows.living

    def __bool__(self) -> bool:
        return self._rows.living > 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.groups())

    def get(self, key: Any, default: Any = None) -> Any:
        """The state of a group."""
        row = self._row(key)
        if row < 0:
            return default
        return self._array_form.to_python(self._rows.states(np.array([row])))[0]

    def get_all(self, keys: Sequence[Any], default: Any = None) -> list[Any]:
        """The state of each of some groups."""
        rows = self._rows.find(list(keys))
        found = [default] * len(rows)
        there = np.flatnonzero(rows >= 0)
        states = self._array_form.to_python(self._rows.states(rows[there]))
        for index, state in zip(there.tolist(), states, strict=True):
            found[index] = state
        return found

    def keys(self) -> Any:
        """All groups."""
        return self.groups()

    def items(self) -> Iterator[Pair]:  # type: ignore[override]
        """Groups with their states."""
        for pairs in self._pairs(self._rows, self._rows.all_alive(), _PAGE):
            yield from pairs

    def update(self, states: Any) -> None:  # type: ignore[override]
        """Set the states of several groups."""
        for key, state in list(states.items() if isinstance(states, dict) else states):
            self[key] = state

    def _row(self, key: Any) -> int:
        """The row of a group that is there; -1: it is not."""
        row = self._near.get(key, -1)
        if row >= 0:
            return row if self._rows.are_alive(np.array([row]))[0] else -1
        return self._rows.row(key)

    def _given(self, rows: Indices) -> list[Any]:
        """The groups of rows."""
        keys = self._rows.keys(rows)
        self._remember(keys, rows)
        return keys

    def _remember(self, keys: list[Any], rows: Indices) -> None:
        """Somebody gets these groups, and will ask for them."""
        self._near = dict(zip(keys, rows.tolist(), strict=True))
        self._shards.learn(keys, self._rows.shards(rows))

    # As a bucket.

    def groups(self, shards: Collection[int] | None = None) -> Iterable[Any]:
        """Groups of some shards, or all; meanwhile they may be changed and removed."""
        if shards is None:
            return self._in_pages(self._rows, self._rows.all_alive())
        return (key for shard in sorted(shards) for key in self._of_shard(shard))

    def by_shard(self, shards: Collection[int]) -> Callable[[int], Iterable[Any]]:
        """What gives the groups of each of these shards."""
        return self._of_shard

    def parts(self, most: int) -> Iterator[tuple[int, Sequence[Pair]]]:
        """All groups with their states, shard by shard and at most so many at a time; those that
        were given may be removed."""
        held = self._rows
        rows, slices = held.ordered(held.all_alive())
        for shard, mine in slices.items():
            for pairs in self._pairs(held, rows[mine], most):
                yield shard, pairs

    def present(self, keys: Iterable[Any]) -> list[Any]:
        """Which of some groups are there."""
        return self._present(list(keys))[0]

    def _present(self, keys: list[Any]) -> tuple[list[Any], Indices]:
        """Which of some groups are there, and their rows."""
        rows = self._near_rows(keys)
        if rows is not None and self._rows.are_alive(rows).all():
            return keys, rows
        rows = self._rows.find(keys)
        there = np.flatnonzero(rows >= 0)
        found = list(map(keys.__getitem__, there.tolist()))
        self._remember(found, rows[there])
        return found, rows[there]

    def _near_rows(self, keys: list[Any]) -> Indices | None:
        """The rows of groups that were all given last; None: look for them."""
        rows = list(map(self._near.get, keys))
        return None if None in rows else np.array(rows, np.intp)

    def pairs(self, keys: Sequence[Any] | None = None) -> Sequence[Pair]:
        """The groups of these that are there, or all, with their states."""
        held = self._rows
        rows = held.all_alive() if keys is None else self._present(list(keys))[1]
        return PairsOfRows(held, self._array_form, rows, self._hand_out)

    def remove(self, keys: Iterable[Any]) -> None:
        """Groups that are there go."""
        self._rows.remove(np.fromiter(map(self._row, keys), np.intp))

    def used(self, keys: Iterable[Any]) -> None:
        """All are in memory."""

    def _of_shard(self, shard: int) -> Iterator[Any]:
        return self._in_pages(self._rows, self._rows.of_shard(shard))

    # Rows may be compacted between two pages of a walk: so it holds those with which it began.

    def _in_pages(self, held: Rows, rows: Indices) -> Iterator[Any]:
        """The groups of rows, but those that have gone when their page comes."""
        for begin in range(0, len(rows), _PAGE):
            page = rows[begin : begin + _PAGE]
            if held is self._rows:
                yield from self._given(page[held.are_alive(page)])
            else:
                yield from self.present(held.keys(page))

    def _pairs(self, held: Rows, rows: Indices, most: int) -> Iterator[Sequence[Pair]]:
        """The groups of rows with their states, at most so many at a time."""
        for begin in range(0, len(rows), most):
            page = rows[begin : begin + most]
            yield PairsOfRows(held, self._array_form, page, self._hand_out)

    def _hand_out(self, held: Rows, keys: list[Any], rows: Indices) -> None:
        """Somebody gets these groups of rows that may have been compacted since."""
        if held is self._rows:
            self._remember(keys, rows)
        else:
            self.present(keys)

    # What is recorded.

    def shards_had(self) -> dict[int, None]:
        """Shards of groups that are there, or were when changes were recorded last."""
        _, removed = self._rows.changed()
        rows = np.concatenate((self._rows.all_alive(), removed))
        return dict.fromkeys(sorted(set(self._rows.shards(rows))))

    def unrecorded(self) -> list[Any]:
        """Groups of which something is to be recorded."""
        return self._given(np.concatenate(self._rows.changed()))

    def append_changes(self, records: Records, window: str, extent: int) -> None:
        """Add what has changed since the last call."""
        changed, removed = self._rows.changed()
        rows, slices = self._rows.ordered(removed)
        for shard, part in slices.items():
            gone = dump_keys(self._rows.keys(rows[part]))
            append(records, shard, DeleteGroups(window, extent, gone))
        rows, slices = self._rows.ordered(changed)
        recorded = self._recorded(window, extent, rows, list(slices.values()))
        for shard, record in zip(slices, recorded, strict=True):
            append(records, shard, record)
        self._rows.unmark()
        compacted = self._rows.compacted()
        if compacted is not self._rows:
            self._rows, self._near = compacted, {}

    def records(self, window: str, extent: int, shard: int) -> Iterator[Record]:
        """The whole state of a shard."""
        rows = self._rows.of_shard(shard)
        if len(rows):
            yield from self._recorded(window, extent, rows, [slice(0, len(rows))])

    def _recorded(
        self, window: str, extent: int, rows: Indices, parts: Sequence[slice]
    ) -> Iterator[SetArrays]:
        """A record for each part of some rows."""
        table, columns = self._rows.table, self._rows.states(rows)
        if table is None:
            return
        types = [each.dtype.str for each in columns]
        for part, groups in zip(parts, table.packed(rows, parts), strict=True):
            states = [each[part].tobytes() for each in columns]
            yield SetArrays(window, extent, table.kind, groups, types, states)


class _Touched:
    """Groups of rows of a bucket."""

    def __init__(self, bucket: ArrayBucket, rows: Indices) -> None:
        self._bucket = bucket
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._bucket._given(self._rows))
