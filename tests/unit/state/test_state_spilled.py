"""Buckets that are partly on disk hold what those in memory do, and their folder goes with them."""

from __future__ import annotations

import fcntl
import gc
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.examples import examples

from onyx.errors import SettingsError
from onyx.keystate.buckets import Bucket, BucketForm
from onyx.keystate.groups import Shards, group_value, hashable_key, load_key
from onyx.settings import StateSettings
from onyx.state.local.scratch import Scratch, scratch_folder
from onyx.state.local.spilled import PAGE, FrozenSpill, Spill, SpilledBucket

SHARDS = 3
VALUES = ("a", "b", 0, -7, b"a", None, ["a", 1], {"k": [None]}, True, "long" * 40)
KEYS = st.sampled_from([hashable_key(each) for each in VALUES])
FORM = BucketForm(list, list, lambda key, data: list(data))


def shard_of(value: Any) -> int:
    return [repr(each) for each in VALUES].index(repr(value)) % SHARDS


def shards() -> Shards:
    return Shards(shard_of)


@pytest.fixture
def spill(tmp_path: Path) -> Spill:
    return Spill(tmp_path, extents_max=100)


def numbers(spill: Spill, count: int) -> SpilledBucket:
    made = spill.bucket(BucketForm(int, int, lambda key, data: data), Shards(lambda key: key % 2))
    made.update((number, number) for number in range(count))
    assert isinstance(made, SpilledBucket)
    return made


def in_memory(bucket: SpilledBucket) -> list[Any]:
    return list(dict.keys(bucket))


class SameAsInMemory(RuleBasedStateMachine):
    """What is done to both of two buckets, with another one beside them on the same disk."""

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.spill = Spill(self.folder, extents_max=2)
        self.other = self.spill.bucket(FORM, shards())
        self.other.update([(key, ["other"]) for key in map(hashable_key, VALUES)])
        self.plain = Bucket(FORM, shards())
        self.spilled = self.spill.bucket(FORM, shards())

    def both(self) -> tuple[Bucket, Bucket]:
        return self.plain, self.spilled

    @rule(key=KEYS, value=st.integers(0, 9))
    def append(self, key: Any, value: int) -> None:
        for each in self.both():
            state = each[key]
            each[key] = [*state, value]

    @rule(key=KEYS, value=st.integers(0, 9))
    def change_in_place(self, key: Any, value: int) -> None:
        for each in self.both():
            each[key].append(value)

    @rule(key=KEYS)
    def overwrite(self, key: Any) -> None:
        for each in self.both():
            each[key] = ["new"]

    @rule(keys=st.lists(KEYS, max_size=4))
    def update(self, keys: list[Any]) -> None:
        for each in self.both():
            each.update((key, ["updated"]) for key in keys)

    @rule(key=KEYS)
    def remove(self, key: Any) -> None:
        outcomes = []
        for each in self.both():
            try:
                del each[key]
                outcomes.append(True)
            except KeyError:
                outcomes.append(False)
        assert outcomes[0] == outcomes[1]

    @rule(keys=st.lists(KEYS, max_size=4))
    def use(self, keys: list[Any]) -> None:
        for each in self.both():
            each.used(keys)

    @rule()
    def trim(self) -> None:
        self.spill.trim()
        assert self.spill.held <= 2

    @rule(key=KEYS)
    def look(self, key: Any) -> None:
        assert self.plain.get(key, "none") == self.spilled.get(key, "none")

    @rule(chosen=st.sets(st.integers(0, SHARDS - 1)))
    def remove_shards_while_iterating(self, chosen: set[int]) -> None:
        for each in self.both():
            for key in each.groups(chosen):
                del each[key]

    @rule(key=KEYS)
    def freeze(self, key: Any) -> None:
        frozen, before = self.spill.freeze(), dict(self.plain)
        self.append(key, 5)
        self.spill.trim()
        pages = [page for shard in range(SHARDS) for page in frozen.pages(self.spilled, shard)]
        held = {load_key(data): state for page in pages for data, state in zip(*page, strict=True)}
        assert held == before

    @invariant()
    def same(self) -> None:
        assert len(self.spilled) == len(self.plain)
        assert bool(self.spilled) == bool(self.plain)
        assert all(
            (key in self.spilled) == (key in self.plain) for key in map(hashable_key, VALUES)
        )

    @invariant()
    def same_within(self) -> None:
        assert dict(self.spilled.items()) == dict(self.plain.items())
        assert sorted(map(repr, self.spilled)) == sorted(map(repr, self.plain))
        assert self.plain.keys() <= self.spilled.keys()
        for shard in range(SHARDS):
            assert set(self.spilled.groups([shard])) == set(self.plain.groups([shard]))

    def teardown(self) -> None:
        for each in self.both():
            each.free()


