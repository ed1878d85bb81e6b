"""Maps of groups on the local disk, by entry: of a map with a million entries one is read, and one
is written.

On disk a group has its entries beside it, if there are few. If not it has a number and how many
there are, and each entry lies under that number, in the order of keys. So entries are gone through
without being in memory, and a map is dropped as one range. A number is never used again, so a map
that is dropped and taken back is still there.

In memory a map counts as many times as it has entries there, and once at least. What came there
first goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from onyx.codec.values import decode_values, encode_each
from onyx.keystate.buckets import Form, Pair, pages
from onyx.keystate.entries import Entries, Step, in_order
from onyx.keystate.groups import Shards, load_key
from onyx.state.local.spilled_bucket import ABSENT, PAGE, Disk, SpilledBucket, after, stored

if TYPE_CHECKING:
    from rocksdict import Rdict

TOGETHER_MAX = 32
"""The entries of a map that lie beside its group."""
_PREFIX_BYTES = 8
_INT, _STR, _BYTES = b"\0", b"\1", b"\2"
_LEAST, _MOST = -(2**63), 2**64
"""Ints that are keys are between."""


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
        form = Form(
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
