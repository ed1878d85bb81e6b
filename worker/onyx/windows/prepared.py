"""What windows look at in a batch, found before anything changes.

Whatever is wrong with a single segment for a window shows here: it has no coordinate, no session
key, no value to compute with, or no value of the uniqueness key. The segment is refused, and the
rest of the batch continues, before any state has changed. What a user's own aggregation raises is
not found here: its functions need the state as the segments before have left it.

A window by Spark takes numbers that fit columns of 64 bits, and whole coordinates where sessions
are made of them; a segment with others is refused here too. On peers Python computes with whatever
can be added and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from onyx.errors import UserError
from onyx.flow.batch import Indices, Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.columns.values import python_values
from onyx.flow.groups.codes import KeyCodes
from onyx.flow.segment import Refusal
from onyx.keystate.coded import GroupKeys, Keyed, Values, chosen, rows
from onyx.keystate.extents import Number
from onyx.keystate.groups import hashable_key, hashable_keys
from onyx.windows.aggregations.numbers import OverKey
from onyx.windows.assigning.assigner import Axis
from onyx.windows.compiled import CompiledWindow, CompiledWindows

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_NUMBERS = frozenset({int, float})


class WindowInput(msgspec.Struct, frozen=True):
    """What one window takes from the segments of a batch."""

    extracted: Values
    """What its aggregation looks at."""
    coordinates: Axis | None
    """None for a global window."""
    ints: bool
    """Whether all coordinates are ints."""
    session_keys: Keyed | None
    """None where sessions are not kept apart by a key."""

    def chosen(self, indices: Indices) -> WindowInput:
        """The taken rows of some segments."""
        return WindowInput(
            chosen(self.extracted, indices),
            chosen(self.coordinates, indices),
            self.ints,
            chosen(self.session_keys, indices),
        )

    def is_behind(self, watermark: Number) -> bool:
        """Whether a segment has a coordinate that the watermark has passed."""
        found = self.coordinates
        if found is None or not len(found):
            return False
        least = found.min().item() if isinstance(found, np.ndarray) else min(found)
        return bool(least < watermark)

    def by_row(self) -> WindowInput:
        """The taken segments in lists, for who looks at single segments."""
        return WindowInput(
            rows(self.extracted),
            None if self.coordinates is None else rows(self.coordinates),
            self.ints,
            None if self.session_keys is None else rows(self.session_keys),
        )


class Prepared(msgspec.Struct, frozen=True):
    """A batch, for all windows of a task."""

    segments: Segments
    taken: tuple[WindowInput, ...]
    unique: Sequence[Any] | None
    """Values of the uniqueness key, if the task has one."""


def prepare(
    windows: CompiledWindows, segments: Segments, unique_key: str | None = None
) -> Prepared:
    """What the windows of a task need of a batch.

    Args:
        unique_key: the key whose values show repeats.

    Raises:
        UserError: a segment lacks something, or has what cannot be used.
    """
    taken = tuple(take(each, segments) for each in windows.windows)
    unique = None if unique_key is None else unique_values(windows.task, unique_key, segments)
    return Prepared(segments, taken, unique)


def take(window: CompiledWindow, segments: Segments) -> WindowInput:
    """What is taken for one window."""
    coordinates: Axis | None = None
    ints = True
    if window.coordinates is not None:
        coordinates, ints = window.coordinates.of(segments)
    extracted = window.aggregation.extract(segments)
    if window.window.engine == "spark":
        check_portable(window, coordinates, extracted)
    key = window.window.session_key
    keys = None if key is None else _session_keys(window, key, segments)
    return WindowInput(extracted, coordinates, ints, keys)


def _session_keys(window: CompiledWindow, key: str, segments: Segments) -> Keyed:
    where = f"window {window.window.id} of task {window.window.task}"
    try:
        return format_of(segments).choose(_keys_of_dicts, _keys_of_rows)(segments, key)
    except KeyError:
        raise Refusal(
            f"{where}: a segment has no key {key!r}, which is the sessionKey; drop such segments "
            "in the task's function or with a flow condition before it"
        ) from None
    except UserError as error:
        raise Refusal(f"{where}: sessionKey {key!r}: {error}") from error


def _keys_of_dicts(segments: list[Segment], key: str) -> Keyed:
    return [hashable_key(segment[key]) for segment in segments]


def _keys_of_rows(columns: Columns, key: str) -> Keyed:
    return GroupKeys().of(KeyCodes.of_column(columns, key))


def unique_values(task: str, key: str, segments: Segments) -> list[Any]:
    """The values of a uniqueness key.

    Two segments without a value cannot be distinguished: the second one would count as a repeat
    of the first and be lost silently.

    Raises:
        Refusal: a segment has none, or one that has no canonical form.
    """
    values = format_of(segments).choose(_values_of_dicts, _values_of_rows)(segments, key)
    if any(value is None for value in values):
        raise Refusal(
            f"task {task}: a segment has no {key!r}, its uniquenessKey, without which repeats "
            "cannot be recognised; set it before, or leave such segments out with a flow condition"
        )
    try:
        hashable_keys(values)
    except UserError as error:
        raise Refusal(f"task {task}: uniquenessKey {key!r}: {error}") from error
    return values


def _values_of_dicts(segments: list[Segment], key: str) -> list[Any]:
    return [segment.get(key) for segment in segments]


def _values_of_rows(columns: Columns, key: str) -> list[Any]:
    return python_values(columns.column(key)) if columns.has(key) else [None] * len(columns)


def check_portable(window: CompiledWindow, coordinates: Any, extracted: Any) -> None:
    """Raises Refusal: a segment has a coordinate or value that Spark cannot compute with
    exactly."""
    where = f"window {window.window.id} of task {window.window.task}, by Spark"
    if window.window.type == "session" and not _whole(coordinates):
        raise Refusal(
            f"{where}: a coordinate is a fraction, and sessions need whole ones; round it in the "
            "task's "
            "function, or use engine: peers for the window"
        )
    if isinstance(extracted, np.ndarray) or not isinstance(window.aggregation, OverKey):
        return
    if not _fit(extracted):
        raise Refusal(
            f"{where}: a value is neither an int of 64 bits nor a float; convert it in the task's "
            "function, or use engine: peers for the window"
        )


def _whole(coordinates: Any) -> bool:
    if isinstance(coordinates, np.ndarray):
        return coordinates.dtype.kind == "i" or bool((coordinates == np.floor(coordinates)).all())
    return all(coordinate == coordinate // 1 for coordinate in coordinates)


def _fit(values: Sequence[Any]) -> bool:
    if not _NUMBERS.issuperset(map(type, values)):
        return False
    ints = [value for value in values if type(value) is int]
    return not ints or (min(ints) >= _INT_MIN and max(ints) <= _INT_MAX)
