"""Stable hashes of the group keys of whole batches, for the peers that groups are sent to; and what
the children of a task cannot be sent: segments without a group.

These are found where segments come from, whether the next peer is in another process or in this
one, and whether the child has one peer or many: a job does not get right or wrong by where its
peers are. A batch is looked at as a whole, and one by one only if something in it is refused.

The one peer of a child gets the keys with the batch, and need not read them again. (Several peers
do: to split the keys costs as much for the peers that are elsewhere as it saves for one here.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from onyx.flow.arrays import U64, Indices
from onyx.flow.batch import DICTS, Segments, as_dicts, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes, KeyList, Remembered
from onyx.flow.groups.getters import KeyGetter, naming
from onyx.flow.groups.keys import are_sound, column_hashes, key_hash, slots_of_shards
from onyx.flow.routed import Outgoing
from onyx.flow.segment import Segment, SegmentFailure
from onyx.model.job import CatalogEntry

MEMO_KEYS_MAX = 65_536
"""Hashes remembered for each kind of key; beyond it all are forgotten."""


class Grouping:
    """Hashes of the group keys of one task, remembered for keys that come again."""

    def __init__(self, getter: KeyGetter, entry: CatalogEntry) -> None:
        self._getter = getter
        self._entry = entry
        self._memos: dict[type, _HashMemo] = {
            str: _HashMemo(),
            int: _HashMemo(),
            float: _HashMemo(),
        }
        self._remembered = Remembered(key_hash)

    def hashes_of(self, segments: Segments) -> U64:
        """One stable hash a segment.

        Raises:
            Refusal: a segment lacks its key, or has one that nothing can be grouped by, or the
                user's `groupByFn` raises.
        """
        with naming(self._entry):
            hashes = format_of(segments).choose(self._of_dicts, self._of_columns)
            return hashes(segments)

    def _of_dicts(self, segments: list[Segment]) -> U64:
        return self._hashes(self._getter.of_dicts(segments))

    def _of_columns(self, columns: Columns) -> U64:
        keys = self._getter.of_columns(columns)
        hashes = None if keys.column is None else column_hashes(keys.column)
        if hashes is None:
            hashes = np.fromiter(self._remembered.of(keys), np.uint64, len(keys))
        found: U64 = hashes[keys.codes]
        return found

    def _hashes(self, keys: KeyList) -> U64:
        if keys.names is not None:
            return np.fromiter(self._remembered.of(keys), np.uint64, len(keys.raws))
        kinds = set(map(type, keys.raws))
        memo = self._memos.get(kinds.pop()) if len(kinds) == 1 else None
        hashed = key_hash if memo is None else memo.__getitem__
        return np.fromiter(map(hashed, keys.raws), np.uint64, len(keys.raws))

    def check(self, segments: Segments) -> KeyCodes | KeyList:
        """Their keys, if all of them have a group; raises as `hashes_of` does, which takes longer
        where nobody needs the hashes."""
        with naming(self._entry):
            check = format_of(segments).choose(self._check_dicts, self._check_columns)
            return check(segments)

    def _check_dicts(self, segments: list[Segment]) -> KeyCodes | KeyList:
        keys = self._getter.of_dicts(segments)
        if not _are_sound(keys):
            self._hashes(keys)
        return keys

    def _check_columns(self, columns: Columns) -> KeyCodes | KeyList:
        found = self._getter.of_columns(columns)
        if found.column is None and not _are_sound(found):
            self._remembered.of(found)
        return found

    def slots_of(self, segments: Segments, n: int) -> Indices:
        """For each segment the one of `n` slots that has its group: that of its shard."""
        assert n > 0
        return slots_of_shards(self.hashes_of(segments), n)


def _are_sound(keys: KeyCodes | KeyList) -> bool:
    """Whether all keys are known to have canonical bytes."""
    return are_sound(keys.raws if keys.names is None else list(chain.from_iterable(keys.raws)))


class _HashMemo(dict[Any, int]):
    """The hashes of keys of one exact type: `True` would find what `1` has left."""

    def __missing__(self, key: Any) -> int:
        if len(self) >= MEMO_KEYS_MAX:
            self.clear()
        result = self[key] = key_hash(key)
        return result


# --- what children cannot be sent ---------------------------------------------------------------


class GroupChecks:
    """The checks of one task."""

    def __init__(
        self,
        groupings: Mapping[str, Grouping],
        several: Collection[str],
    ) -> None:
        """
        Args:
            groupings: of the children that are grouped.
            several: children with several peers, for whom segments are hashed.
        """
        self._groupings = groupings
        self._several = several

    def __call__(self, to: Mapping[str, Outgoing]) -> list[SegmentFailure]:
        """`Refused`; leaves the group keys, or their hashes, in `to`."""
        if not self._groupings:
            return []
        found: dict[int, Exception] = {}
        for child, outgoing in to.items():
            if not len(outgoing) or child not in self._groupings:
                continue
            for index, error in self._of_group(child, outgoing):
                parents = outgoing.parents
                found.setdefault(index if parents is None else int(parents[index]), error)
        return sorted(found.items(), key=itemgetter(0))

    def _of_group(self, child: str, outgoing: Outgoing) -> list[SegmentFailure]:
        grouping, segments = self._groupings[child], outgoing.segments
        try:
            if child in self._several:
                outgoing.hashes = grouping.hashes_of(segments)
            else:
                outgoing.keys = grouping.check(segments)
        except Exception:
            return DICTS.bad(as_dicts(segments), grouping.check)
        return []
