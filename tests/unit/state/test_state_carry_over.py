"""Shards that begin with the state of another job, whatever dies while they do."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.log.records import notes, notes_of

from onyx.errors import Fenced, StateError, Unavailable
from onyx.settings import StateSettings
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.recovery import CarriedState, RecoveredState, read_state, recover
from onyx.state.shard_states import ShardState
from onyx.storage.interface import MemoryBlobStore

SETTINGS = StateSettings()


class Other:
    """The other job: each shard has its number as its only record. Notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __call__(self, shards: frozenset[int]) -> CarriedState:
        self.asked.append(sorted(shards))
        states = {n: ShardState.of(ShardChange(notes(n), settled=7)) for n in shards}
        ids = np.array(sorted(shards), dtype=np.uint64)
        return CarriedState(states, ids, ids, 5)


class Failing(MemoryBlobStore):
    """Does not answer when names are created that end like this, until that is taken away."""

    ending = "\n"

    def create(self, name: str, data: bytes) -> bool:
        if name.endswith(self.ending):
            raise Unavailable(name)
        return super().create(name, data)


@pytest.fixture
def store() -> Failing:
    return Failing()


@pytest.fixture
def other() -> Other:
    return Other()


def taken(store: Failing, other: Other, version: int, rank: int, *shards: int) -> RecoveredState:
    return recover(store, "job", "task", version, rank, shards, SETTINGS, carry_over=other)


def records(recovered: RecoveredState) -> dict[int, list[int]]:
    return {n: notes_of(state) for n, state in recovered.shards.items()}


def test_what_no_log_has_is_asked_of_the_other_job_once(store: Failing, other: Other) -> None:
    first = taken(store, other, 1, 0, 0, 1)
    assert records(first) == {0: [0], 1: [1]}
    assert (first.ids.tolist(), first.watermark) == ([0, 1], 5)
    first.log.append(Chunk({1: ShardChange(notes("more"))}))
    second = taken(store, other, 2, 0, 0, 1)
    assert records(second) == {0: [0], 1: [1, "more"]}
    assert {n: shard.settled for n, shard in second.shards.items()} == {0: 7, 1: 7}
    assert second.ids.tolist() == [0, 1]
    assert other.asked == [[0, 1]]


@pytest.mark.parametrize("ending", ["/00000000", "/00000001", ".whole"])
def test_a_peer_that_dies_before_all_is_taken_over_leaves_nothing(
    store: Failing, other: Other, ending: str
) -> None:
    store.ending = ending
    with pytest.raises(Unavailable):
        taken(store, other, 1, 0, 0, 1)
    store.ending = "\n"
    assert records(taken(store, other, 2, 0, 0)) == {0: [0]}
    assert records(taken(store, other, 2, 1, 1)) == {1: [1]}
    assert other.asked == [[0, 1], [0], [1]]


@pytest.mark.parametrize("ending", ["/00000000", "/00000001", ".whole"])
def test_a_peer_that_tries_again_takes_over_whole(
    store: Failing, other: Other, ending: str
) -> None:
    store.ending = ending
    with pytest.raises(Unavailable):
        taken(store, other, 1, 0, 0, 1)
    store.ending = "\n"
    again = taken(store, other, 1, 0, 0, 1)
    again.log.append(Chunk({0: ShardChange(notes("more"))}))
    assert records(taken(store, other, 2, 0, 0, 1)) == {0: [0, "more"], 1: [1]}
    assert len(other.asked) == 2


def test_what_a_job_has_made_of_the_state_of_another_one_is_not_begun_again(
    store: Failing, other: Other
) -> None:
    taken(store, other, 1, 0, 0, 1).log.append(Chunk({1: ShardChange(notes("more"))}))
    store.delete("job/task/00000000000000000001-00000/00000001.whole")

    with pytest.raises(StateError, match=r"00000001\.whole is gone; restore it"):
        recover(store, "job", "task", 2, 0, [0, 1], SETTINGS, carry_over=other, ready=1)
    assert other.asked == [[0, 1]]


def test_only_what_is_missing_is_asked_for(store: Failing, other: Other) -> None:
    taken(store, other, 1, 0, 0)
    store.ending = ".whole"
    with pytest.raises(Unavailable):
        taken(store, other, 1, 1, 1)
    store.ending = "\n"
    assert records(taken(store, other, 2, 0, 0, 1)) == {0: [0], 1: [1]}
    assert records(taken(store, other, 3, 0, 0, 1)) == {0: [0], 1: [1]}
    assert other.asked == [[0], [1], [1]]


def test_the_logs_of_a_job_that_is_read_by_another_one_are_fenced(
    store: Failing, other: Other
) -> None:
    old = taken(store, other, 1, 0, 0, 1)
    found = read_state(store, "job", "task", [1])
    assert notes_of(found.shards[1]) == [1]
    with pytest.raises(Fenced):
        old.log.append(Chunk({1: ShardChange(notes("late"))}))
    assert read_state(store, "job", "nothing", [1]).shards[1].settled == 0
