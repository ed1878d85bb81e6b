"""What windows need of a batch: its groups, and what they look at in its leaves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import TypeVar

from onyx.flow.batch import Batch, FoundKeys, Segment, Segments, copies_of, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes, KeyList
from onyx.flow.groups.getters import KeyGetter, naming
from onyx.flow.leaves import Leaves
from onyx.keystate.coded import GroupKeys, Keyed
from onyx.model.job import CatalogEntry
from onyx.program.keyed_function import KeyedFunction
from onyx.program.processor import Processing
from onyx.program.program import Program
from onyx.program.stream_join import StreamJoin
from onyx.program.windows import Windowed
from onyx.windows.prepared import Prepared
from onyx.windows.prepared import prepare as prepare_batch

Seen = TypeVar("Seen")


def read_groups(program: Program, batch: Batch) -> Keyed | None:
    """The groups of a batch, before the function may change what it is given; None without."""
    its = program.stateful
    if its is None:
        return None
    known = None if program.lifecycles.hooks else batch.keys  # hooks may have changed segments
    getter = _getter(its, batch.upstream)
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


def _getter(
    its: Windowed | KeyedFunction | Processing | StreamJoin, upstream: str | None
) -> KeyGetter | None:
    if isinstance(its, StreamJoin):
        return next(side.getter for side in its.sides if side.task == upstream)
    return its.group_key


def _groups_of_dicts(
    segments: list[Segment], key: KeyGetter, keys: GroupKeys, known: FoundKeys | None
) -> Keyed:
    return keys.of_list(known if isinstance(known, KeyList) else key.of_dicts(segments))


def _groups_of_columns(
    columns: Columns, key: KeyGetter, keys: GroupKeys, known: FoundKeys | None
) -> Keyed:
    return keys.of(known if isinstance(known, KeyCodes) else key.of_columns(columns))


def prepare(program: Program, leaves: Leaves) -> Prepared | None:
    """What windows need of the leaves of a batch. None if windows refuse some of them: these are
    in `refusals` then."""
    its = program.windowed
    assert its is not None, "asked before"
    return look_at_leaves(leaves, own_segments(program, leaves), partial(prepared_for, its))


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


def own_segments(program: Program, leaves: Leaves) -> Segments:
    """Copies of dicts where children get the segments too: they may change them, and a state may
    keep them."""
    shared = program.sends_to and program.entry.type == "function"
    return copies_of(leaves.segments) if shared else leaves.segments


def prepared_for(its: Windowed, segments: Segments) -> Prepared:
    """What windows need of segments. Raises UserError: they refuse one."""
    return prepare_batch(its.compiled, segments, its.unique_key)
