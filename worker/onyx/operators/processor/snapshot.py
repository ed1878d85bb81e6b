"""What a processor has saved, what of it is new since the last chunk, and unfinished items.

Entries are kept as bytes: nothing that a processor changes later reaches them, and what has not
changed is found without a copy of it. They are states by key (`keyed`), so they are spilled,
recorded and recovered as these are.

Invariant: an entry is in a shard of this peer. The shard is that of its key, if the peer has it;
then it stays with the segments of its group when peers come and go. If not, it is any of the
peer's, and goes to whoever takes that over. So after a change an entry may be in another shard than
it would be put into now: it is a stranger until it is saved again.

An item that makes more than is kept in memory is taken into the state log: with the state before
it, and with how much of what it makes has been sent. Whoever takes it over has it processed again,
from that state, and sends what follows. A checksum says whether what was sent before is what is
made now.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from onyx.codec import columns as columns_codec
from onyx.codec.values import decode_values, encode_each, encode_values
from onyx.errors import UserError, UserFunctionError
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.keys import shard_of
from onyx.keystate.buckets import Holder
from onyx.keystate.extents import ALL, Extent
from onyx.keystate.groups import Shards, dump_key, group_value, hashable_key
from onyx.keystate.records import (
    ENDS,
    LEFT,
    SNAPSHOT,
    UNFINISHED,
    DeleteGroups,
    Record,
    Records,
    SetStates,
    WindowRecord,
    append,
)
from onyx.keystate.selection import Selection
from onyx.operators.keyed.store import KeyedStore, first_of

_EXTENT = 0


class ProcessorSnapshot:
    """The entries of one processor, over the shards of its peer. Not thread-safe."""

    def __init__(self, own: Sequence[int], holder: Holder) -> None:
        """
        Args:
            own: the shards.
            holder: has the entries.
        """
        self._own = sorted(own) or [0]
        self._known = frozenset(own)
        self._store = KeyedStore(Shards(self._place), holder)
        self._entries = self._store.values(SNAPSHOT)
        self._strangers: dict[tuple[int, Any], bytes] = {}
        """By shard and key."""
        self._gone: list[tuple[int, Any]] = []
        """Strangers that are no more, and recorded."""
        self._offered: set[Any] = set()
        self._ends: dict[int, list[int]] = {}
        """By shard, the ordinals that have ended; ALL for all of them."""
        self._new_ends: set[int] = set()
        self._unfinished: dict[int, Unfinished] = {}
        """By shard. Others get none before they are finished, so a shard has one at most."""
        self._new_unfinished: set[int] = set()

    def _place(self, key: Any) -> int:
        shard = shard_of(key)
        return shard if shard in self._known else self._own[shard % len(self._own)]

    # What the processor saves.

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self) -> None:
        """The processor saves its state."""
        self._offered = set()

    def take(self, entries: Sequence[tuple[Any, Any]], dropped: Sequence[Any]) -> None:
        """Some of the entries, and keys that are gone."""
        for raw in dropped:
            key = hashable_key(raw)
            self._entries.remove(key)
            self._settle(key)
        encoded = encode_each([[value] for _, value in entries])
        for (raw, _), data in zip(entries, encoded, strict=True):
            key = hashable_key(raw)
            if key in self._offered:
                raise UserFunctionError(f"the snapshot is offered the key {raw!r} twice")
            self._offered.add(key)
            if self._entries.get(key) != data:
                self._entries.put(key, data)

    def finish(self, whole: bool) -> None:
        """All has been offered; if that is the `whole` state, the rest is gone."""
        assert all(key in self._entries for key in self._offered), "what was offered is kept"
        if whole:
            for key in list(self._entries.keys()):
                if key not in self._offered:
                    self._entries.remove(key)
            self._forget_strangers(list(self._strangers))
        else:
            self._forget_strangers([each for each in self._strangers if each[1] in self._offered])
        self._offered = set()
        assert not (whole and self._strangers), "after a whole state nothing is a stranger"

    def clear(self) -> None:
        """Nothing is saved any more."""
        self.begin()
        self.finish(whole=True)

    def _settle(self, key: Any) -> None:
        self._forget_strangers([each for each in self._strangers if each[1] == key])

    def _forget_strangers(self, found: list[tuple[int, Any]]) -> None:
        for each in found:
            del self._strangers[each]
        self._gone += found

    def trim(self) -> None:
        """Put on disk what was used least."""
        self._store.trim()

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """All keys and values, as they were offered."""
        for key, data in self._entries.items():
            yield group_value(key), decode_values(data)[0]
        for (_, key), data in self._strangers.items():
            yield group_value(key), decode_values(data)[0]

    def query(self, asked: Selection, extents_max: int | None = None) -> list[Extent]:
        """The entries that are asked for, with the shard as both bounds: processors may save the
        same key, and one of them may have what several have saved."""
        keys = self._entries.keys() if asked.key is ALL else [hashable_key(asked.key)]
        mine = ((self._store.shards[key], key) for key in keys if key in self._entries)
        there = ((key, shard, shard) for shard, key in chain(mine, self._strangers))
        return [
            Extent(group_value(key), lower, upper, decode_values(self._data(int(lower), key))[0])
            for key, lower, upper in first_of(there, asked, extents_max)
        ]

    def _data(self, shard: int, key: Any) -> bytes:
        stranger = self._strangers.get((shard, key))
        data: bytes = self._entries.peek(key) if stranger is None else stranger
        return data

    # What is not finished.

    @property
    def unfinished(self) -> list[Unfinished]:
        """The items that are to be finished before anything else is done."""
        return [self._unfinished[shard] for shard in sorted(self._unfinished)]

    def place(self, key: Any) -> int:
        """The shard of a group."""
        return self._place(hashable_key(key))

    def begin_item(self, item: Unfinished) -> None:
        """An item is not finished, or so much more of what it makes is sent."""
        known = self._unfinished.get(item.shard)
        assert known is None or known.item is item.item, "a shard has one unfinished item at most"
        assert known is None or known.sent.segments <= item.sent.segments, "what is sent stays sent"
        self._unfinished[item.shard] = item
        self._new_unfinished.add(item.shard)

    def end_item(self, shard: int) -> None:
        """It is finished."""
        del self._unfinished[shard]
        self._new_unfinished.add(shard)

    # What has ended.

    @property
    def shards(self) -> Sequence[int]:
        """The shards of the peer."""
        return sorted(self._known)

    def is_over(self, shard: int, what: int) -> bool:
        """Whether it has ended for what is in a shard."""
        return what in self._ends.get(shard, ())

    def has_ended(self, what: int) -> bool:
        """Whether it has ended for all that is here."""
        return all(self.is_over(shard, what) for shard in self._known)

    def end(self, what: int) -> None:
        """It has ended: the ordinal of a parent, or a number of the caller's."""
        for shard in self.shards:
            if not self.is_over(shard, what):
                self._ends.setdefault(shard, []).append(what)
                self._new_ends.add(shard)

    # What is recorded and restored.

    def take_changes(self) -> Records:
        """What has changed since the last call, by shard."""
        records = self._store.take_changes()
        for shard, key in self._gone:
            append(records, shard, DeleteGroups(SNAPSHOT, _EXTENT, [dump_key(key)]))
        for shard in sorted(self._new_ends):
            append(records, shard, self._ends_of(shard))
        for shard in sorted(self._new_unfinished):
            append(records, shard, self._unfinished_of(shard))
        self._gone, self._new_ends, self._new_unfinished = [], set(), set()
        return records

    def freeze(self, shards: Collection[int]) -> Callable[[int], list[Record]]:
        """What gives the whole state of each of these shards as it is now."""
        stored = self._store.freeze(shards)
        more: Records = {}
        for (shard, key), data in self._strangers.items():
            append(more, shard, SetStates(SNAPSHOT, _EXTENT, [dump_key(key)], [data]))
        for shard in self._ends:
            append(more, shard, self._ends_of(shard))
        for shard in self._unfinished:
            append(more, shard, self._unfinished_of(shard))
        return lambda shard: [*stored(shard), *more.get(shard, ())]

    def _ends_of(self, shard: int) -> Record:
        return SetStates(ENDS, _EXTENT, [None], [list(self._ends[shard])])

    def _unfinished_of(self, shard: int) -> Record:
        item = self._unfinished.get(shard)
        return SetStates(UNFINISHED, _EXTENT, [None], [None if item is None else item.record()])

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records to a shard. Raises UserError: items wait in an inbox on Spark."""
        for record in records:
            assert isinstance(record, WindowRecord), "the state log of a processor"
            if record.window == LEFT:
                raise UserError(
                    "the processor has left items in its inbox on Spark, which peers do not take "
                    "over: upgrade with engine: spark, and change the engine when nothing is left"
                )
            match record:
                case SetStates(window=name, states=states) if name == ENDS:
                    self._ends[shard] = list(states[0])
                case SetStates(window=name, states=states) if name == UNFINISHED:
                    self._unfinished.pop(shard, None)
                    if states[0] is not None:
                        self._unfinished[shard] = of_record(shard, states[0])
                case SetStates(groups=groups, states=states):
                    for raw, data in zip(groups, states, strict=True):
                        self._restore_entry(shard, raw, data)
                case DeleteGroups(groups=groups):
                    for raw in groups:
                        self._restore_entry(shard, raw, None)
        self.trim()

    def _restore_entry(self, shard: int, raw: Any, data: bytes | None) -> None:
        """An entry of a record; None: it is gone."""
        key = hashable_key(raw)
        if self._store.shards[key] != shard:
            if data is None:
                self._strangers.pop((shard, key), None)
            else:
                self._strangers[shard, key] = data
        elif data is None:
            self._entries.restore(DeleteGroups(SNAPSHOT, _EXTENT, [raw]))
        else:
            self._entries.restore(SetStates(SNAPSHOT, _EXTENT, [raw], [data]))

    def restored(self) -> None:
        """All shards are restored."""
        self._store.restored()


class Sent(NamedTuple):
    """What was made, in order."""

    segments: int = 0
    checksum: int = 0

    def and_then(self, made: Sequence[Any]) -> Sent:
        """With this behind it: segments, or columns."""
        rows = [row for each in made for row in _rows(each)]
        checksum = zlib.crc32(b"".join(encode_each([[row] for row in rows])), self.checksum)
        return Sent(self.segments + len(rows), checksum)


class Unfinished(NamedTuple):
    """An item that is being processed."""

    shard: int
    ordinal: int
    item: Any
    """A segment, or a record batch of one row."""
    sent: Sent = Sent()

    def record(self) -> list[Any]:
        """The form in which the state log has it."""
        if isinstance(self.item, pa.RecordBatch):
            columns = Columns(self.item)
            schema = columns_codec.encode_schema(self.item.schema)
            return [self.ordinal, *self.sent, columns_codec.encode(columns), schema]
        return [self.ordinal, *self.sent, encode_values([self.item]), b""]


def of_record(shard: int, record: Sequence[Any]) -> Unfinished:
    """What `Unfinished.record` gave."""
    ordinal, segments, checksum, data, schema = record
    if schema:
        item = columns_codec.decode(data, columns_codec.decode_schema(schema)).record_batch
    else:
        (item,) = decode_values(data)
    return Unfinished(shard, ordinal, item, Sent(segments, checksum))


def without(made: list[Any], segments: int) -> list[Any]:
    """What was made, without the first so many segments."""
    if not made or not isinstance(made[0], Columns):
        return made[segments:]
    left: list[Any] = []
    for each in made:
        part = each.slice(min(segments, len(each)), len(each))
        segments -= len(each) - len(part)
        left += [part] if len(part) else []
    return left


def first_segments_of(made: list[Any], segments: int) -> list[Any]:
    """The first so many segments of what was made."""
    if not made or not isinstance(made[0], Columns):
        return made[:segments]
    found: list[Any] = []
    for each in made:
        part = each.slice(0, min(segments, len(each)))
        segments -= len(part)
        found += [part] if len(part) else []
    return found


def count_of(made: Sequence[Any]) -> int:
    """How many segments were made."""
    return sum(len(each) if isinstance(each, Columns) else 1 for each in made)


def _rows(made: Any) -> list[Any]:
    return made.record_batch.to_pylist() if isinstance(made, Columns) else [made]
