"""Buckets that keep in memory what was used last, and the rest in a RocksDB on the local disk.

What the dict itself holds counts; a group that it does not hold is looked for on disk. What was
written of a group that is in memory again stays there until it is overwritten.

Rejected: an entry in memory for each group on disk (then memory would still grow with the groups).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, KeysView
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from onyx.codec.values import decode_values, encode_each
from onyx.flow.groups.keys import key_bytes
from onyx.keystate.buckets import Bucket, Form, Pair, pages
from onyx.keystate.groups import Shards, dump_key, group_value, load_key

if TYPE_CHECKING:
    from rocksdict import Rdict

PAGE = 1_024
"""Extents that are read or written at once."""
KEPT = 7 / 8
"""The share of what may be in memory that stays there when it has become too much."""
ABSENT: Final[Any] = object()
"""In place of a state: there is none."""


class Disk:
    """The database that the buckets of one task share."""

    db: Rdict

    def __init__(self, extents_max: int) -> None:
        """`extents_max`: in memory, all buckets together, between two calls."""
        self.held = 0
        """Extents in memory, and entries of maps there."""
        self._extents_max = extents_max
        self._buckets: WeakValueDictionary[bytes, SpilledBucket] = WeakValueDictionary()
        """Weak, so that the database ends when the states do."""
        self._made = 0

    def new_prefix(self) -> bytes:
        """Names in the database that begin with it are nobody else's."""
        self._made += 1
        return self._made.to_bytes(8, "big")

    def added(self, bucket: SpilledBucket) -> SpilledBucket:
        """One more bucket."""
        self._buckets[bucket.prefix] = bucket
        return bucket

    def trim(self) -> None:
        """Write what was used least, of each bucket the same share."""
        if self.held <= self._extents_max:
            return
        share = 1 - KEPT * self._extents_max / self.held
        for bucket in list(self._buckets.values()):
            bucket.evict(share)

    def copy_out(self) -> None:
        """On disk as well: what is in memory."""
        for bucket in list(self._buckets.values()):
            bucket.copy_out()

    def forget(self, prefix: bytes) -> None:
        """A bucket is not used any more."""
        self._buckets.pop(prefix, None)


