"""The unit of work everywhere: segments plus two columns of lineage.

Columns, not envelopes: an object around every segment would cost more than the hop itself. The
segments are a list of dicts or the columns of an Arrow record batch: what is done with either, its
format knows (`formats`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, Protocol, Self

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import field

from onyx.base.runs import Numbers, taken
from onyx.base.runs import joined as joined_numbers
from onyx.errors import UserError
from onyx.flow.arrays import U64 as U64
from onyx.flow.arrays import Indices as Indices
from onyx.flow.arrays import Mask as Mask
from onyx.flow.formats import DICTS, Fitted, Format
from onyx.flow.formats import Segments as Segments
from onyx.flow.formats import format_of as format_of
from onyx.flow.segment import Segment as Segment


class EncodedRun(NamedTuple):
    """Segments as bytes (`codec.segment_runs`)."""

    payload: bytes
    schema: bytes
    """Empty for dicts, unless they are merged."""


class FoundKeys(Protocol):
    """The group keys of segments."""

    def take(self, chosen: Indices) -> Self:
        """The keys of the segments at these indices."""
        ...

    def joined(self, others: Sequence[FoundKeys]) -> Self | None:
        """These and those of others behind them; None: that takes longer than to find them anew."""
        ...


class Batch(msgspec.Struct):
    """`roots[i]` and `ids[i]` belong to segment i. Both are None where nobody accounts for the
    segments."""

    segments: Segments
    roots: Numbers | None = None
    ids: Numbers | None = None
    keys: FoundKeys | None = None
    """The keys as the receiver groups the segments, if the sender has had to find them and is in
    the same process; None: they are to be found."""
    laps: Numbers | None = None
    """How often each segment has gone round the loop that its task is in; None: never, all."""
    bad: list[tuple[int, Exception]] = field(default_factory=list)
    """What an input has read and is no segment of the job: index, increasing, and why."""
    upstream: str | None = None
    """The parent task that has sent the segments, where the receiver keeps those of each apart."""

    def __len__(self) -> int:
        return len(self.segments)

    def take(self, chosen: Indices) -> Batch:
        """A batch of the segments at these indices, with their lineage."""
        return Batch(
            take(self.segments, chosen),
            None if self.roots is None else taken(self.roots, chosen),
            None if self.ids is None else taken(self.ids, chosen),
            None if self.keys is None else self.keys.take(chosen),
            None if self.laps is None else taken(self.laps, chosen),
            self._bad_of(chosen) if self.bad else [],
            self.upstream,
        )

    def slice(self, first: int, last: int) -> Batch:
        """A batch of the segments from `first` to before `last`, with their lineage."""
        return Batch(
            part_of(self.segments, first, last),
            None if self.roots is None else self.roots[first:last],
            None if self.ids is None else self.ids[first:last],
            None if self.keys is None else self.keys.take(np.arange(first, last)),
            None if self.laps is None else self.laps[first:last],
            [(index - first, error) for index, error in self.bad if first <= index < last],
            self.upstream,
        )

    def _bad_of(self, chosen: Indices) -> list[tuple[int, Exception]]:
        errors = dict(self.bad)
        numbered = enumerate(chosen.tolist())
        return [(number, errors[index]) for number, index in numbered if index in errors]


def take(segments: Segments, chosen: Indices) -> Segments:
    """The segments at these indices."""
    return format_of(segments).take(segments, chosen)


def chosen_by(segments: Segments, mask: Mask) -> Segments:
    """The segments where the mask is true."""
    return format_of(segments).filter(segments, mask)


def part_of(segments: Segments, first: int, last: int) -> Segments:
    """The segments from `first` to before `last`."""
    return format_of(segments).slice(segments, first, last)


def segment_at(segments: Segments, index: int) -> Segment:
    """One segment as a dict: for messages and dead letters."""
    return format_of(segments).segment(segments, index)


def as_dicts(segments: Segments) -> list[Segment]:
    """The segments as dicts."""
    return format_of(segments).dicts(segments)


def as_shown(segments: Segments) -> list[Segment]:
    """The segments as dicts where some may be no segments, as an input reads them
    (`Columns.row`)."""
    return format_of(segments).shown(segments)


def as_columns(segments: Segments, schema: pa.Schema | None = None) -> Fitted:
    """The segments as columns of a schema, if there is one."""
    return format_of(segments).columns(segments, schema)


def as_given(segments: Segments) -> pa.RecordBatch | list[Segment]:
    """The segments as functions, hooks and plugins have them: a record batch, or a list of
    dicts."""
    return format_of(segments).given(segments)


def copies_of(segments: Segments) -> Segments:
    """Segments that may be changed where others have them too: copies of dicts. Columns cannot be
    changed."""
    return format_of(segments).copies(segments)


def joined(parts: Sequence[Segments]) -> Segments:
    """The segments of all, in order: as columns if all are. Of dicts and columns dicts are made,
    since every row has a dict, but not every dict fits the columns of others."""
    if len(parts) == 1:
        return parts[0]
    formats = {format_of(each) for each in parts}
    if len(formats) == 1:
        return formats.pop().join(parts)
    return DICTS.join([as_dicts(each) for each in parts])


def by_format(batches: Sequence[Batch]) -> list[Batch]:
    """Batches joined into as few batches as possible of several: small ones waiting in a queue are
    joined before bookkeeping. Columns stay columns: those of types that nothing holds both of stay
    apart, and so do dicts, which a few bad rows would otherwise make of all. What is accounted for
    stays apart from what is not."""
    if len(batches) <= 1:
        return list(batches)
    found: dict[tuple[Format[Segments], bool], list[Batch]] = {}
    for each in batches:
        found.setdefault((format_of(each.segments), each.roots is None), []).append(each)
    return list(chain.from_iterable(map(_joined_by_types, found.values())))


def _joined_by_types(batches: Sequence[Batch]) -> list[Batch]:
    try:
        return [concatenate(batches)]
    except UserError:
        alike: dict[object, list[Batch]] = {}
        for each in batches:
            alike.setdefault(format_of(each.segments).types(each.segments), []).append(each)
        return list(map(concatenate, alike.values()))


def concatenate(batches: Sequence[Batch]) -> Batch:
    """One batch of several."""
    if len(batches) == 1:
        return batches[0]
    segments = joined([batch.segments for batch in batches])
    roots = [batch.roots for batch in batches if batch.roots is not None]
    ids = [batch.ids for batch in batches if batch.ids is not None]
    first, *others = (batch.keys for batch in batches)
    known = [each for each in others if each is not None]
    keys = first.joined(known) if first is not None and len(known) == len(others) else None
    if not roots:
        return Batch(segments, keys=keys)
    return Batch(segments, joined_numbers(roots), joined_numbers(ids), keys, _joined_laps(batches))


def _joined_laps(batches: Sequence[Batch]) -> Numbers | None:
    if all(batch.laps is None for batch in batches):
        return None
    return joined_numbers(
        [np.zeros(len(batch), np.uint64) if batch.laps is None else batch.laps for batch in batches]
    )
