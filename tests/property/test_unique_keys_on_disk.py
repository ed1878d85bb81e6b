"""The filter of unique keys is the same on disk as in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.keystate.buckets import InMemory
from onyx.keystate.uniqueness import FiltersInMemory
from onyx.settings import StateSettings
from onyx.state.local.spilled import Spill
from onyx.state.local.spilled_keys import SpilledFilters, filters

KEYS_MAX = 20
"""Two in a bucket."""
SHARDS = st.integers(0, 2)
VALUES = st.lists(
    st.one_of(st.integers(0, 60), st.booleans(), st.text(max_size=1), st.none(), st.just([1])),
    max_size=30,
)


@pytest.fixture(scope="module")
def spill(tmp_path_factory: pytest.TempPathFactory) -> Spill:
    return Spill(tmp_path_factory.mktemp("scratch"), extents_max=0)


@given(st.lists(st.tuples(SHARDS, VALUES, st.booleans()), max_size=12))
def test_the_same_values_are_new_on_disk_and_in_memory(
    spill: Spill, steps: list[tuple[int, list[Any], bool]]
) -> None:
    memory, disk = FiltersInMemory(KEYS_MAX), SpilledFilters(spill, KEYS_MAX)
    replayed = SpilledFilters(spill, KEYS_MAX)
    for shard, values, frozen in steps:
        before = (memory.freeze(), disk.freeze()) if frozen else None
        kept = [before[0](each) for each in range(3)] if before else []
        assert disk.first_seen(shard, values) == memory.first_seen(shard, values)
        news = memory.take_news()
        assert disk.take_news() == news
        for each, new in news.items():
            replayed.restore(each, new)
        if before:
            assert [before[1](each) for each in range(3)] == kept, "as it was"
    last = [memory.freeze()(shard) for shard in range(3)]
    assert [disk.freeze()(shard) for shard in range(3)] == last
    assert [replayed.freeze()(shard) for shard in range(3)] == last
    copied = SpilledFilters(spill, KEYS_MAX)
    for shard, values in enumerate(last):
        copied.restore(shard, values)
    assert [copied.freeze()(shard) for shard in range(3)] == last


def test_keys_are_where_the_other_states_of_the_task_are(tmp_path: Path) -> None:
    settings = StateSettings(unique_keys_max=KEYS_MAX)
    assert isinstance(filters(settings, InMemory()), FiltersInMemory)
    assert isinstance(filters(settings, Spill(tmp_path, 5)), SpilledFilters)