class SpilledBucket(Bucket):
    """States by group, of which only some are in memory."""

    __slots__ = ("__weakref__", "_cold", "_spill", "_written", "prefix")

    def __init__(self, prefix: bytes, form: Form, shards: Shards, spill: Disk) -> None:
        """`prefix`: of its names on disk, which nobody else has."""
        super().__init__(form, shards)
        self.prefix = prefix
        self._spill = spill
        self._cold = 0
        """Groups that are only on disk."""
        self._written = False
        """Whether there may be anything on disk."""

    # As a mapping.

    def __missing__(self, key: Any) -> Any:
        state = self._stored(key)
        if state is ABSENT:
            state = self._init()
        else:
            self._cold -= 1
        dict.__setitem__(self, key, state)
        self._spill.held += 1
        return state

    def __setitem__(self, key: Any, state: Any) -> None:
        if not dict.__contains__(self, key):
            self._cold -= self._is_stored(key)
            self._spill.held += 1
        dict.__setitem__(self, key, state)

    def __delitem__(self, key: Any) -> None:
        if dict.__contains__(self, key):
            dict.__delitem__(self, key)
            self._spill.held -= 1
        elif self._is_stored(key):
            self._cold -= 1
        else:
            raise KeyError(key)
        if self._written:
            self._spill.db.delete(self._name(key))

    def __contains__(self, key: Any) -> bool:
        return dict.__contains__(self, key) or self._is_stored(key)

    def __len__(self) -> int:
        return dict.__len__(self) + self._cold

    def __iter__(self) -> Iterator[Any]:
        return iter(self.groups())

    def get(self, key: Any, default: Any = None) -> Any:
        """The state of a group, which comes into memory if it is on disk."""
        if dict.__contains__(self, key):
            return dict.__getitem__(self, key)
        state = self._stored(key)
        if state is ABSENT:
            return default
        self._cold -= 1
        dict.__setitem__(self, key, state)
        self._spill.held += 1
        return state

    def keys(self) -> KeysView[Any]:  # type: ignore[override]
        """All groups, those on disk as well."""
        return KeysView(self)

    def items(self) -> Iterable[tuple[Any, Any]]:  # type: ignore[override]
        """Groups with their states; those that are on disk do not come into memory to stay."""
        if not self._cold:
            return list(dict.items(self))
        self.evict(1)
        return self._read_items(self.prefix)

    def update(  # type: ignore[override]
        self, states: dict[Any, Any] | Iterable[tuple[Any, Any]]
    ) -> None:
        """Set the states of several groups."""
        for key, state in states.items() if isinstance(states, dict) else states:
            self[key] = state

    # As a bucket.

    def groups(self, shards: Collection[int] | None = None) -> Iterable[Any]:
        """Groups of some shards, or all; meanwhile they may be changed and removed. From disk, page
        by page."""
        if not self._cold and shards is None:
            return list(dict.__iter__(self))
        return self._read_groups(shards)

    def by_shard(self, shards: Collection[int]) -> Callable[[int], Iterable[Any]]:
        """What gives the groups of each of these shards, as `groups` does. Nothing is read before a
        shard is asked for."""
        return lambda shard: self.groups([shard])

    def parts(self, most: int) -> Iterator[tuple[int, list[Pair]]]:
        """From disk: these states do not come into memory to stay."""
        self.evict(1)
        for shard in sorted(self._shards.known):
            for part in pages(self._read_items(self._shard_prefix(shard)), most):
                yield shard, part

    def remove(self, keys: Iterable[Any]) -> None:
        """Without a look whether they are on disk."""
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        for key in keys:
            if dict.pop(self, key, ABSENT) is ABSENT:
                self._cold -= 1
            else:
                self._spill.held -= 1
            if self._written:
                batch.delete(self._name(key))
        self._spill.db.write(batch)

    def used(self, keys: Iterable[Any]) -> None:
        """Move these groups to the end of the dict, from whose beginning `evict` takes."""
        for key in keys:
            state = dict.pop(self, key, ABSENT)
            if state is not ABSENT:
                dict.__setitem__(self, key, state)

    def free(self) -> None:
        """Delete what is on disk, in one range."""
        self._spill.held -= dict.__len__(self)
        self._spill.forget(self.prefix)
        dict.clear(self)
        self._cold = 0
        if self._written:
            self._spill.db.delete_range(self.prefix, after(self.prefix))

    # On disk.

    def evict(self, share: float) -> None:
        """Only on disk from now on: what was used least."""
        many = min(dict.__len__(self), int(dict.__len__(self) * share) + 1)
        if not many:
            return
        keys = list(islice(dict.__iter__(self), many))
        self._write(keys)
        for key in keys:
            dict.__delitem__(self, key)
        self._cold += many
        self._spill.held -= many

    def copy_out(self) -> None:
        """On disk as well: what is in memory."""
        self._write(list(dict.__iter__(self)))

    def _write(self, keys: list[Any]) -> None:
        from rocksdict import WriteBatch

        dump = self._form.dump
        for begin in range(0, len(keys), PAGE):
            batch = WriteBatch(raw_mode=True)
            page = keys[begin : begin + PAGE]
            states = map(dump, map(partial(dict.__getitem__, self), page))
            pairs = list(zip(map(dump_key, page), states, strict=True))
            for key, encoded in zip(page, encode_each(pairs), strict=True):
                batch.put(self._name(key), encoded)
            self._spill.db.write(batch)
            self._written = True

    def _read_groups(self, shards: Collection[int] | None) -> Iterator[Any]:
        """From disk, where they are in the order of shards, once all are there."""
        self.evict(1)
        prefixes = [self.prefix] if shards is None else map(self._shard_prefix, sorted(shards))
        for prefix in prefixes:
            for count, (key, _) in enumerate(stored(self._spill.db, prefix), 1):
                yield load_key(key)
                if not count % PAGE:
                    self._spill.trim()

    def _read_items(self, prefix: bytes) -> Iterator[Pair]:
        load = self._form.load
        for data, state in stored(self._spill.db, prefix):
            key = load_key(data)
            yield key, load(key, state)

    def _stored(self, key: Any) -> Any:
        """The state on disk of a group that is not in memory."""
        data = self._spill.db.get(self._name(key)) if self._cold else None
        return ABSENT if data is None else self._form.load(key, decode_values(data)[1])

    def _is_stored(self, key: Any) -> bool:
        return self._cold > 0 and self._spill.db.get(self._name(key)) is not None

    def _name(self, key: Any) -> bytes:
        return self._shard_prefix(self._shards[key]) + key_bytes(group_value(key))

    def _shard_prefix(self, shard: int) -> bytes:
        return self.prefix + shard.to_bytes(2, "big")


def stored(db: Rdict, prefix: bytes) -> Iterator[tuple[Any, Any]]:
    """Groups and states as plain data, in the order of their names."""
    from rocksdict import ReadOptions

    options = ReadOptions()
    options.set_iterate_upper_bound(after(prefix))
    for data in db.values(from_key=prefix, read_opt=options):
        key, state = decode_values(data)
        yield key, state


def after(prefix: bytes) -> bytes:
    """The first name that does not begin with it."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
