"""What a state needs of a batch: its groups, and what an operator sees of its leaves."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TypeVar

from onyx.flow.batch import Batch, FoundKeys, Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes, KeyList
from onyx.flow.groups.getters import KeyGetter, naming
from onyx.flow.leaves import Leaves
from onyx.keystate.coded import GroupKeys, Keyed
from onyx.model.job import CatalogEntry
from onyx.program.program import Program

Seen = TypeVar("Seen")


def read_groups(program: Program, batch: Batch) -> Keyed | None:
    """The groups of a batch, before the function may change what it is given; None without."""
    its = program.operator
    if its is None:
        return None
    known = None if program.lifecycles.hooks else batch.keys  # hooks may have changed segments
    getter = its.key_of(batch.upstream)
    return groups_of(getter, its.group_keys, program.entry, batch.segments, known)


def groups_of(
    getter: KeyGetter | None,
    keys: GroupKeys,
    entry: CatalogEntry,
    segments: Segments,
    known: FoundKeys | None,
) -> Keyed | None:
    """The groups of segments as a task has them; None where it has no groups.

    Args:
        getter: reads the key of a segment; None without groups.
        keys: those that have come before.
        entry: of the task, for messages.
        known: their keys, if somebody has found them.
    """
    if getter is None:
        return None
    with naming(entry):
        read = format_of(segments).choose(_groups_of_dicts, _groups_of_columns)
        return read(segments, getter, keys, known)


def _groups_of_dicts(
    segments: list[Segment], key: KeyGetter, keys: GroupKeys, known: FoundKeys | None
) -> Keyed:
    return keys.of_list(known if isinstance(known, KeyList) else key.of_dicts(segments))


def _groups_of_columns(
    columns: Columns, key: KeyGetter, keys: GroupKeys, known: FoundKeys | None
) -> Keyed:
    return keys.of(known if isinstance(known, KeyCodes) else key.of_columns(columns))


def look_at_leaves(
    leaves: Leaves, segments: Segments, look: Callable[[Segments], Seen]
) -> Seen | None:
    """What is seen of the segments of leaves; None if some cannot be looked at: these are in
    `refusals` then."""
    try:
        return look(segments)
    except Exception:
        parents = range(len(segments)) if leaves.parents is None else leaves.parents.tolist()
        refused: dict[int, Exception] = {}
        for index, error in format_of(segments).bad(segments, look):
            refused.setdefault(parents[index], error)
        leaves.refusals = sorted(refused.items(), key=itemgetter(0))
        return None
