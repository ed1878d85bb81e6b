"""What counts as an event time, and what is said to whoever gives something else."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.clocks import ManualClock

from onyx.errors import UserError, UserFunctionError
from onyx.flow.columns import Columns, from_dicts
from onyx.model.job import CatalogEntry
from onyx.task.source.event_times import SourceTimes
from onyx.windows.watermarks import IDLE, SILENT, Mark

UTC = datetime.UTC
SUMMER = datetime.timezone(datetime.timedelta(hours=2))


def by_key(**entry: Any) -> SourceTimes:
    made = CatalogEntry("read", "input", 10, watermark_key="t", **entry)
    return SourceTimes(made, lambda name: pytest.fail(name), ManualClock())


def by_function(fn: Callable[..., Any]) -> SourceTimes:
    entry = CatalogEntry("read", "input", 10, assign_watermark_fn="m:time")
    return SourceTimes(entry, {"m:time": fn}.__getitem__, ManualClock())


def mark_of(times: SourceTimes, *values: Any) -> Mark:
    times.read(0, [{"t": value} for value in values])
    return times.mark([0])


EXPECTED: list[tuple[list[Any], int]] = [
    ([5, 9, 7], 9),
    ([-5, -9], -5),
    ([1.5, 2.9], 2),
    ([-1.5], -2),
    ([3, 4.5], 4),
    ([None, 5, None], 5),
    ([datetime.datetime(1970, 1, 1, 0, 0, 1, 999, UTC)], 1_000),
    ([datetime.datetime(2026, 7, 1, 2, tzinfo=SUMMER)], 1_782_864_000_000),
    ([datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)], -1_000),
    ([datetime.datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), 1_000], 2_000),
    ([2**63 - 1, -(2**63)], 2**63 - 1),
    ([datetime.datetime(1970, 1, 1, 0, 0, 3)], 3_000),  # noqa: DTZ001
    ([datetime.date(1970, 1, 2), 5], 86_400_000),
    (["1970-01-01T00:00:02+02:00", "1970-01-01T00:00:01Z", None], 1_000),
    (["1970-01-01T00:00:04"], 4_000),
]
TIMES = [values for values, _ in EXPECTED]


@pytest.mark.parametrize(("values", "expected"), EXPECTED)
def test_times_are_milliseconds_or_moments(values: list[Any], expected: int) -> None:
    assert mark_of(by_key(), *values) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("yesterday", "'yesterday', which is no event time: .* ISO 8601 text; an assignWatermark"),
        (float("nan"), "nan, which is no event time"),
        (float("inf"), "inf, which is no event time"),
        (True, "True, which is no event time"),
        ([1], "which is no event time"),
        (2**63, "which is no event time"),
        ("x" * 1000, "xx, which is no event time"),
    ],
)
@pytest.mark.parametrize("others", [[], [1, None]])
def test_anything_else_is_an_error_that_says_what_to_do(
    value: Any, message: str, others: list[Any]
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        mark_of(by_key(), *others, value)
    assert str(caught.value).startswith("task read: watermarkKey 't' gives ")
    assert len(str(caught.value)) < 400, "however long the value is"


def test_a_segment_without_the_key_is_an_error() -> None:
    with pytest.raises(UserError, match="task read: a segment has no 't', its watermarkKey"):
        by_key().read(0, [{"t": 1}, {"time": 2}])


def test_a_batch_without_any_time_says_nothing() -> None:
    times = by_key()
    assert mark_of(times, None) is SILENT
    assert mark_of(times, None, None) is SILENT
    assert mark_of(times, 5) == 5
    assert mark_of(times, None) == 5


def test_segments_without_time_do_not_keep_a_partition_awake() -> None:
    clock = ManualClock()
    entry = CatalogEntry("read", "input", 10, watermark_key="t", idle_timeout=1_000)
    times = SourceTimes(entry, lambda name: pytest.fail(name), clock)
    assert mark_of(times, 5) == 5
    assert mark_of(times, None) == 5
    clock.advance(1.0)
    assert mark_of(times, None) is IDLE
    assert mark_of(times, 6) == 6


def test_a_function_gives_the_time_or_none() -> None:
    times = by_function(lambda segment: segment["t"] * 1000 if segment["t"] else None)
    assert mark_of(times, 1, 3, 0, 2) == 3_000


def test_a_function_that_raises_is_named() -> None:
    with pytest.raises(UserFunctionError, match="task read: assignWatermarkFn m:time raised Key"):
        by_function(lambda segment: segment["missing"]).read(0, [{"t": 1}])


def test_a_function_that_gives_no_time_is_named() -> None:
    with pytest.raises(UserError, match="assignWatermarkFn m:time gives 'now', which is no event"):
        by_function(lambda segment: "now").read(0, [{"t": 1}])


def test_disorder_is_an_amount_with_a_unit() -> None:
    assert mark_of(by_key(allowed_disorder=(2, "minutes")), 130_000) == 10_000


def of_columns(**entry: Any) -> SourceTimes:
    made = CatalogEntry("read", "input", 10, watermark_key="t", batch_format="arrow", **entry)
    return SourceTimes(made, lambda name: pytest.fail(name), ManualClock())


def column(*values: Any, kind: pa.DataType | None = None) -> Columns:
    return Columns.of(pa.record_batch([pa.array(values, kind)], ["t"]))


@pytest.mark.parametrize("values", TIMES)
def test_columns_give_the_same_times_as_dicts(values: list[Any]) -> None:
    times = of_columns()
    for value in values:
        times.read(0, from_dicts([{"t": value}])[0])
    assert times.mark([0]) == mark_of(by_key(), *values)


TEXTS = [
    ["2026-07-01T02:00:00Z", "2026-07-01T02:00:00.5Z"],
    ["2026-07-01T02:00:00+05:30", "2026-07-01T02:00:00-01:00"],
    ["2026-07-01T02:00:00", "2026-07-01"],
    ["2026-07-01T02:00:00", "2026-07-01T01:00:00Z"],
    ["20260701T020000Z", "2026-W27-1"],
    ["1969-12-31T23:59:59.9999"],
    ["2026-07-01 02:00", None],
]


@pytest.mark.parametrize("values", TEXTS)
def test_text_of_any_form_gives_the_same_in_columns(values: list[Any]) -> None:
    times = of_columns()
    times.read(0, column(*values))
    assert times.mark([0]) == mark_of(by_key(), *values)


def test_a_column_of_nulls_says_nothing() -> None:
    times = of_columns()
    times.read(0, column(None, None))
    assert times.mark([0]) is SILENT
    times.read(0, column(None, 7))
    times.read(0, column(None, kind=pa.timestamp("us", tz="UTC")))
    assert times.mark([0]) == 7


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["1970-01-01", "yesterday"], "'yesterday'"),
        ([1.0, float("nan"), None], "nan"),
        ([-float("inf"), 1.0], "-inf"),
        ([None, True], "True"),
        ([[1]], r"\[1\]"),
        ([datetime.timedelta(1)], "datetime.timedelta"),
    ],
)
def test_a_column_without_times_is_the_same_error(values: list[Any], shown: str) -> None:
    with pytest.raises(UserError, match=f"watermarkKey 't' gives {shown}.*, which is no event ti"):
        of_columns().read(0, column(*values))


def test_columns_without_the_key_are_an_error() -> None:
    with pytest.raises(UserError, match="task read: a segment has no 't', its watermarkKey"):
        of_columns().read(0, from_dicts([{"time": 1}])[0])


def test_a_function_over_columns_gives_an_array() -> None:
    batch = column(1, 3, None)
    for fn in (
        lambda batch: pc.multiply(batch["t"], 1000),
        lambda batch: [None, 3000],
        lambda batch: pa.chunked_array([pa.array([3], pa.timestamp("s"))]),
    ):
        entry = CatalogEntry("r", "input", 10, assign_watermark_fn="m:t", batch_format="arrow")
        times = SourceTimes(entry, {"m:t": fn}.__getitem__, ManualClock())
        times.read(0, batch)
        assert times.mark([0]) == 3_000
        times.read(0, [{"t": 1}, {"t": 3}])
        assert times.mark([0]) == 3_000


@pytest.mark.parametrize("answer", [7, "now", {"t": 1}])
def test_a_function_over_columns_that_gives_no_array_is_named(answer: Any) -> None:
    entry = CatalogEntry("read", "input", 10, assign_watermark_fn="m:t", batch_format="arrow")
    times = SourceTimes(entry, {"m:t": lambda batch: answer}.__getitem__, ManualClock())
    with pytest.raises(UserError, match="assignWatermarkFn m:t"):
        times.read(0, column(1))
