"""The formats of a batch: a list of dicts, or columns. Each is one object, which says what is done
with segments of its format.

Nobody else asks a batch what it is. Who does something with segments for which no format has a
method writes it once for dicts and once for columns, and lets the format choose between the two
(`Format.choose`): whoever adds a third format is shown every such pair by the type checker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import pyarrow as pa

from onyx.errors import contained
from onyx.flow.arrays import Indices, Mask
from onyx.flow.columns.record_batch import Columns, from_dicts, join, shown_dicts, to_dicts
from onyx.flow.columns.schemas import fitted
from onyx.flow.segment import Segment, SegmentFailure

Segments = list[Segment] | Columns
Check = Callable[[Segments], object]
"""Raises for segments among which one is bad."""
Fitted = tuple[Columns, Indices | None, list[SegmentFailure]]
"""Columns, the indices of the segments that they hold (None: all), and for each other segment its
index and why it does not fit."""
S = TypeVar("S", bound=Segments)
T = TypeVar("T")
P = ParamSpec("P")


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
