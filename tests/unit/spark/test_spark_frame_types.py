"""What the writers of a frame agree its keys are: all that they take fits into one DataFrame."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from onyx.errors import UserError
from onyx.flow.columns.record_batch import from_dicts
from onyx.spark.middle.frame_types import FrameTypes
from onyx.spark.types import for_spark
from onyx.storage.opening import location_of

Values = list[Any]


def writer(folder: Path) -> FrameTypes:
    return FrameTypes(location_of(str(folder)) / "types" / "read")


def left_out(types: FrameTypes, values: Values, columns: bool = False) -> Values:
    """The values of the segments that do not fit."""
    segments = [{"k": each} for each in values]
    failures = types.misfits(from_dicts(segments)[0] if columns else segments)
    assert all("key 'k'" in str(error) for _, error in failures)
    return [values[index] for index, _ in failures]


@pytest.mark.parametrize("columns", [False, True])
def test_two_writers_take_a_key_as_one_type(tmp_path: Path, columns: bool) -> None:
    one, other = writer(tmp_path), writer(tmp_path)
    assert left_out(one, [1, None], columns) == []
    assert left_out(other, ["text"], columns) == ["text"]
    assert left_out(other, [2], columns) == []
    assert left_out(one, ["text"], columns) == ["text"]


def test_who_looked_before_another_agreed_looks_again(tmp_path: Path) -> None:
    one, other = writer(tmp_path), writer(tmp_path)
    assert left_out(one, [None]) == left_out(other, [None]) == []
    assert left_out(one, [1]) == []
    assert left_out(other, ["text", 2, 2.5]) == ["text"]
    assert left_out(one, [0.25, "text"]) == ["text"]


def test_a_writer_that_starts_again_knows_what_there_was(tmp_path: Path) -> None:
    assert left_out(writer(tmp_path), [date(2026, 1, 1)]) == []
    assert left_out(writer(tmp_path), [5, date(2026, 1, 2)]) == [5]


def test_what_does_not_fit_does_not_decide_for_its_batch(tmp_path: Path) -> None:
    types = writer(tmp_path)
    assert left_out(types, [1]) == []
    assert left_out(types, ["text", 2, 3, [4], 5]) == ["text", [4]]


def test_names_that_spark_does_not_tell_apart_are_refused_by_all(tmp_path: Path) -> None:
    one, other = writer(tmp_path), writer(tmp_path)
    assert one.misfits([{"name": 1}]) == []
    ((index, error),) = other.misfits([{"name": 2}, {"Name": 3}])
    assert index == 1
    assert "key 'Name' cannot be in a DataFrame of the stage: it differs from 'name' only" in str(
        error
    )


@pytest.mark.parametrize(
    ("first", "then", "refused"),
    [
        ([5], [0.5, 2**53], []),
        ([2**60 + 1], [0.5, 7], [0.5]),
        ([0.5], [2**60 + 1, 7], [2**60 + 1]),
        ([2**64 - 1], [-1, 0.5], [0.5]),
        ([[2**60 + 1]], [[0.5], [2]], [[0.5]]),
        ([{"a": 0.5}], [{"a": 2**60 + 1}, {"a": 1}], [{"a": 2**60 + 1}]),
        ([Decimal("1.5")], [0.5, 3], []),
        ([Decimal("0.12345678901234567890")], [0.5, 3], [0.5]),
        ([Decimal("0." + "1" * 38)], [Decimal("0.5"), 1], [1]),
        ([0.5], [Decimal("217058676029.44912"), 3], [Decimal("217058676029.44912")]),
        ([Decimal("1e-20")], [10**17, 10**18], [10**18]),
        ([10**18], [Decimal("1e-20"), 3], [Decimal("1e-20")]),
        ([10**37], [5], []),
    ],
)
def test_numbers_that_the_common_type_does_not_hold_are_left_out(
    tmp_path: Path, first: Values, then: Values, refused: Values
) -> None:
    first = [Decimal(each) if each == 10**37 else each for each in first]
    assert left_out(writer(tmp_path), first) == []
    assert left_out(writer(tmp_path), then) == refused


NUMBERS = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.integers(-9, 9), st.floats(-1e300, 1e300),
    st.decimals(-(10**30), 10**30, places=5), st.text(max_size=2), st.none(),
)  # fmt: skip


@settings(max_examples=examples(40), deadline=None)
@given(batches=st.lists(st.tuples(st.integers(0, 2), st.lists(NUMBERS, max_size=5)), max_size=6))
@example(batches=[(0, [0.0, Decimal("217058676029.44912")])])
def test_all_that_is_taken_has_one_type_that_holds_it(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, Values]]
) -> None:
    folder = tmp_path_factory.mktemp("types")
    writers = [writer(folder) for _ in range(3)]
    taken: Values = []
    for which, values in batches:
        failed = {index for index, _ in writers[which].misfits([{"k": each} for each in values])}
        taken += [each for index, each in enumerate(values) if index not in failed]
    known = writer(folder)._agreed.known
    if "k" not in known:
        return
    common = known["k"].type
    for value in taken:
        if pa.types.is_floating(common) and value is not None:
            assert float(value) == value or str(Decimal(repr(float(value)))) in str(value)
        elif pa.types.is_decimal(common):
            pa.array([None if value is None else Decimal(value)], common)


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    ("kind", "fits", "misfits"),
    [
        ("BIGINT", [1, None, -(2**63)], [2.5, 2**63]),
        ("BIGINT NOT NULL COMMENT 'a, b'", [2.0, 1], [2.5, math.nan]),
        ("tinyint", [127, None], [128]),
        ("INT", ["12", "-3"], ["x", "2.5", ""]),
        ("BOOLEAN", [1, 0], [2]),
        ("DOUBLE", [1, 0.1], ["x"]),
        ("FLOAT", [0.1, 1e30], [1e300]),
        ("DECIMAL(5, 2)", [1, 999], [1000]),
        ("DECIMAL(5, 2)", [Decimal("1.5"), Decimal("999.99")], [Decimal("1.505")]),
        ("DECIMAL(5,2)", [0.5], [0.125, 1e9]),
        ("STRING", ["x", "y"], [b"x"]),
        ("STRING", [1, 2.5], []),
        ("DATE", [date(2026, 1, 1)], [7]),
        ("DATE", [MIDNIGHT], [NOON]),
        ("DATE", ["2026-01-01"], ["2026-13-01", "soon"]),
        ("TIMESTAMP", [NOON, MIDNIGHT], [True]),
        ("ARRAY<INT>", [[1], []], [[2**40], 5, ["x"]]),
        ("STRUCT<a: INT, `b c`: ARRAY<STRING>>", [{"a": 1, "d": 1}], [{"a": 2**40}, 5]),
        ("MAP<STRING, INT>", [{"a": 1}], []),
        ("INTERVAL DAY TO SECOND", [timedelta(1)], [1, "x"]),
        ("BIGINT", [1], [timedelta(1), NOON]),
    ],
)  # fmt: skip
def test_what_is_no_value_of_the_schema_is_left_out(
    tmp_path: Path, columns: bool, kind: str, fits: Values, misfits: Values
) -> None:
    types = FrameTypes(location_of(str(tmp_path)), f"`a b` MAP<STRING, INT>, k {kind}, last INT")
    assert left_out(types, fits, columns) == []
    for each in misfits:
        assert left_out(types, [each], columns) == [each]


@pytest.mark.parametrize("ddl", ["k", "k ARRAY<", "k DECIMAL(x)", "", "k NO_TYPE"])
def test_what_is_not_understood_is_left_to_spark(tmp_path: Path, ddl: str) -> None:
    assert left_out(FrameTypes(location_of(str(tmp_path)), ddl), [2.5]) == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Decimal(10**38), "key 'v': decimals of 39 digits are more than the 38 that Spark has"),
        ({"id": 1, "ID": 2}, "key 'v': keys 'id' and 'ID' differ only in case"),
    ],
)
def test_what_spark_does_not_have_is_refused_when_a_part_is_written(value: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        for_spark(pa.table({"v": [value]}))
