"""Questions about a window: what is selected is what a plain look at all extents selects, and pages
make up the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.windows.short import task_windows

from onyx.codec.questions import decode_place, decode_selection, encode_place, encode_selection
from onyx.keystate.buckets import Holder, InMemory
from onyx.keystate.extents import ALL, Extent
from onyx.keystate.groups import hashable_keys
from onyx.keystate.selection import EVERYTHING, Selection, begins_with, place_of
from onyx.state.local.spilled import Spill
from onyx.windows.task_windows import TaskWindows

GROUPS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from(["", "a", "ab", "abc", "b"]),
    st.sampled_from([None, True, 1.5, b"a"]),
    st.lists(st.sampled_from(["a", 1, True]), max_size=2),
    st.fixed_dictionaries({"x": st.sampled_from([1, True, "1"])}, optional={"y": st.just("a")}),
)
SEGMENTS = st.lists(
    st.fixed_dictionaries({"k": GROUPS, "at": st.integers(0, 30), "s": st.sampled_from("pq")}),
    max_size=25,
)
KINDS: list[dict[str, Any]] = [
    {},
    {"type": "sliding", "range": (10, "elements"), "slide": (5, "elements")},
    {"type": "global", "window_key": None},
    {"type": "session", "timeout_gap": (2, "elements"), "session_key": "s"},
    {"type": "session", "timeout_gap": (2, "elements")},
]
BOUNDS = st.one_of(st.none(), st.integers(-5, 35))
SELECTIONS = st.one_of(
    st.builds(Selection, key=GROUPS),
    st.builds(Selection, prefix=st.sampled_from(["", "a", "ab", ["a"], [1], [], {"x": 1}, {}])),
    st.builds(Selection, key_from=st.integers(-3, 3), key_to=st.none() | st.integers(-3, 3)),
    st.builds(Selection, key_from=st.none() | st.just("a"), key_to=st.sampled_from(["", "ab"])),
    st.just(EVERYTHING),
).flatmap(
    lambda asked: st.builds(
        lambda first, end: replace(asked, time_from=first, time_to=end), BOUNDS, BOUNDS
    )
)


def filled(kind: dict[str, Any], segments: list[dict[str, Any]], holder: Holder) -> TaskWindows:
    windows = task_windows((kind, []), group_by="k", holder=holder)
    if segments:
        windows.add(segments, hashable_keys([each["k"] for each in segments]), 0)
    return windows


def meant(asked: Selection, extent: Extent) -> bool:
    group: Any = extent.group
    same = begins_with([group], [asked.key]) if asked.key is not ALL else True
    begins = asked.prefix is None or begins_with(group, asked.prefix)
    bounds = [each for each in (asked.key_from, asked.key_to) if each is not None]
    ordered = not bounds or type(group) is type(bounds[0])
    return (
        same
        and begins
        and ordered
        and (asked.key_from is None or group >= asked.key_from)
        and (asked.key_to is None or group < asked.key_to)
        and (asked.time_from is None or extent.upper >= asked.time_from)
        and (asked.time_to is None or extent.lower < asked.time_to)
    )


def pages(windows: TaskWindows, asked: Selection, size: int) -> list[list[Extent]]:
    found = []
    while True:
        asked = decode_selection(encode_selection(asked))
        page = windows.query("w0", asked, size + 1)
        found.append(page[:size])
        if len(page) <= size:
            return found
        place = decode_place(encode_place(place_of(page[size - 1])))
        asked = replace(asked, after=place)


@pytest.fixture(scope="module", params=["in memory", "on disk"])
def holder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Holder:
    if request.param == "in memory":
        return InMemory()
    return Spill(tmp_path_factory.mktemp("scratch"), extents_max=0)


@given(st.sampled_from(KINDS), SEGMENTS, SELECTIONS, st.integers(1, 5))
def test_pages_are_together_what_is_selected_in_order(
    holder: Holder,
    kind: dict[str, Any],
    segments: list[dict[str, Any]],
    asked: Selection,
    size: int,
) -> None:
    windows = filled(kind, segments, holder)
    everything = windows.query("w0")
    wanted = sorted(
        (each for each in everything if meant(asked, each)), key=lambda each: place_of(each).order
    )
    found = pages(windows, asked, size)
    assert [each for page in found for each in page] == wanted
    assert all(len(page) == size for page in found[:-1])
    assert len({place_of(each).order for each in everything}) == len(everything)


@given(st.sampled_from(KINDS), SEGMENTS, SEGMENTS, st.integers(1, 4))
def test_an_extent_that_is_there_all_the_time_comes_once_though_others_come_meanwhile(
    kind: dict[str, Any], before: list[dict[str, Any]], later: list[dict[str, Any]], size: int
) -> None:
    windows = filled(kind, before, InMemory())
    # What sessions merge or begin earlier is another extent.
    stays = {place_of(each).order for each in windows.query("w0")}
    seen: list[tuple[Any, ...]] = []
    asked = EVERYTHING
    while True:
        page = windows.query("w0", asked, size + 1)
        seen += [place_of(each).order for each in page[:size]]
        if later:
            segment = later.pop()
            windows.add([segment], hashable_keys([segment["k"]]), 0)
            stays &= {place_of(each).order for each in windows.query("w0")}
        if len(page) <= size:
            break
        asked = replace(asked, after=place_of(page[size - 1]))
    assert stays <= set(seen)
    assert seen == sorted(set(seen))
