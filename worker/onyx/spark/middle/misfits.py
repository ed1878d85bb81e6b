"""Segments that no column of a frame holds, found when they come and not when the stage runs.

A key has the type of the first segment that has it, or one that holds all that came: integers and
fractions together are fractions. What is no value of that type fails alone, so a condition or a
dead letter may take it. All writers of a frame, peers or tasks of Spark, now and after a restart,
agree on the types (`agreed`): what one has taken no other takes as something else. Where the option
`schemas` names the columns, a value has to be one of these, too (`wanted`).

A type alone does not say what fits: 2**60 + 1 is no float, and of a decimal with 20 places of 38
there are 18 digits before the point. So what is known of a key is its type and how far its numbers
reach, which only grows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import OnyxError, UserError
from onyx.flow.batch import Segments, as_columns, format_of
from onyx.flow.columns.compute import pc
from onyx.flow.segment import Refusal, SegmentFailure
from onyx.spark.middle.agreed import AgreedTypes, Known, Reach
from onyx.spark.middle.wanted import Kind, columns_of, require_fit
from onyx.spark.types import joined_type
from onyx.storage.interface import Location

TYPES = "types"
"""The folder beside the parts of a stage in which its writers agree: a folder for each frame."""
_FLOAT32, _FLOAT64 = Reach(2**24 + 1, 6), Reach(2**53 + 1, 15)
"""Within these each whole number, and each decimal, has a float of its own."""
_STEPS = sorted([_FLOAT32.below, _FLOAT64.below, *(10**digits for digits in range(78))])
"""Numbers are below one of these, so that writers need not agree anew with each greater number."""


class FrameTypes:
    """The types of the keys of one frame."""

    def __init__(self, location: Location, ddl: str | None = None) -> None:
        """
        Args:
            location: of all writers of the frame, for what they have agreed on.
            ddl: what `schemas` says of the frame.
        """
        self._agreed = AgreedTypes(location)
        self._wanted = columns_of(ddl or "")

    def misfits(self, segments: Segments) -> list[SegmentFailure]:
        """The segments that do not fit, by index; the types of the others are agreed on then.

        Raises:
            UserError, Unavailable: see `Location`.
        """
        while True:
            found: list[SegmentFailure] = []
            known = _with(self._agreed.known, self._wanted, segments, 0, found)
            if self._agreed.agree(known):
                return found


def _with(
    known: Mapping[str, Known],
    wanted: Mapping[str, Kind],
    segments: Segments,
    first: int,
    failures: list[SegmentFailure],
) -> Mapping[str, Known]:
    """What is known with those segments that fit. Most batches fit whole; of others halves are
    looked at, as what the first segment of a batch has may be what is wrong."""
    try:
        return _with_all(known, wanted, segments)
    except Refusal as error:
        if len(segments) == 1:
            failures.append((first, error))
            return known
    half = len(segments) // 2
    part = format_of(segments).slice
    known = _with(known, wanted, part(segments, 0, half), first, failures)
    return _with(known, wanted, part(segments, half, len(segments)), first + half, failures)


def _with_all(
    known: Mapping[str, Known], wanted: Mapping[str, Kind], segments: Segments
) -> Mapping[str, Known]:
    """What is known with all segments. Raises Refusal: one does not fit."""
    columns, _, wrong = as_columns(segments)
    if wrong:
        raise Refusal(str(wrong[0][1])) from wrong[0][1]
    batch = columns.record_batch
    found = dict(known)
    names = {name.lower(): name for name in known}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if kinds.is_null(column.type):
            continue
        try:
            require_fit(column, wanted.get(name))
            found[name] = _joined(name, names.setdefault(name.lower(), name), found, column)
        except OnyxError as error:
            raise Refusal(f"key {name!r} cannot be in a DataFrame of the stage: {error}") from error
    return found


def _joined(name: str, other: str, known: Mapping[str, Known], column: pa.Array) -> Known:
    """What is known of a key with the values of a column."""
    if other != name:
        raise UserError(
            f"it differs from {other!r} only in case, and Spark does not tell them apart"
        )
    before = known.get(name)
    reaches = dict(before.reaches) if before is not None else {}
    for path, reach in _reaches(column, ""):
        reaches[path] = reach.or_more(reaches.get(path, Reach(0, 0)))
    if before is None:
        return Known(joined_type(name, column.type), reaches)
    try:
        kind = joined_type(name, before.type, column.type)
    except OnyxError as error:
        raise UserError(f"it is of type {column.type} where others are {before.type}") from error
    for path, leaf in _leaves(kind, ""):
        if not _holds(leaf, reaches.get(path)):
            raise UserError(
                f"with {column.type} beside {before.type} it is of type {leaf}, which does not "
                "hold all of its values"
            )
    return Known(kind, reaches)


def _reaches(column: pa.Array, path: str) -> Iterator[tuple[str, Reach]]:
    """How far the whole numbers and decimals in a column reach, by where they are in it."""
    kind = column.type
    if kinds.is_list(kind):
        yield from _reaches(column.flatten(), f"{path}[]")
    elif kinds.is_struct(kind):
        for field, values in zip(kind.fields, column.flatten(), strict=True):
            yield from _reaches(values, f"{path}.{field.name}")
    elif kinds.is_integer(kind) or kinds.is_decimal(kind):
        ends = pc.min_max(column).as_py()
        most = max((abs(each) for each in ends.values() if each is not None), default=0)
        yield path, _reach(most, kind)


def _reach(most: int | Decimal, kind: pa.DataType) -> Reach:
    digits = len(str(int(most))) + kind.scale if kinds.is_decimal(kind) else 0
    return Reach(_STEPS[bisect_right(_STEPS, most)], digits)


def _leaves(kind: pa.DataType, path: str) -> Iterator[tuple[str, pa.DataType]]:
    if kinds.is_list(kind):
        yield from _leaves(kind.value_type, f"{path}[]")
    elif kinds.is_struct(kind):
        for field in kind.fields:
            yield from _leaves(field.type, f"{path}.{field.name}")
    else:
        yield path, kind


def _holds(kind: pa.DataType, reach: Reach | None) -> bool:
    """Whether numbers that reach so far are values of a type, which is wide enough for the types
    that they had."""
    if reach is None:
        return True
    if kinds.is_decimal(kind):
        return bool(reach.below <= 10 ** (kind.precision - kind.scale))
    if kinds.is_floating(kind):
        return reach.is_within(_FLOAT32 if kinds.is_float32(kind) else _FLOAT64)
    return True
