"""Stable hashes of the group keys of whole batches, for the peers that groups are sent to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onyx.flow.batch import U64, Indices, Segment
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes, KeyList, Remembered
from onyx.flow.groups.getters import KeyGetter, naming
from onyx.flow.groups.hashes import column_hashes
from onyx.flow.groups.keys import key_hash, slots_of_shards
from onyx.model.job import CatalogEntry

_PLAIN = frozenset({str, bool, bytes, type(None)})
"""Types of which every value has canonical bytes."""
MEMO_KEYS_MAX = 65_536
"""Hashes remembered for each kind of key; beyond it all are forgotten."""


class Grouping:
    """Hashes of the group keys of one task, remembered for keys that come again."""

    def __init__(self, getter: KeyGetter, entry: CatalogEntry) -> None:
        self._getter = getter
        self._entry = entry
        self._memos: dict[type, _Memo] = {str: _Memo(), int: _Memo(), float: _Memo()}
        self._of_columns = Remembered(key_hash)

    def hashes_of(self, segments: Sequence[Segment] | Columns) -> U64:
        """One stable hash a segment.

        Raises:
            Refusal: a segment lacks its key, or has one that nothing can be grouped by, or the
                user's `groupByFn` raises.
        """
        with naming(self._entry):
            if isinstance(segments, Columns):
                return self._of_codes(self._getter.of_columns(segments))
            return self._hashes(self._getter.of_all(segments))

    def _of_codes(self, keys: KeyCodes) -> U64:
        hashes = None if keys.column is None else column_hashes(keys.column)
        if hashes is None:
            hashes = np.fromiter(self._of_columns.of(keys), np.uint64, len(keys))
        found: U64 = hashes[keys.codes]
        return found

    def _hashes(self, keys: Sequence[Any]) -> U64:
        kinds = set(map(type, keys))
        memo = self._memos.get(kinds.pop()) if len(kinds) == 1 else None
        hashed = key_hash if memo is None else memo.__getitem__
        return np.fromiter(map(hashed, keys), np.uint64, len(keys))

    def check(self, segments: Sequence[Segment] | Columns) -> KeyCodes | KeyList:
        """Their keys, if all of them have a group; raises as `hashes_of` does, which takes longer
        where nobody needs the hashes."""
        with naming(self._entry):
            if isinstance(segments, Columns):
                found = self._getter.of_columns(segments)
                if found.column is None and not _PLAIN.issuperset(map(type, found.raws)):
                    self._of_columns.of(found)
                return found
            keys = self._getter.of_all(segments)
            if not _PLAIN.issuperset(map(type, keys)):
                self._hashes(keys)
            return KeyList(keys)

    def slots_of(self, segments: Sequence[Segment] | Columns, n: int) -> Indices:
        """For each segment the one of `n` slots that has its group: that of its shard."""
        assert n > 0
        return slots_of_shards(self.hashes_of(segments), n)


class _Memo(dict[Any, int]):
    """The hashes of keys of one exact type: `True` would find what `1` has left."""

    def __missing__(self, key: Any) -> int:
        if len(self) >= MEMO_KEYS_MAX:
            self.clear()
        result = self[key] = key_hash(key)
        return result
