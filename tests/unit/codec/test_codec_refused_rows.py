"""Rows of columns that cannot be segments."""

import pyarrow as pa
import pytest

from onyx.codec.refusals import SEGMENT_BYTES_MAX, refused_rows, text_of
from onyx.flow.columns.record_batch import Columns, to_dicts

UTC = pa.timestamp("us", tz="UTC")
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
DAY_US = 86_400_000_000


def columns(**arrays: pa.Array) -> Columns:
    return Columns.of(pa.record_batch(arrays))


@pytest.mark.parametrize(
    ("array", "wrong"),
    [
        (pa.array([FIRST_US, None, LAST_US], UTC), []),
        (pa.array([FIRST_US - 1, None, LAST_US, LAST_US + 1], UTC), [0, 3]),
        (pa.array([LAST_US - DAY_US, LAST_US], pa.timestamp("us", tz="Asia/Tokyo")), [1]),
        (pa.array([-719_162, 2_932_896, 2_932_897], pa.date32()), [2]),
        (pa.array([[0], None, [], [0, LAST_US + 1]], pa.list_(UTC)), [3]),
        (pa.array([{"at": 0}, None, {"at": 2**62}], pa.struct([("at", UTC)])), [2]),
        (pa.array([[{"at": 0}], [{"at": 2**62}]], pa.list_(pa.struct([("at", UTC)]))), [1]),
        (pa.array([2**62, -(2**62)], pa.duration("us")), []),
        (pa.array([], UTC), []),
    ],
)
def test_moments_that_python_lacks_are_found_wherever_they_are(array, wrong):
    found = columns(n=pa.array(range(len(array))), at=array)
    assert [index for index, _ in refused_rows(found)] == wrong
    for _, error in refused_rows(found):
        assert "key 'at' holds a moment outside of the years 1 to 9999" in str(error)
    good = [index for index in range(len(array)) if index not in wrong]
    assert len(to_dicts(found.take(pa.array(good, pa.int64()).to_numpy()))) == len(good)


def test_a_slice_is_judged_by_its_own_rows():
    found = columns(at=pa.array([[2**62], [0], [0, 2**62]], pa.list_(UTC)))
    assert [index for index, _ in refused_rows(found.slice(1, 3))] == [1]


def test_a_row_that_is_wrong_twice_has_one_error():
    page = pa.array(["x", "y" * (SEGMENT_BYTES_MAX + 1), "z"])
    found = columns(page=page, at=pa.array([2**62, 2**62, 0], UTC))
    assert [index for index, _ in refused_rows(found)] == [0, 1]


def test_the_text_of_a_row_needs_no_dict_of_it():
    found = columns(n=pa.array([1, None]), at=pa.array([0, 2**62], UTC))
    assert text_of(found, 1) == "{'n': 'null', 'at': '<value out of range: 4611686018427387904>'}"


def text(*values: bytes | None) -> pa.Array:
    array = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers())


BAD = text(b"a", b"\xff", None, b"b", b"\xc3")
LISTS = pa.ListArray.from_arrays(pa.array([0, 1, 3, 5], pa.int32()), BAD)
DECIMALS = pa.Array.from_buffers(
    pa.decimal128(3, 1),
    2,
    [None, pa.py_buffer((5).to_bytes(16, "little") + (50_000).to_bytes(16, "little"))],
)


@pytest.mark.parametrize(
    ("array", "wrong", "shown"),
    [
        (BAD, [1, 4], "\ufffd"),
        (LISTS, [1, 2], ["\ufffd", None]),
        (LISTS.slice(1, 1), [0], ["\ufffd", None]),
        (LISTS.slice(0, 1), [], None),
        (pa.StructArray.from_arrays([BAD], ["x"]), [1, 4], {"x": "\ufffd"}),
        (pa.StructArray.from_arrays([BAD], ["x"]).slice(2, 2), [], None),
        (pa.StructArray.from_arrays([LISTS], ["x"]), [1, 2], {"x": ["\ufffd", None]}),
        (DECIMALS, [1], None),
    ],
)
def test_values_that_are_none_of_their_type_are_found_wherever_they_are(array, wrong, shown):
    found = columns(n=pa.array(range(len(array))), s=array)
    assert [index for index, _ in refused_rows(found)] == wrong
    assert all("key 's' holds " in str(error) for _, error in refused_rows(found))
    if shown is not None:
        assert found.row(wrong[0]) == {"n": wrong[0], "s": shown}
        assert "\ufffd" in text_of(found, wrong[0])
