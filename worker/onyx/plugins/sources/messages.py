"""What a source gives, as the engine takes it: runs of segments, without messages that are known;
and what it is still to hear of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from onyx.codec.refusals import refused, refused_rows
from onyx.errors import UserError, describe_type
from onyx.flow.arrays import Mask
from onyx.flow.batch import Segments, chosen_by, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.plugins.sources.protocol import LiveSource, Portion
from onyx.telemetry.catalog import SOURCE_ACKED, SOURCE_FAILED, SOURCE_TERMINATED, Metric


class SourceMessages(msgspec.Struct, frozen=True):
    """Messages in order, with what each is."""

    runs: Sequence[Segments]
    counts: Sequence[int]
    """Segments of each."""
    handles: Sequence[Any]
    ids: Sequence[str]
    cursor: Any
    deliveries: Sequence[int] = ()
    """How often each has been given; empty: nobody counts."""

    @property
    def segments(self) -> int:
        """How many there are in all."""
        return sum(map(len, self.runs))

    def without(self, known: Mask) -> SourceMessages:
        """Messages that are not `known`, by their indices."""
        kept = ~known
        mask = np.repeat(kept, self.counts)
        runs, first = [], 0
        for run in self.runs:
            its = mask[first : first + len(run)]
            first += len(run)
            if its.any():
                runs.append(chosen_by(run, its))
        return SourceMessages(
            runs,
            _chosen(self.counts, kept),
            _chosen(self.handles, kept),
            _chosen(self.ids, kept),
            self.cursor,
            _chosen(self.deliveries, kept),
        )


def messages_of(portion: Portion, examine: bool) -> SourceMessages:
    """The messages of a portion.

    Args:
        examine: look whether every segment can travel.

    Raises:
        UserError: the portion is not what the protocol says.
    """
    runs = _runs(portion.segments)
    if examine:
        for run in runs:
            _examine(run)
    total = sum(map(len, runs))
    counts = [1] * total if portion.counts is None else portion.counts
    if sum(counts) != total:
        raise UserError(f"a portion of {total} segments has messages of {sum(counts)}")
    for what in ("handles", "ids", "deliveries"):
        given = len(getattr(portion, what))
        if given not in (0, len(counts)):
            raise UserError(f"a portion of {len(counts)} messages has {given} {what}")
    cursor = _json(portion.cursor)
    return SourceMessages(runs, counts, portion.handles, portion.ids, cursor, portion.deliveries)


def _runs(segments: Any) -> Sequence[Segments]:
    if isinstance(segments, pa.RecordBatch):
        return [Columns.of(segments)] if segments.num_rows else []
    if not isinstance(segments, list | tuple):
        raise UserError(f"segments are {describe_type(segments)}, not a list or a record batch")
    if segments and all(isinstance(each, list | Columns) for each in segments):
        return [each for each in segments if len(each)]
    return [list(segments)] if segments else []


def _examine(run: Segments) -> None:
    find: Callable[[Any], Any] = format_of(run).choose(refused, refused_rows)
    for _, error in find(run):
        raise error


def _json(cursor: Any) -> Any:
    """A cursor that is the same once it was stored."""
    if cursor is None:
        return None
    try:
        if msgspec.json.decode(msgspec.json.encode(cursor)) == cursor:
            return cursor
    except (TypeError, ValueError, OverflowError, RecursionError):
        """Said below."""
    raise UserError(
        f"a cursor is {describe_type(cursor)} that would come back as something else; give a value "
        "of JSON: text, a number, a list, an object with text as keys"
    )


def _chosen(values: Sequence[Any], kept: Mask) -> Sequence[Any]:
    return list(compress(values, kept.tolist()))


class Owed:
    """Handles of messages that have been judged, until the source has heard of it. Used by one
    thread at a time.

    Bounded by the source, which gives only so much before it hears of that.
    """

    def __init__(self, counted: Callable[[Metric, int], None]) -> None:
        """`counted` is called with how many messages the source has heard of, and what."""
        self._counted = counted
        self._safe: list[Any] = []
        self._failed: dict[float, list[Any]] = defaultdict(list)
        """By how long they are to rest."""
        self._refused: list[Any] = []
        self._reasons: list[str] = []
        """Why each of these is."""

    def __len__(self) -> int:
        failed = sum(map(len, self._failed.values()))
        return len(self._safe) + failed + len(self._refused)

    def add(self, handles: Sequence[Any]) -> None:
        """These are safe."""
        self._safe += handles

    def give_back(self, handle: Any, after_s: float) -> None:
        """This one has failed, and may succeed later."""
        self._failed[after_s].append(handle)

    def refuse(self, handle: Any, reason: str) -> None:
        """This one has failed for good."""
        self._refused.append(handle)
        self._reasons.append(reason)

    def settle(self, source: LiveSource) -> None:
        """Tell the source. Raises Unavailable: what it has not heard is still owed."""
        if self._safe:
            source.ack(self._safe)
            count, self._safe = len(self._safe), []
            self._counted(SOURCE_ACKED, count)
        while self._failed:
            after_s, handles = next(iter(self._failed.items()))
            source.fail(handles, after_s)
            del self._failed[after_s]
            self._counted(SOURCE_FAILED, len(handles))
        if self._refused:
            source.term(self._refused, self._reasons)
            count, self._refused, self._reasons = len(self._refused), [], []
            self._counted(SOURCE_TERMINATED, count)
