"""The states of a task, of which those used last are in memory, and the rest in a RocksDB on the
local disk: states by group, and maps by entry.

What is on disk is a cache of the state log and nothing more: it is not synced, has no log of its
own, and is gone with its owner. What a bucket itself, a dict, holds counts; a group that it does
not hold is looked for on disk. What was written of a group that is in memory again stays there
until it is overwritten.

Of a map with a million entries one is read, and one is written. On disk a group has its entries
beside it, if there are few. If not it has a number and how many there are, and each entry lies
under that number, in the order of keys. So entries are gone through without being in memory, and a
map is dropped as one range. A number is never used again, so a map that is dropped and taken back
is still there. In memory a map counts as many times as it has entries there, and once at least.
What came there first goes first.

Rejected: a position on disk for each shard (a peer touches all its shards all the time); an entry
in memory for each group on disk (then memory would still grow with the groups).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, KeysView
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary, finalize

from onyx.codec.values import decode_values, encode_each
from onyx.errors import SettingsError
from onyx.flow.groups.keys import key_bytes
from onyx.keystate.buckets import Bucket, BucketForm, Holder, InMemory, Pair, pages
from onyx.keystate.entries import Entries, Step, in_order
from onyx.keystate.groups import Shards, dump_key, group_value, load_key
from onyx.settings import StateSettings
from onyx.state.local.scratch import Scratch, scratch_folder

if TYPE_CHECKING:
    from rocksdict import Rdict

PAGE = 1_024
"""Extents that are read or written at once."""
KEPT = 7 / 8
"""The share of what may be in memory that stays there when it has become too much."""
ABSENT: Final[Any] = object()
"""In place of a state: there is none."""
TOGETHER_MAX = 32
"""The entries of a map that lie beside its group."""
_PREFIX_BYTES = 8
_INT, _STR, _BYTES = b"\0", b"\1", b"\2"
_LEAST, _MOST = -(2**63), 2**64
"""Ints that are keys are between."""
CACHE_BYTES = 16_777_216
WRITE_BUFFER_BYTES = 8_388_608


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
        assert self.held >= 0, "nothing goes out of memory twice"

    def copy_out(self) -> None:
        """On disk as well: what is in memory."""
        for bucket in list(self._buckets.values()):
            bucket.copy_out()

    def forget(self, prefix: bytes) -> None:
        """A bucket is not used any more."""
        self._buckets.pop(prefix, None)


def holder(settings: StateSettings) -> Holder:
    """Where the windows of a task have their states.

    Raises:
        SettingsError: as `Spill`.
    """
    if not settings.memory_extents_max:
        return InMemory()
    return Spill(scratch_folder(settings), settings.memory_extents_max)


class Spill(Disk):
    """Makes the buckets of one task on one peer."""

    in_memory = False

    def __init__(self, parent: Path, extents_max: int) -> None:
        """`extents_max`: in memory, all buckets together, between two calls.

        Raises:
            SettingsError: rocksdict is not installed, or `parent` cannot be written to.
        """
        super().__init__(extents_max)
        self.db = _open(parent, self)

    @property
    def spilled(self) -> int:
        """Groups that are only on disk, of all buckets."""
        return sum(each.cold for each in list(self._buckets.values()))

    def bucket(self, form: BucketForm, shards: Shards) -> Bucket:
        """A new bucket, empty."""
        return self.added(SpilledBucket(self.new_prefix(), form, shards, self))

    def maps(self, shards: Shards) -> Bucket:
        """A new bucket of maps, empty."""
        return self.added(SpilledMaps(self.new_prefix(), shards, self))

    def freeze(self) -> FrozenSpill:
        """What is in memory is written as well, and stays there."""
        self.copy_out()
        return FrozenSpill(self)


class FrozenSpill:
    """Buckets as they were at one moment, for one thread at a time."""

    def __init__(self, spill: Spill) -> None:
        self._spill = spill  # whose database is open as long as somebody has it
        # An iterator sees what there was when it was made. (What rocksdict calls a snapshot gives
        # iterators that see the newest.)
        self._found = spill.db.iter()
        self._entries = spill.db.iter()

    def pages(self, bucket: Bucket, shard: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """Groups of a shard and their states, as plain data, some at a time."""
        assert isinstance(bucket, SpilledBucket)
        found, prefix = self._found, bucket.prefix + shard.to_bytes(2, "big")
        found.seek(prefix)
        keys: list[Any] = []
        states: list[Any] = []
        while found.valid() and found.key().startswith(prefix):
            key, state = decode_values(found.value())
            keys.append(key)
            states.append(state)
            found.next()
            if len(keys) == PAGE:
                yield keys, states
                keys, states = [], []
        if keys:
            yield keys, states

    def maps(self, bucket: Bucket, shard: int) -> Iterator[tuple[Any, Iterator[Pair]]]:
        """Groups of a shard, as plain data, each with the entries of its map."""
        for keys, states in self.pages(bucket, shard):
            for key, dumped in zip(keys, states, strict=True):
                yield key, entries_of(dumped, self._read)

    def _read(self, prefix: bytes) -> Iterator[Pair]:
        found = self._entries
        found.seek(prefix)
        while found.valid() and found.key().startswith(prefix):
            yield entry_of(found.key(), found.value())
            found.next()


def _open(parent: Path, owner: Spill) -> Rdict:
    """A database that ends with its owner."""
    try:
        import rocksdict as rocks
    except ImportError as error:
        raise SettingsError(
            "ONYX_STATE_MEMORY_EXTENTS_MAX needs rocksdict: pip install 'onyx-on-kubernetes[spill]'"
        ) from error
    scratch = Scratch(parent)
    table = rocks.BlockBasedOptions()
    table.set_block_cache(rocks.Cache(CACHE_BYTES))
    table.set_bloom_filter(10, False)
    options = rocks.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(rocks.DBCompressionType.lz4())
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    db = rocks.Rdict(str(scratch.path / "db"), options)
    unlogged = rocks.WriteOptions()
    unlogged.disable_wal = True  # type: ignore[assignment,method-assign]
    db.set_write_options(unlogged)
    finalize(owner, _end, db, scratch)
    return db


def _end(db: Rdict, scratch: Scratch) -> None:
    db.close()
    scratch.remove()


class SpilledBucket(Bucket):
    """States by group, of which only some are in memory."""

    __slots__ = ("__weakref__", "_cold", "_spill", "_written", "prefix")

    def __init__(self, prefix: bytes, form: BucketForm, shards: Shards, spill: Disk) -> None:
        """`prefix`: of its names on disk, which nobody else has."""
        super().__init__(form, shards)
        self.prefix = prefix
        self._spill = spill
        self._cold = 0
        """Groups that are only on disk."""
        self._written = False
        """Whether there may be anything on disk."""

    @property
    def cold(self) -> int:
        """Groups that are only on disk."""
        return self._cold

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
        assert self._cold >= 0, "nothing comes into memory twice"
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


class SpilledEntries(Entries):
    """A map of one group, of which only some entries are in memory."""

    __slots__ = ("_changed", "_cold", "_held", "_prefix", "_spill")

    def __init__(self, spill: Disk, prefix: bytes = b"", count: int = 0) -> None:
        """
        Args:
            prefix: under which entries are on disk; empty: none is.
            count: how many.
        """
        self._spill = spill
        self._prefix = prefix
        self._held: dict[Any, Any] = {}
        self._changed: dict[Any, None] = {}
        """Keys in memory whose entry on disk is another one, or is not there; noted when some
        are."""
        self._cold = count
        """Entries that are only on disk."""

    @classmethod
    def load(cls, spill: Disk, _: Any, dumped: list[Any]) -> SpilledEntries:
        """The map from what `dump` gave. Its entries do not count as being in memory yet."""
        if len(dumped) == 2:
            return cls(spill, *dumped)
        made = cls(spill)
        made._held.update(_beside(dumped))
        return made

    def dump(self) -> list[Any]:
        """What the group has on disk; the entries are there then as well."""
        if not self._prefix and len(self._held) <= TOGETHER_MAX:
            return [list(chain.from_iterable(self._held.items()))]
        self._write(self._held)
        return [self._prefix, len(self)]

    @property
    def weight(self) -> int:
        """How many times it counts as being in memory."""
        return len(self._held) or 1

    # As a mapping.

    def __len__(self) -> int:
        return len(self._held) + self._cold

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.in_order())

    def __contains__(self, key: object) -> bool:
        return key in self._held or self._data(key) is not None

    def __getitem__(self, key: Any) -> Any:
        found = self.get(key, ABSENT)
        if found is ABSENT:
            raise KeyError(key)
        return found

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, which comes into memory if it is on disk."""
        if key in self._held:
            return self._held[key]
        data = self._data(key)
        if data is None:
            return default
        self._cold -= 1
        value = decode_values(data)[0]
        self._hold(key, value)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self._held:
            self._cold -= self._data(key) is not None
        self._hold(key, value)
        if self._prefix:
            self._changed[key] = None

    def __delitem__(self, key: Any) -> None:
        if key in self._held:
            del self._held[key]
            self._changed.pop(key, None)
            self._spill.held -= bool(self._held)
        elif self._data(key) is not None:
            self._cold -= 1
        else:
            raise KeyError(key)
        name = _name_of(key)
        if self._prefix and name is not None:
            self._spill.db.delete(self._prefix + name)

    def in_order(
        self, first: Step | None = None, end: Step | None = None, behind: Step | None = None
    ) -> Iterator[Pair]:
        """Entries in order. Those of a large map do not come into memory to stay."""
        if self._cold and len(self) <= PAGE:
            self._read_all()
        if not self._cold:
            return in_order(self._held, first, end, behind=behind)
        self._write(self._held)
        lower, upper = _bounds(self._prefix, first, end)
        if behind is not None:
            lower = max(lower, self._prefix + _bound(behind) + b"\0")
        return _read(self._spill.db, lower, upper)

    # In memory and on disk.

    def evict(self, many: int) -> None:
        """So many entries are only on disk from now on."""
        keys = list(islice(self._held, many))
        self._write(keys)
        before = self.weight
        for key in keys:
            del self._held[key]
        self._cold += len(keys)
        self._spill.held -= before - self.weight

    def free(self) -> None:
        """The map is not used any more: what is on disk goes in one range."""
        self._spill.held -= self.weight - 1  # the group itself has gone before
        self._held, self._changed, self._cold = {}, {}, 0
        if self._prefix:
            self._spill.db.delete_range(self._prefix, after(self._prefix))

    def _read_all(self) -> None:
        for key, value in _read(self._spill.db, *_bounds(self._prefix)):
            if key not in self._held:
                self._hold(key, value)
        self._cold = 0

    def _hold(self, key: Any, value: Any) -> None:
        self._spill.held += bool(self._held) and key not in self._held
        self._held[key] = value

    def _write(self, keys: Iterable[Any]) -> None:
        """Put on disk those of these that have changed."""
        from rocksdict import WriteBatch

        if not self._prefix:
            self._prefix = self._spill.new_prefix()
            self._changed = dict.fromkeys(self._held)
        for page in pages([key for key in keys if key in self._changed], PAGE):
            batch = WriteBatch(raw_mode=True)
            encoded = encode_each([[self._held[key]] for key in page])
            for key, data in zip(page, encoded, strict=True):
                name = _name_of(key)
                assert name is not None, "looked at when it was put"
                batch.put(self._prefix + name, data)
                del self._changed[key]
            self._spill.db.write(batch)

    def _data(self, key: object) -> bytes | None:
        """What is on disk of an entry that is not in memory."""
        name = _name_of(key) if self._cold else None
        if name is None:
            return None
        data: bytes | None = self._spill.db.get(self._prefix + name)
        return data


