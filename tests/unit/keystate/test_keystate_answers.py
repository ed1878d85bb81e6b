"""The first extents of one peer and of all, in order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.keystate.extents import Extent
from onyx.keystate.selection import Answer, merge, place_of

GROUPS = st.one_of(st.integers(-5, 5), st.sampled_from("abc"), st.none(), st.booleans())
EXTENTS = st.lists(
    st.builds(lambda group, lower: Extent(group, lower, lower + 9, 1), GROUPS, st.integers(0, 5)),
    max_size=30,
    unique_by=lambda each: place_of(each).order,
)


def first(extents: Sequence[Extent], extents_max: int) -> Answer:
    """What a peer that has these answers."""
    found = sorted(extents, key=lambda each: place_of(each).order)
    return Answer(found[:extents_max], len(found) > extents_max)


def extents(*groups: object) -> list[Extent]:
    return [Extent(group, 0, 9, "state") for group in groups]


def groups(answer: Answer) -> list[object]:
    return [extent.group for extent in answer.extents]


def test_a_peer_gives_its_first_extents_numbers_by_value_before_text() -> None:
    found = first(extents("b", 10, 9, "a", None), 4)
    assert (groups(found), found.more) == ([9, 10, "a", "b"], True)
    assert not first(extents("b", "a"), 2).more


def test_extents_of_a_group_are_in_the_order_of_their_bounds() -> None:
    found = first([Extent("a", lower, lower + 9, 0) for lower in (20, 0, 10)], 9)
    assert [extent.lower for extent in found.extents] == [0, 10, 20]


@given(EXTENTS, st.integers(1, 4), st.integers(1, 40))
def test_the_first_of_all_peers_are_those_of_one_that_has_everything(
    everything: list[Extent], peers: int, extents_max: int
) -> None:
    parts = [everything[number::peers] for number in range(peers)]
    together = merge([first(part, extents_max) for part in parts], extents_max)
    alone = first(everything, extents_max)
    assert (together.extents, together.more) == (alone.extents, alone.more)


@given(EXTENTS, st.lists(st.integers(1, 10), min_size=1, max_size=4))
def test_nothing_is_missing_before_the_last_extent_although_peers_stopped_early(
    everything: list[Extent], stops: Sequence[int]
) -> None:
    parts = [everything[number :: len(stops)] for number in range(len(stops))]
    found = merge([first(part, stop) for part, stop in zip(parts, stops, strict=True)], 100)
    whole = first(everything, 100).extents
    assert list(found.extents) == list(whole[: len(found.extents)])
    assert found.more == any(len(part) > stop for part, stop in zip(parts, stops, strict=True))


@pytest.mark.parametrize("answers", [[], [Answer([], False)]])
def test_nothing_is_an_answer_as_well(answers: list[Answer]) -> None:
    assert merge(answers, 10) == Answer([], False)
