"""The leaves of a batch: what a function returned, flattened, with columns that say of what.

Only the usual answers (all dicts, dicts and Nones, lists) are worth a fast path. An object per
result, as in the original, was rejected: it costs four times the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, islice, repeat
from operator import is_not, itemgetter
from types import GeneratorType, NoneType
from typing import Any

import msgspec
import numpy as np
from msgspec import field

from onyx.errors import UserFunctionError, contained, describe_type
from onyx.flow.batch import Indices, Segment, Segments, take
from onyx.flow.segment import SegmentFailure
from onyx.functions.retry import asked_by

LEAVES_MAX = 1_000_000
"""Most segments that a generator may make of one: an endless one would take all memory."""


class Leaves(msgspec.Struct):
    """What a function made of a batch, flattened, in order."""

    segments: Segments
    parents: Indices | None = None
    """For each leaf the index of its parent in the batch, never falling; None: leaf i is of
    parent i, for every i."""
    child_index: Indices | None = None
    """For each leaf its index among the leaves of its parent; None: 0 for all."""
    failures: list[SegmentFailure] = field(default_factory=list)
    """Segments for which the function raised, in order; they have no leaves."""
    refusals: list[SegmentFailure] = field(default_factory=list)
    """Segments of which a window of the task refuses a leaf, in order, each once."""

    def __len__(self) -> int:
        return len(self.segments)

    def without(self, failures: list[SegmentFailure]) -> Leaves:
        """The leaves of a batch that are its own segments, without some that have failed."""
        assert self.parents is None, "no function has made them"
        kept = np.delete(np.arange(len(self)), [index for index, _ in failures])
        return of_some(Leaves(take(self.segments, kept)), kept, failures)


def of_some(leaves: Leaves, kept: Indices, failures: list[SegmentFailure]) -> Leaves:
    """The leaves of a batch of which only some segments were given to the function.

    Args:
        leaves: of those.
        kept: their indices in the batch, increasing.
        failures: of the others.
    """
    mine = [(int(kept[index]), error) for index, error in leaves.failures]
    return Leaves(
        leaves.segments,
        kept if leaves.parents is None else kept[leaves.parents],
        leaves.child_index,
        sorted([*mine, *failures], key=itemgetter(0)),
    )


_DICT, _LIST = {dict}, {list}
_DICT_OR_NONE: set[type] = {dict, NoneType}
_PERHAPS_EMPTY = {dict, NoneType, list, tuple}


def flatten(results: list[Any], failures: list[SegmentFailure]) -> Leaves:
    """The leaves of one result a segment; results that are no segments become failures.

    Args:
        results: what the function returned, None where it raised; the caller's no more.
        failures: what it raised, in order.
    """
    kinds: set[type] = set(map(type, results))
    if kinds <= _DICT:
        return Leaves(results)
    if _one_or_none(results, kinds):
        results = [result if type(result) is dict else None for result in results]
        kinds = _DICT_OR_NONE
    if kinds <= _DICT_OR_NONE:
        there = bytes(map(is_not, results, repeat(None)))
        parents = np.frombuffer(there, dtype=np.bool_).nonzero()[0]
        return Leaves(list(compress(results, there)), parents, None, failures)
    if kinds == _LIST and _DICT.issuperset(map(type, segments := _joined(results))):
        return _of_lists(results, segments, failures)
    lists, wrong = _as_lists(results)
    return _of_lists(lists, _joined(lists), sorted(failures + wrong, key=itemgetter(0)))


def _of_lists(
    lists: list[Sequence[Segment]], segments: list[Segment], failures: list[SegmentFailure]
) -> Leaves:
    counts = np.fromiter(map(len, lists), dtype=np.intp, count=len(lists))
    parents = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    child_index = np.arange(len(parents)) - firsts[parents]
    return Leaves(segments, parents, child_index, failures)


def _one_or_none(results: list[Any], kinds: set[type]) -> bool:
    """Whether some are lists, but only empty ones."""
    if kinds <= _DICT_OR_NONE or not kinds <= _PERHAPS_EMPTY:
        return False
    return not any(result for result in results if type(result) is not dict)


def _joined(lists: list[Sequence[Segment]]) -> list[Any]:
    """The items of all: by the list, which takes half of the time of a chain."""
    joined: list[Any] = []
    for each in lists:
        joined += each
    return joined


def _as_lists(results: list[Any]) -> tuple[list[Sequence[Segment]], list[SegmentFailure]]:
    lists: list[Sequence[Segment]] = []
    failures: list[SegmentFailure] = []
    for index, result in enumerate(results):
        try:
            lists.append(segments_of(result))
        except BaseException as error:
            failures.append((index, contained(error)))
            lists.append(())
    return lists, failures


def segments_of(result: Any) -> Sequence[Segment]:
    """The segments that a function has returned for one.

    Raises:
        Exception: it returned something else, or asks for a retry.
    """
    if isinstance(result, dict):
        return (_plain(result),)
    if result is None:
        return ()
    if isinstance(result, GeneratorType):
        result = list(islice(result, LEAVES_MAX + 1))
        if len(result) > LEAVES_MAX:
            raise UserFunctionError(
                f"the function's generator made more than {LEAVES_MAX:,} segments of one: "
                f"is it endless? Make fewer, or read them by an input plugin"
            )
    if isinstance(result, list | tuple):
        for each in result:
            if not isinstance(each, dict):
                raise asked_by(each) or UserFunctionError(
                    f"the function returned a {type(result).__name__} that holds "
                    f"{describe_type(each)}: every segment must be a dict"
                )
        return list(map(_plain, result))
    raise asked_by(result) or UserFunctionError(
        f"the function returned {describe_type(result)}: it must return a dict (one segment), "
        f"None or [] (none), or a list of dicts (several)"
    )


def _plain(segment: Segment) -> Segment:
    """A dict, as it would arrive in another process: a defaultdict, say, would give other answers
    here than there."""
    return segment if type(segment) is dict else dict(segment)