class SpilledMaps(SpilledBucket):
    """Maps by group, of which only some groups, and of these only some entries, are in memory."""

    __slots__ = ()

    def __init__(self, prefix: bytes, shards: Shards, spill: Disk) -> None:
        form = BucketForm(
            partial(SpilledEntries, spill), SpilledEntries.dump, partial(SpilledEntries.load, spill)
        )
        super().__init__(prefix, form, shards, spill)

    def evict(self, share: float) -> None:
        """Only on disk from now on: of what came into memory first groups, and of a group whose
        turn it is in part entries."""
        left = int(sum(state.weight for state in dict.values(self)) * share) + 1
        keys = []
        for key, state in dict.items(self):
            if state.weight > left:
                state.evict(left)
                break
            keys.append(key)
            left -= state.weight
            if not left:
                break
        self._write(keys)
        for key in keys:
            self._spill.held -= dict.pop(self, key).weight
        self._cold += len(keys)

    def _stored(self, key: Any) -> Any:
        state = super()._stored(key)
        if state is not ABSENT:
            self._spill.held += state.weight - 1
        return state

    def _read_items(self, prefix: bytes) -> Iterator[Pair]:
        db = self._spill.db
        for data, dumped in stored(db, prefix):
            yield load_key(data), dict(entries_of(dumped, lambda its: _read(db, *_bounds(its))))


