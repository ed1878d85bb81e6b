"""A batch split by extents: by vectors and one by one it is the same."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.windows.assigning.assigner import COORDINATE_MAX, Tiling, by_extent

COORDINATES = st.lists(st.integers(-30, 60), min_size=1, max_size=20)
TILINGS = st.builds(
    lambda minimum, width, slide: Tiling(minimum, max(width, slide), slide),
    st.integers(-20, 20),
    st.integers(1, 12),
    st.integers(1, 12),
)


@given(TILINGS, COORDINATES)
def test_each_segment_is_in_one_part_with_all_its_extents(tiling, coordinates):
    for ints in (True, False):
        found = {}
        for part in tiling.split(coordinates, ints):
            indices = range(len(coordinates)) if part.indices is None else part.indices
            found |= {index: list(part.numbers) for index in indices}
            assert list(indices) == sorted(indices)
        assert found == {
            i: list(tiling.numbers(coordinate)) for i, coordinate in enumerate(coordinates)
        }


@given(TILINGS, st.lists(st.floats(-1e6, 1e6) | st.sampled_from([1e17, -1e-100]), min_size=1))
def test_an_array_of_floats_is_split_like_python_floats(tiling, coordinates):
    found = [
        (list(part.numbers), range(len(coordinates)) if part.indices is None else part.indices)
        for part in tiling.split(np.array(coordinates), False)
    ]
    each = {index: numbers for numbers, indices in found for index in indices}
    assert each == {i: list(tiling.numbers(coordinate)) for i, coordinate in enumerate(coordinates)}


@given(TILINGS, st.integers(-30, 60) | st.floats(-30, 60))
def test_what_a_window_takes_is_between_the_bounds_of_all_its_extents(tiling, coordinate):
    if tiling.width > tiling.slide:
        coordinate = max(coordinate, tiling.minimum)  # what is below is refused
    for number in tiling.numbers(coordinate):
        first, last = tiling.bounds(number)
        assert first <= coordinate < last + 1


def test_a_float_just_below_the_end_of_an_extent_is_in_no_other():
    before = math.nextafter(10.0, 0.0)
    assert list(Tiling(0, 10, 10).numbers(before)) == [0]
    (part,) = Tiling(0, 10, 10).split(np.array([1.0, before]), False)
    assert list(part.numbers) == [0]


def test_places_between_extents_are_in_none():
    tiling = Tiling(0, 1, 10)
    parts = tiling.split([8, 9, 19, 28], True)
    assert [(list(part.numbers), part.indices.tolist()) for part in parts if part.numbers] == [
        ([0], [1]), ([1], [2])
    ]  # fmt: skip


@given(TILINGS, COORDINATES)
def test_by_extent_each_has_its_segments_in_order_of_arrival(tiling, coordinates):
    parts = by_extent(tiling.split(coordinates, True))
    found = [
        (n, range(len(coordinates)) if part.indices is None else part.indices)
        for part in parts
        for n in part.numbers
    ]
    wanted = {}
    for index, coordinate in enumerate(coordinates):
        for number in tiling.numbers(coordinate):
            wanted.setdefault(number, []).append(index)
    assert {number: list(indices) for number, indices in found} == wanted
    assert len(found) == len(wanted)


@pytest.mark.parametrize("far", [2**70, -(2**70), COORDINATE_MAX * 2 - 1])
def test_places_beyond_64_bits_are_split_as_well(far):
    tiling = Tiling(-1_000, 10, 10)
    parts = tiling.split([far, 0], True)
    assert sorted(part.numbers[0] for part in parts) == sorted(
        tiling.numbers(coordinate)[0] for coordinate in (far, 0)
    )


@given(TILINGS, st.integers(-100, 100))
def test_a_place_lies_within_the_bounds_of_its_extents(tiling, coordinate):
    numbers = tiling.numbers(coordinate)
    assert len(numbers) in {tiling.width // tiling.slide, -(-tiling.width // tiling.slide)}
    for number in numbers:
        first, last = tiling.bounds(number)
        if coordinate >= tiling.minimum:
            assert first <= coordinate <= last
