"""What counts as an event time, and what is said to whoever gives something else."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.clocks import ManualClock

from onyx.errors import UserError
from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns, from_dicts
from onyx.model.job import CatalogEntry
from onyx.program.event_times import SourceTimes
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
    assert times.read(0, [{"t": value} for value in values])[1] == []
    return times.mark([0])


def failures(times: SourceTimes, segments: Segments) -> dict[int, str]:
    """Those that have no time, by index; reading the same again gives the same."""
    found = times.read(0, segments)
    assert [index for index, _ in times.of(segments)[1]] == [index for index, _ in found[1]]
    assert all(isinstance(error, UserError) for _, error in found[1])
    return {index: str(error) for index, error in found[1]}


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
def test_only_the_segment_has_failed_that_has_anything_else(
    value: Any, message: str, others: list[Any]
) -> None:
    times = by_key()
    said = failures(times, [*({"t": each} for each in others), {"t": value}])
    assert list(said) == [len(others)]
    assert said[len(others)].startswith("watermarkKey 't' gives ")
    assert re.search(message, said[len(others)])
    assert len(said[len(others)]) < 400, "however long the value is"
    assert times.mark([0]) == (1 if others else SILENT)


@pytest.mark.parametrize("others", [[], [5], [5.5], ["1970-01-01"], [datetime.date(1970, 1, 1)]])
@pytest.mark.parametrize("bad", [True, "soon", -(2**70), float("-inf"), [1], b"1970-01-01"])
def test_whether_a_segment_fails_does_not_depend_on_those_beside_it(
    others: list[Any], bad: Any
) -> None:
    assert list(failures(by_key(), [{"t": bad}, *({"t": each} for each in others)])) == [0]


def test_a_segment_without_the_key_has_failed() -> None:
    said = failures(by_key(), [{"t": 1}, {"time": 2}])
    assert list(said) == [1]
    assert "the segment has no 't', the watermarkKey" in said[1]


def test_what_stands_in_the_place_of_a_bad_record_has_no_time_and_has_not_failed() -> None:
    stand_in = {"_error": "not a JSON object", "_raw": "{"}
    for times in (by_key(), of_columns(), by_function(lambda segment: segment["t"])):
        assert failures(times, [{"t": 1}, stand_in, {"t": 3}, {"_error": "mine"}]).keys() == {3}
        assert times.mark([0]) == 3


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
    said = failures(by_function(lambda segment: segment["missing"]), [{"t": 1}, {"missing": 5}])
    assert list(said) == [0]
    assert re.match(
        r"assignWatermarkFn m:time raised KeyError: 'missing' \(test_program_source_times.py, line",
        said[0],
    )


def test_a_function_that_gives_no_time_is_named() -> None:
    said = failures(by_function(lambda segment: segment["t"]), [{"t": 1}, {"t": "now"}])
    assert list(said) == [1]
    assert "assignWatermarkFn m:time gives 'now', which is no event" in said[1]


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
    ("values", "wrong", "shown", "mark"),
    [
        (["1970-01-01T00:00:07Z", "yesterday", None, "yesterday"], [1, 3], "'yesterday'", 7_000),
        (["1970-01-01T00:00:07", "1970-13-01T00:00:00"], [1], "'1970-13-01", 7_000),
        (["1970-01-01T00:00:07", "1970-01-01T00:00:09Z", ""], [2], "''", 9_000),
        (["20260701T020000Z", "soon"], [1], "'soon'", 1_782_871_200_000),
        ([1.0, float("nan"), None, 2.5], [1], "nan", 2),
        ([-float("inf"), 1.0, 2.0**63], [0, 2], "", 1),
        ([None, True], [1], "True", SILENT),
        ([[1]], [0], r"[1]", SILENT),
        ([datetime.timedelta(1)], [0], "datetime.timedelta", SILENT),
    ],
)
def test_only_the_rows_of_a_column_have_failed_that_have_no_times(
    values: list[Any], wrong: list[int], shown: str, mark: Mark
) -> None:
    times = of_columns()
    said = failures(times, column(*values))
    assert list(said) == wrong
    for each in said.values():
        assert f"watermarkKey 't' gives {shown}" in each
        assert "which is no event ti" in each
    assert times.mark([0]) == mark


def test_integers_beyond_63_bits_are_no_times() -> None:
    times = of_columns()
    assert list(failures(times, column(5, 2**64 - 1, None, kind=pa.uint64()))) == [1]
    assert times.mark([0]) == 5


def test_columns_without_the_key_have_failed() -> None:
    said = failures(of_columns(), from_dicts([{"time": 1}, {"time": 2}])[0])
    assert list(said) == [0, 1]
    assert "the segment has no 't', the watermarkKey" in said[0]


def over_columns(fn: Callable[..., Any]) -> SourceTimes:
    entry = CatalogEntry("read", "input", 10, assign_watermark_fn="m:t", batch_format="arrow")
    return SourceTimes(entry, {"m:t": fn}.__getitem__, ManualClock())


def test_a_function_over_columns_gives_an_array() -> None:
    batch = column(1, 3, None)
    for fn in (
        lambda batch: pc.multiply(batch["t"], 1000),
        lambda batch: [None, 3000, None][: batch.num_rows],
        lambda batch: pa.chunked_array(
            [pa.array([1, 3, None][: batch.num_rows], pa.timestamp("s"))]
        ),
    ):
        times = over_columns(fn)
        assert failures(times, batch) == {}
        assert times.mark([0]) == 3_000
        assert failures(times, [{"t": 1}, {"t": 3}]) == {}
        assert times.mark([0]) == 3_000


def test_a_function_over_columns_may_fail_for_one_row() -> None:
    times = over_columns(lambda batch: batch["t"])
    assert list(failures(times, column("1970-01-01", "soon"))) == [1]
    assert times.mark([0]) == 0


@pytest.mark.parametrize("answer", [7, "now", {"t": 1}, [1, 2]])
def test_a_function_over_columns_that_gives_no_array_is_named(answer: Any) -> None:
    said = failures(over_columns(lambda batch: answer), column(1, 2, 3))
    assert list(said) == [0, 1, 2]
    assert "assignWatermarkFn m:t" in said[0]