def entries_of(dumped: list[Any], read: Callable[[bytes], Iterator[Pair]]) -> Iterator[Pair]:
    """The entries of a group by what it has on disk.

    Args:
        read: gives those that lie under a prefix.
    """
    return read(dumped[0]) if len(dumped) == 2 else _beside(dumped)


def entry_of(name: bytes, data: bytes) -> Pair:
    """An entry as it is on disk."""
    kind, rest = name[_PREFIX_BYTES : _PREFIX_BYTES + 1], name[_PREFIX_BYTES + 1 :]
    value = decode_values(data)[0]
    if kind == _STR:
        return rest.decode("utf-8", "surrogatepass"), value
    return (int.from_bytes(rest, "big") + _LEAST if kind == _INT else rest), value


def _read(db: Rdict, first: bytes, end: bytes) -> Iterator[Pair]:
    """Entries by their names, as they are on disk now."""
    from rocksdict import ReadOptions

    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    return _entries(db.items(from_key=first, read_opt=options), options)


def _entries(found: Iterable[Any], _: object) -> Iterator[Pair]:
    """Holds the options as long as they are read: the iterator has a pointer to the bound."""
    for name, data in found:
        yield entry_of(name, data)


def _beside(dumped: list[Any]) -> Iterator[Pair]:
    flat = iter(dumped[0])
    return zip(flat, flat, strict=True)


def _bounds(
    prefix: bytes, first: Step | None = None, end: Step | None = None
) -> tuple[bytes, bytes]:
    """The first name of a range, and the one before which it ends."""
    if first is None and end is None:
        return prefix, after(prefix)
    lower = _bound(end)[:1] if first is None else _bound(first)
    upper = after(prefix + _bound(first)[:1]) if end is None else prefix + _bound(end)
    return prefix + lower, upper


def _bound(key: Step | None) -> bytes:
    name = _name_of(min(max(key, _LEAST), _MOST) if isinstance(key, int) else key)
    assert name is not None, "an int, a text or bytes"
    return name


def _name_of(key: object) -> bytes | None:
    """What is behind the prefix in the name of an entry: names are in the order of keys. None: no
    map has such a key."""
    if isinstance(key, float) and key.is_integer():
        key = int(key)  # as a dict finds it
    if isinstance(key, int):
        inside = _LEAST <= key <= _MOST
        return _INT + (key - _LEAST).to_bytes(9, "big") if inside else None
    if isinstance(key, str):
        return _STR + key.encode("utf-8", "surrogatepass")
    return _BYTES + key if isinstance(key, bytes) else None
