"""Reading the coordinate of a segment: the value of a key, as `windowKey`, as a number.

A window or a join over time takes what stands for an instant: milliseconds since the epoch as they
are, datetimes and dates (without a zone: UTC), and ISO 8601 text. A join compares instants and has
them in microseconds; extents begin and end with whole milliseconds, in which a window has them. A
window over anything else takes numbers only. Practically every batch has ints alone, which is found
out once for the whole of it. Columns of numbers, timestamps and dates become an array; of text,
each different one is parsed once a batch.
"""

from __future__ import annotations

import contextlib
from datetime import date
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from onyx.errors import UserError
from onyx.flow.batch import Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.codes import KeyCodes
from onyx.flow.instants import microseconds, milliseconds
from onyx.keystate.coded import Array, numbers_of
from onyx.keystate.extents import Number
from onyx.windows.assigning.assigner import Axis

_INTS = frozenset({int})
_NUMBERS = frozenset({int, float})
_US_A_MS = np.int64(1_000)
_MS_A_DAY = np.int64(86_400_000)
COORDINATE_MAX = 2**62
"""The bound of coordinates: farther out the bounds of an extent may have more than 64 bits, and
those of floats do not differ from one another."""
_MS_MAX = 2**63 // 1_000
"""Farther out microseconds have no 64 bits."""


class Coordinates:
    """The coordinates of segments on the axis of one window, or the times of a side of a join."""

    def __init__(
        self, where: str, key: str, time: bool, word: str = "windowKey", least: int | None = None
    ) -> None:
        """
        Args:
            where: begins messages.
            word: what the key is in the manifest.
            least: the `minValue` of a window that has no extents for what is below it.
        """
        self._where = where
        self.key = key
        """Under which segments have them."""
        self._word = word
        self._time = time
        self._least = least
        self._get = itemgetter(key)

    def of(self, segments: Segments) -> tuple[Axis, bool]:
        """One coordinate a segment, and whether all are ints.

        Raises:
            UserError: a segment has no coordinate, or one that the window cannot use.
        """
        found, ints = format_of(segments).choose(self._of_dicts, self._of_columns)(segments)
        if self._least is not None and len(found):
            first = found.min().item() if isinstance(found, np.ndarray) else min(found)
            if first < self._least:
                raise self._below(first)
        return found, ints

    def _of_dicts(self, segments: list[Segment]) -> tuple[Axis, bool]:
        try:
            values = list(map(self._get, segments))
        except KeyError:
            raise self._missing() from None
        if _INTS.issuperset(map(type, values)):
            with contextlib.suppress(OverflowError):
                found = np.array(values, np.int64)
                if _are_within(found):
                    return found, True
        return [self.number(value) for value in values], False

    def _of_columns(self, columns: Columns) -> tuple[Axis, bool]:
        if not columns.has(self.key):
            raise self._missing()
        column = columns.column(self.key)
        found = numbers_of(column)
        if found is not None and _are_within(found):
            return found, found.dtype == np.int64
        if self._time and not column.null_count and kinds.is_timestamp(column.type):
            return column.cast(pa.int64()).to_numpy() // _US_A_MS, True
        if self._time and not column.null_count and kinds.is_date32(column.type):
            return column.cast(pa.int32()).to_numpy() * _MS_A_DAY, True
        keys = KeyCodes.of_column(columns, self.key)
        coordinates = [self.number(value) for value in keys.raws]
        if _INTS.issuperset(map(type, coordinates)):
            return np.array(coordinates, np.int64)[keys.codes], True
        return [coordinates[code] for code in keys.codes.tolist()], False

    def microseconds(self, segments: Segments) -> NDArray[np.int64]:
        """One instant a segment, in microseconds since the epoch.

        Raises:
            UserError: a segment has no instant.
            OverflowError: one is too far from the epoch for 64 bits.
        """
        return format_of(segments).choose(self._us_of_dicts, self._us_of_columns)(segments)

    def _us_of_dicts(self, segments: list[Segment]) -> NDArray[np.int64]:
        try:
            values = list(map(self._get, segments))
        except KeyError:
            raise self._missing() from None
        if _INTS.issuperset(map(type, values)):
            return _us(np.array(values, np.int64))
        return np.array(list(map(self._instant, values)), np.int64)

    def _us_of_columns(self, columns: Columns) -> NDArray[np.int64]:
        if not columns.has(self.key):
            raise self._missing()
        column = columns.column(self.key)
        found = numbers_of(column)
        if found is not None and (found.dtype == np.int64 or _are_within(found)):
            return _us(found)
        if not column.null_count and kinds.is_timestamp(column.type):
            times: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
            return times
        if not column.null_count and kinds.is_date32(column.type):
            return _us(column.cast(pa.int32()).to_numpy() * _MS_A_DAY)
        keys = KeyCodes.of_column(columns, self.key)
        return np.array(list(map(self._instant, keys.raws)), np.int64)[keys.codes]

    def _instant(self, value: Any) -> int:
        kind = type(value)
        if kind is int or (kind is float and abs(value) < COORDINATE_MAX):
            found: int = round(value * 1_000)
            return found
        if isinstance(value, date | str):
            with contextlib.suppress(ValueError):
                return microseconds(value)
        raise self._unfit(value)

    def order(self, value: Any) -> Number:
        """A number that is smaller for what comes first, of instants to the microsecond. Raises as
        `number`."""
        return self._instant(value) if self._time else self.number(value)

    def number(self, value: Any) -> Number:
        """The coordinate that a value of the key stands for.

        Raises:
            UserError: none.
        """
        if type(value) in _NUMBERS and abs(value) < COORDINATE_MAX:
            found: Number = value
            return found
        if self._time and isinstance(value, date | str):
            with contextlib.suppress(ValueError):
                return milliseconds(value)
        raise self._unfit(value)

    def _unfit(self, value: Any) -> UserError:
        wanted = "int or float (ms since the epoch), a datetime, a date or ISO 8601 text"
        shown = f" {value!r}"[:60] if type(value) in (str, *_NUMBERS) else ""
        kind = "no value" if value is None else f"a {type(value).__name__}{shown}"
        return UserError(
            f"{self._where}: {self._word} {self.key!r} holds {kind}; use "
            + (wanted if self._time else "an int or a float")
            + ", nearer to 0 than 2**62, or drop such segments in the task's function"
        )

    def _below(self, first: Number) -> UserError:
        stands_for = " (ms since the epoch)" if self._time else ""
        return UserError(
            f"{self._where}: {self._word} {self.key!r} holds {first}{stands_for}, which is below "
            f"minValue {self._least}, where the extents of a sliding window begin; give a minValue "
            "that is as small as what comes, or drop such segments in the task's function"
        )

    def _missing(self) -> UserError:
        return UserError(
            f"{self._where}: a segment has no key {self.key!r}, which is the {self._word}; drop "
            "such segments in the task's function or with a flow condition before it"
        )


def _are_within(numbers: Array) -> bool:
    """Whether all are numbers, and coordinates."""
    if not len(numbers):
        return True
    return bool(numbers.min() > -COORDINATE_MAX and numbers.max() < COORDINATE_MAX)


def _us(milliseconds: Array) -> NDArray[np.int64]:
    if len(milliseconds) and not -_MS_MAX < milliseconds.min() <= milliseconds.max() < _MS_MAX:
        raise OverflowError("a time is too far from 1970")
    found: NDArray[Any] = milliseconds * _US_A_MS
    return np.rint(found).astype(np.int64) if found.dtype.kind == "f" else found
