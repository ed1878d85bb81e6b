"""The unit of work everywhere: segments plus two columns of lineage.

Columns, not envelopes: an object around every segment would cost more than the hop itself. The
segments are a list of dicts or the columns of an Arrow record batch. What is done with either, its
format knows: there is one object for each (`Format`).

Nobody else asks a batch what it is. Who does something with segments for which no format has a
method writes it once for dicts and once for columns, and lets the format choose between the two
(`Format.choose`): whoever adds a third format is shown every such pair by the type checker.

What is read at once may be partly rows of columns and partly dicts (`Mixed`). A few records that no
column holds (bad ones, those with other types) must not make dicts of all the others, nor cut them
into many small batches: either costs more than the work. So such a read is kept as pieces, each
with the indices of its segments, and whoever reads makes one batch of each piece. Positions stay
those of the source; only the order within one read changes. Rejected: columns for what bad records
have (`_error`, `_raw`) beside the others, null in all good rows. They would stay in every good
segment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, compress
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, Self, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import field

from onyx.base.runs import Numbers, taken
from onyx.base.runs import joined as joined_numbers
from onyx.errors import UserError, contained
from onyx.flow.arrays import U64 as U64
from onyx.flow.arrays import Indices as Indices
from onyx.flow.arrays import Mask as Mask
from onyx.flow.columns.record_batch import Columns, from_dicts, join, shown_dicts, to_dicts
from onyx.flow.columns.schemas import fitted
from onyx.flow.segment import Segment as Segment
from onyx.flow.segment import SegmentFailure

Segments = list[Segment] | Columns

Check = Callable[[Segments], object]
"""Raises for segments among which one is bad."""

Fitted = tuple[Columns, Indices | None, list[SegmentFailure]]
"""Columns, the indices of the segments that they hold (None: all), and for each other segment its
index and why it does not fit."""

S = TypeVar("S", bound=Segments)

T = TypeVar("T")

P = ParamSpec("P")


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
        """The keys and those of others behind them; None: that takes longer than to find them."""
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


# --- formats ------------------------------------------------------------------------------------


class Format(ABC, Generic[S]):
    """What is done with the segments of a batch in one format."""

    of_objects: bool
    """Whether every segment is objects of its own, of which many are slow to touch again."""
    checked_when_read: bool
    """Whether segments that cannot travel are found where they are read; if not, they are found
    where they leave their task."""

    @abstractmethod
    def take(self, segments: S, chosen: Indices) -> S:
        """The segments at these indices."""

    @abstractmethod
    def filter(self, segments: S, mask: Mask) -> S:
        """The segments where the mask is true."""

    @abstractmethod
    def slice(self, segments: S, first: int, last: int) -> S:
        """The segments from `first` to before `last`."""

    @abstractmethod
    def join(self, parts: Sequence[S]) -> S:
        """The segments of all, in order. Raises UserError if nothing holds all of them."""

    @abstractmethod
    def segment(self, segments: S, index: int) -> Segment:
        """One segment as a dict."""

    @abstractmethod
    def dicts(self, segments: S) -> list[Segment]:
        """The segments as dicts."""

    @abstractmethod
    def shown(self, segments: S) -> list[Segment]:
        """The segments as dicts where some may be no segments (`Columns.row`)."""

    @abstractmethod
    def columns(self, segments: S, schema: pa.Schema | None) -> Fitted:
        """The segments as columns of a schema, if there is one."""

    @abstractmethod
    def given(self, segments: S) -> pa.RecordBatch | list[Segment]:
        """The segments as functions, hooks and plugins have them."""

    @abstractmethod
    def copies(self, segments: S) -> S:
        """Segments that may be changed where others have them too."""

    @abstractmethod
    def types(self, segments: S) -> pa.Schema | None:
        """What segments have to have in common to be joined as they are."""

    @abstractmethod
    def bad(self, segments: S, check: Check) -> list[SegmentFailure]:
        """The segments for which `check` raises, in order: for a batch in which it does."""

    @abstractmethod
    def choose(
        self,
        dicts: Callable[Concatenate[list[Segment], P], T],
        columns: Callable[Concatenate[Columns, P], T],
    ) -> Callable[Concatenate[S, P], T]:
        """The function that is made for this format."""


class _Dicts(Format[list[Segment]]):
    of_objects = True
    checked_when_read = False

    def take(self, segments: list[Segment], chosen: Indices) -> list[Segment]:
        return [segments[index] for index in chosen.tolist()]

    def filter(self, segments: list[Segment], mask: Mask) -> list[Segment]:
        return list(compress(segments, mask.tobytes()))

    def slice(self, segments: list[Segment], first: int, last: int) -> list[Segment]:
        return segments[first:last]

    def join(self, parts: Sequence[list[Segment]]) -> list[Segment]:
        joined: list[Segment] = []
        for each in parts:
            joined += each
        return joined

    def segment(self, segments: list[Segment], index: int) -> Segment:
        return segments[index]

    def dicts(self, segments: list[Segment]) -> list[Segment]:
        return segments

    def shown(self, segments: list[Segment]) -> list[Segment]:
        return segments

    def columns(self, segments: list[Segment], schema: pa.Schema | None) -> Fitted:
        return from_dicts(segments, schema)

    def given(self, segments: list[Segment]) -> list[Segment]:
        return segments

    def copies(self, segments: list[Segment]) -> list[Segment]:
        return list(map(dict.copy, segments))

    def types(self, segments: list[Segment]) -> None:
        return None

    def bad(self, segments: list[Segment], check: Check) -> list[SegmentFailure]:
        failures: list[SegmentFailure] = []
        for index, segment in enumerate(segments):
            try:
                check([segment])
            except BaseException as error:
                failures.append((index, contained(error)))
        return failures

    def choose(
        self,
        dicts: Callable[Concatenate[list[Segment], P], T],
        columns: Callable[Concatenate[Columns, P], T],
    ) -> Callable[Concatenate[list[Segment], P], T]:
        return dicts


class _Columns(Format[Columns]):
    of_objects = False
    checked_when_read = True

    def take(self, segments: Columns, chosen: Indices) -> Columns:
        return segments.take(chosen)

    def filter(self, segments: Columns, mask: Mask) -> Columns:
        return segments.filter(mask)

    def slice(self, segments: Columns, first: int, last: int) -> Columns:
        return segments.slice(first, min(last, len(segments)))

    def join(self, parts: Sequence[Columns]) -> Columns:
        return join(parts)

    def segment(self, segments: Columns, index: int) -> Segment:
        return segments.row(index)

    def dicts(self, segments: Columns) -> list[Segment]:
        return to_dicts(segments)

    def shown(self, segments: Columns) -> list[Segment]:
        return shown_dicts(segments)

    def columns(self, segments: Columns, schema: pa.Schema | None) -> Fitted:
        found = fitted(segments, schema)
        return from_dicts(to_dicts(segments), schema) if found is None else (found, None, [])

    def given(self, segments: Columns) -> pa.RecordBatch:
        return segments.record_batch

    def copies(self, segments: Columns) -> Columns:
        return segments  # nobody can change them

    def types(self, segments: Columns) -> pa.Schema:
        return segments.record_batch.schema

    def bad(self, segments: Columns, check: Check) -> list[SegmentFailure]:
        return _by_halves(segments, check, 0)

    def choose(
        self,
        dicts: Callable[Concatenate[list[Segment], P], T],
        columns: Callable[Concatenate[Columns, P], T],
    ) -> Callable[Concatenate[Columns, P], T]:
        return columns


def _by_halves(columns: Columns, check: Check, first: int) -> list[SegmentFailure]:
    """The bad rows by halves: few are bad, and many rows cost hardly more than one."""
    try:
        check(columns)
    except BaseException as error:
        if len(columns) <= 1:
            return [(first, contained(error))]
        half = len(columns) // 2
        failures = _by_halves(columns.slice(0, half), check, first)
        return failures + _by_halves(columns.slice(half, len(columns)), check, first + half)
    return []


DICTS = _Dicts()

COLUMNS = _Columns()


def format_of(segments: S) -> Format[S]:
    """The format that a batch has."""
    found: Format[Any] = COLUMNS if isinstance(segments, Columns) else DICTS
    return found


# --- segments of several forms ------------------------------------------------------------------

Piece = tuple[Indices, Segments]
"""Segments of one form, with their indices, which rise."""


class Mixed(msgspec.Struct, frozen=True):
    """Pieces whose indices are together 0 to before their number."""

    pieces: tuple[Piece, ...]

    def __len__(self) -> int:
        return sum(len(indices) for indices, _ in self.pieces)

    def take(self, chosen: Indices) -> Read:
        """The segments at these indices, which rise."""
        pieces = []
        for indices, segments in self.pieces:
            found = np.flatnonzero(np.isin(indices, chosen))
            pieces.append((np.searchsorted(chosen, indices[found]), take(segments, found)))
        return mixed(pieces)

    def runs(self) -> Iterator[Segments]:
        """All in order: segments of one form that follow each other."""
        owners = np.empty(len(self), np.intp)
        for number, (indices, _) in enumerate(self.pieces):
            owners[indices] = number
        starts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist()]
        taken = [0] * len(self.pieces)
        for start, end in zip(starts, [*starts[1:], len(owners)], strict=True):
            number = int(owners[start])
            first = taken[number]
            taken[number] += end - start
            yield part_of(self.pieces[number][1], first, taken[number])


Read = Segments | Mixed
"""What a reader gives at a time."""


def mixed(pieces: Sequence[Piece]) -> Read:
    """All pieces that have segments; the segments themselves if they have one form."""
    there = tuple(piece for piece in pieces if len(piece[0]))
    if len(there) > 1:
        return Mixed(there)
    return there[0][1] if there else pieces[0][1] if pieces else []


def pieces_of(read: Read) -> tuple[Piece, ...]:
    """Each form with its indices."""
    if isinstance(read, Mixed):
        return read.pieces
    return ((np.arange(len(read)), read),)


def runs_of(read: Read) -> Iterator[Segments]:
    """The runs of a read in order."""
    if isinstance(read, Mixed):
        yield from read.runs()
    else:
        yield read


def of_runs(runs: Sequence[Segments]) -> Read:
    """Runs that follow each other, those of one form together."""
    if len(runs) == 1:
        return runs[0]
    found: dict[object, tuple[list[Indices], list[Segments]]] = {}
    first = 0
    for run in runs:
        types = format_of(run).types(run)
        indices, segments = found.setdefault(types, ([], []))
        indices.append(np.arange(first, first + len(run)))
        segments.append(run)
        first += len(run)
    return mixed(
        [(np.concatenate(indices), joined(segments)) for indices, segments in found.values()]
    )


def part_of_read(read: Read, first: int, last: int) -> Read:
    """The segments from `first` to before `last`."""
    if isinstance(read, Mixed):
        return read.take(np.arange(first, min(last, len(read))))
    return part_of(read, first, last)


def take_of_read(read: Read, chosen: Indices) -> Read:
    """The segments at these indices, which rise."""
    return read.take(chosen) if isinstance(read, Mixed) else take(read, chosen)