def test_what_is_on_disk_counts_as_what_is_in_memory(tmp_path: Path) -> None:
    machine = type("Machine", (SameAsInMemory,), {"folder": tmp_path})
    machine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=20)
    machine.TestCase().runTest()


def test_what_was_used_least_goes_to_disk(spill: Spill) -> None:
    bucket = numbers(spill, 100)
    bucket.used(range(10))
    bucket[100] = 100
    spill.trim()
    held = in_memory(bucket)
    assert held[-11:] == [*range(10), 100]
    assert 80 < len(held) < 100
    assert len(bucket) == 101


def test_each_bucket_gives_its_share(spill: Spill) -> None:
    large, small = numbers(spill, 180), numbers(spill, 20)
    spill.trim()
    assert 70 < len(in_memory(large)) <= 80
    assert 5 < len(in_memory(small)) <= 10


def test_more_than_fits_is_gone_through_in_pages(spill: Spill) -> None:
    bucket = numbers(spill, 5 * PAGE)
    spill.trim()
    seen, most = [], 0
    for number in bucket.groups():
        seen.append(bucket[number])
        most = max(most, spill.held)
    assert sorted(seen) == list(range(5 * PAGE))
    assert most <= PAGE + 100
    frozen = spill.freeze()
    pages = [len(keys) for keys, _ in frozen.pages(bucket, 0)]
    assert sum(pages) == 5 * PAGE / 2
    assert max(pages) == PAGE


def test_a_bucket_that_is_not_used_any_more_frees_memory_and_disk(spill: Spill) -> None:
    gone, kept = numbers(spill, 300), numbers(spill, 60)
    spill.trim()
    gone.free()
    assert spill.held == len(in_memory(kept))
    assert len(list(spill.db.keys())) == len(kept) - len(in_memory(kept))


def test_what_was_frozen_stays_when_the_bucket_goes(spill: Spill) -> None:
    bucket = numbers(spill, 10)
    frozen = spill.freeze()
    bucket.free()
    del spill
    assert frozen_keys(frozen, bucket) == list(range(10))


def frozen_keys(frozen: FrozenSpill, bucket: Bucket) -> list[Any]:
    return sorted(
        group_value(key)
        for shard in range(2)
        for keys, _ in frozen.pages(bucket, shard)
        for key in keys
    )


def folders(parent: Path) -> list[Path]:
    return [each for each in parent.iterdir() if each.is_dir()]


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    made = Scratch(tmp_path)
    yield made
    made.remove()


def test_the_folder_goes_with_its_owner(tmp_path: Path) -> None:
    spill = Spill(tmp_path, extents_max=1)
    assert len(folders(tmp_path)) == 1
    del spill
    gc.collect()
    assert folders(tmp_path) == []


def test_folders_of_those_who_were_killed_are_removed(scratch: Scratch, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / "owner").touch()
    other = Scratch(tmp_path)
    assert sorted(folders(tmp_path)) == sorted([scratch.path, other.path])
    other.remove()


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    foreign, held = tmp_path / "foreign", tmp_path / "held"
    foreign.mkdir()
    held.mkdir()
    with (held / "owner").open("w") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        made = Scratch(tmp_path)
    made.remove()
    assert sorted(folders(tmp_path)) == [foreign, held]


def test_without_rocksdict_it_is_said_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(SettingsError, match=r"pip install 'onyx-on-kubernetes\[spill\]'"):
        Spill(tmp_path, extents_max=1)


def test_the_scratch_folder_is_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = scratch_folder(StateSettings())
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingsError, match="another user's"):
        scratch_folder(StateSettings())
