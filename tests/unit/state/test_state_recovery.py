"""Logs are taken over: fenced, read, opened anew; snapshots and what may be deleted then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.log.records import notes, notes_of

from onyx.errors import Fenced, InvariantViolated, StateError, Unavailable
from onyx.keystate.records import SetStates
from onyx.settings import StateSettings
from onyx.state import log as log_module
from onyx.state.chunks import Chunk, EmittedRun, ShardChange, Watermark
from onyx.state.log import StateLog
from onyx.state.names import LogKey, TaskFolder
from onyx.state.recovery import RecoveredState, read_state, recover
from onyx.storage.folder import Folder
from onyx.storage.interface import BlobStore, MemoryBlobStore

SETTINGS = StateSettings()
PLACE = TaskFolder("job", "task")


@pytest.fixture
def store() -> MemoryBlobStore:
    return MemoryBlobStore()


def taken_over(
    store: BlobStore, version: int, rank: int, shards: Iterable[int], **given: Any
) -> RecoveredState:
    return recover(store, "job", "task", version, rank, shards, SETTINGS, **given)


look = partial(read_state, fences=False)


def change(
    shard: int | None = None,
    *records: Any,
    ids: Iterable[int] = (),
    watermark: Watermark | None = None,
    forgotten: dict[int, int] | None = None,
    **more: Any,
) -> Chunk:
    column = np.array(list(ids), dtype=np.uint64)
    shards = {} if shard is None else {shard: ShardChange(notes(*records), **more)}
    return Chunk(shards, column, column + np.uint64(1000), forgotten or {}, watermark)


def snapshot(**records: list[Any]) -> Chunk:
    return Chunk({int(name[1:]): ShardChange(notes(*each)) for name, each in records.items()})


def records(recovered: RecoveredState) -> dict[int, list[Any]]:
    return {n: notes_of(state) for n, state in recovered.shards.items()}


def names(store: BlobStore) -> list[str]:
    """Of what is in the logs."""
    found = [each.name.removeprefix(PLACE.prefix).lstrip("0") for each in store.list(PLACE.prefix)]
    return [each for each in found if "/" in each]


# --- what is recovered ---------------------------------------------------------------------------


def test_a_new_task_has_empty_shards(store: BlobStore) -> None:
    found = taken_over(store, 1, 0, [0, 2])

    assert records(found) == {0: [], 2: []}
    assert (len(found.roots), len(found.ids), found.watermark) == (0, 0, None)
    assert names(store) == ["1-00000/00000000"]


def test_a_peer_that_keeps_its_rank_finds_all_that_it_wrote(store: BlobStore) -> None:
    first = taken_over(store, 1, 0, [0, 1])
    first.log.append(change(0, "a", ids=[1], emitted=[EmittedRun(0, [{"x": 1}, {"x": 2}])]))
    first.log.append(change(1, "b", ids=[2], watermark=7, closed=True, keys=["k"]))
    first.log.append(change(0, "c", ids=[3], settled=1))

    found = taken_over(store, 2, 0, [0, 1])

    assert records(found) == {0: ["a", "c"], 1: ["b"]}
    assert found.shards[0].emitted == [EmittedRun(1, [{"x": 2}])]
    assert (found.shards[0].settled, found.shards[0].closed) == (1, False)
    assert (found.shards[1].closed, list(found.shards[1].unique_keys())) == (True, [["k"]])
    assert sorted(zip(found.roots.tolist(), found.ids.tolist(), strict=True)) == [
        (1, 1001), (2, 1002), (3, 1003),
    ]  # fmt: skip
    assert found.watermark == 7


@pytest.mark.parametrize(("n", "m"), [(1, 3), (3, 1), (2, 3), (3, 2), (4, 4)])
def test_shards_move_when_the_number_of_peers_changes(store: BlobStore, n: int, m: int) -> None:
    for rank in range(n):
        log = taken_over(store, 1, rank, range(rank, 8, n)).log
        for shard in range(rank, 8, n):
            log.append(change(shard, f"first {shard}", ids=[shard]))
            log.append(change(shard, f"second {shard}"))

    for rank in range(m):
        found = taken_over(store, 2, rank, range(rank, 8, m))
        assert records(found) == {s: [f"first {s}", f"second {s}"] for s in range(rank, 8, m)}
        assert set(found.roots.tolist()) >= set(range(rank, 8, m))


def test_history_goes_through_several_versions_in_order(store: BlobStore) -> None:
    for version, peers in ((1, 2), (2, 1), (5, 3), (6, 2)):
        for rank in range(peers):
            log = taken_over(store, version, rank, range(rank, 6, peers)).log
            for shard in range(rank, 6, peers):
                log.append(change(shard, version, ids=[10 * version + shard]))

    found = taken_over(store, 9, 0, range(6))

    assert records(found) == {shard: [1, 2, 5, 6] for shard in range(6)}
    assert sorted(found.roots.tolist()) == sorted(
        10 * v + s for v in (1, 2, 5, 6) for s in range(6)
    )


def test_a_version_that_only_some_peers_opened_hides_nothing(store: BlobStore) -> None:
    for rank in range(2):
        taken_over(store, 1, rank, range(rank, 4, 2)).log.append(change(rank, "a"))
    taken_over(store, 2, 0, [0, 1])  # rank 1 died before it opened its own

    found = taken_over(store, 3, 0, range(4))

    assert records(found) == {0: ["a"], 1: ["a"], 2: [], 3: []}


def test_the_watermark_is_the_lowest_of_those_that_shards_come_from(store: BlobStore) -> None:
    logs = [taken_over(store, 1, rank, [rank]).log for rank in range(3)]
    logs[0].append(change(watermark=50))
    logs[1].append(change(watermark=40))

    assert taken_over(store, 2, 0, [0, 1]).watermark == 40
    assert taken_over(store, 2, 1, [2]).watermark is None
    assert taken_over(store, 3, 0, [0]).watermark == 40, "an idle version keeps it"


def test_forgotten_ids_do_not_come_back(store: BlobStore) -> None:
    log = taken_over(store, 1, 0, [0]).log
    log.append(change(0, "a", ids=[1, 2, 3]))
    log.append(change(0, "b", ids=[4], forgotten={0: 3}))

    assert sorted(taken_over(store, 2, 0, [0]).roots.tolist()) == [3, 4]


def test_progress_ends_with_everything_read(store: BlobStore) -> None:
    log = taken_over(store, 1, 0, [0]).log
    for number in range(5):
        log.append(change(0, number))
    taken_over(store, 2, 0, [0])
    heard: list[tuple[int, int]] = []

    taken_over(store, 3, 0, [0], progress=lambda done, total: heard.append((done, total)))

    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1] == heard[0][1]


# --- fencing -------------------------------------------------------------------------------------


def test_a_zombie_cannot_append_and_says_so_ever_after(store: BlobStore) -> None:
    zombie = taken_over(store, 1, 0, [0]).log
    zombie.append(change(0, "a"))
    taken_over(store, 2, 0, [0])

    for _ in range(2):
        with pytest.raises(Fenced, match=r"job 'job', task 'task'.*version 1, rank 0"):
            zombie.append(change(0, "late"))
    with pytest.raises(Fenced):
        zombie.snapshot(snapshot(s0=["late"]))
    assert records(taken_over(store, 3, 0, [0])) == {0: ["a"]}


def test_any_peer_of_the_new_version_stops_all_zombies(store: BlobStore) -> None:
    zombies = [taken_over(store, 1, rank, [rank]).log for rank in range(2)]
    taken_over(store, 2, 3, [])
    for rank, zombie in enumerate(zombies):
        with pytest.raises(Fenced):
            zombie.append(change(rank, "late"))


def test_a_peer_of_an_old_version_cannot_begin(store: BlobStore) -> None:
    taken_over(store, 5, 0, [0])
    with pytest.raises(Fenced, match="version 5 has begun"):
        taken_over(store, 4, 0, [0])


def test_a_peer_whose_log_was_fenced_before_its_first_attempt_succeeded_cannot_begin_again(
    store: BlobStore,
) -> None:
    taken_over(store, 1, 0, [0])
    zombies = DroppingNewer(store, version=1)
    taken_over(store, 2, 0, [0])
    with pytest.raises(Fenced, match="taken over"):
        taken_over(zombies, 1, 0, [0])


class DroppingNewer:
    """A store whose listing was made before newer versions began."""

    def __init__(self, store: BlobStore, version: int) -> None:
        self.read, self.create, self.delete = store.read, store.create, store.delete
        self._store, self._version = store, version

    def list(self, prefix: str) -> Any:
        return [e for e in self._store.list(prefix) if f"{self._version:020d}-" in e.name]


def test_recovery_can_be_repeated_and_goes_on_with_what_it_wrote(store: BlobStore) -> None:
    taken_over(store, 1, 0, [0]).log.append(change(0, "a", ids=[1]))
    taken_over(store, 2, 0, [0])
    again = taken_over(store, 2, 0, [0])
    again.log.append(change(0, "b", ids=[2]))
    third = taken_over(store, 2, 0, [0])
    third.log.append(change(0, "c"))

    assert records(third) == {0: ["a", "b"]}
    assert records(taken_over(store, 3, 0, [0])) == {0: ["a", "b", "c"]}
    with pytest.raises(Fenced):
        again.log.append(change(0, "two writers of one log"))


def test_a_chunk_that_came_before_the_fence_is_read(store: BlobStore) -> None:
    zombie = taken_over(store, 1, 0, [0]).log
    fence = PLACE.chunk(LogKey(1, 0), 1)
    racing = Racing(store, {("create", fence): lambda: zombie.append(change(0, "just in time"))})

    assert records(taken_over(racing, 2, 0, [0])) == {0: ["just in time"]}
    with pytest.raises(Fenced):
        zombie.append(change(0, "late"))


def test_a_fence_at_a_number_that_was_deleted_meanwhile_is_no_end(store: BlobStore) -> None:
    log = taken_over(store, 1, 0, [0]).log

    def go_on() -> None:
        log.append(change(0, "a"))
        log.snapshot(snapshot(s0=["A"]))
        log.collect()
        log.append(change(0, "b"))

    fence = PLACE.chunk(LogKey(1, 0), 1)
    found = taken_over(Racing(store, {("create", fence): go_on}), 2, 0, [0])

    assert records(found) == {0: ["A", "b"]}
    with pytest.raises(Fenced):
        log.append(change(0, "late"))


class Racing:
    """Something happens just before a call of the store."""

    def __init__(self, store: BlobStore, before: dict[tuple[str, str], Callable[[], Any]]) -> None:
        self._store, self._before = store, before

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(name: str, *data: bytes) -> Any:
            self._before.pop((method, name), lambda: None)()
            return getattr(self._store, method)(name, *data)

        return call


# --- appending -----------------------------------------------------------------------------------


class Failing:
    """A store whose next creations fail, after or before they are carried out."""

    def __init__(self, store: BlobStore) -> None:
        self.read, self.list, self.delete = store.read, store.list, store.delete
        self.note = store.note
        self._store = store
        self.faults: list[str] = []

    def create(self, name: str, data: bytes) -> bool:
        fault = self.faults.pop(0) if self.faults else ""
        created = fault == "before" or self._store.create(name, data)
        if fault:
            raise Unavailable(f"the store fails {fault}")
        return created


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_chunk_that_is_appended_again_after_a_failure_is_there_once(
    store: BlobStore, fault: str
) -> None:
    failing = Failing(store)
    log = taken_over(failing, 1, 0, [0]).log
    failing.faults = [fault, fault]
    chunk = change(0, "a")
    for _ in range(2):
        with pytest.raises(Unavailable):
            log.append(chunk)
    log.append(chunk)
    log.append(change(0, "b"))

    assert records(taken_over(store, 2, 0, [0])) == {0: ["a", "b"]}


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_chunk_in_doubt_is_made_durable_before_the_next_one(store: BlobStore, fault: str) -> None:
    failing = Failing(store)
    log = taken_over(failing, 1, 0, [0]).log
    failing.faults = [fault]
    with pytest.raises(Unavailable):
        log.append(change(0, "a"))
    log.append(change(0, "b"))

    assert records(taken_over(store, 2, 0, [0])) == {0: ["a", "b"]}


# --- snapshots -----------------------------------------------------------------------------------


def settled_log(store: BlobStore, version: int = 1, shards: Iterable[int] = (0, 1)) -> StateLog:
    log = taken_over(store, version, 0, shards).log
    log.append(change(0, "a", ids=[1]))
    log.append(change(1, "b", ids=[2]))
    return log


@pytest.fixture
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "PART_BYTES", 10)
    monkeypatch.setattr(log_module, "_SLICE_VALUES", 6)


@pytest.mark.usefixtures("many_parts")
def test_a_snapshot_replaces_what_was_before_in_as_many_parts_as_it_takes(
    store: BlobStore,
) -> None:
    log = settled_log(store)
    whole = snapshot(s0=[f"record {n}" for n in range(7)], s1=["B"])
    whole.shards[0].emitted = [EmittedRun(4, [{"x": 1}])]
    whole.shards[0].settled = 4
    whole.roots = whole.ids = np.array([9], dtype=np.uint64)
    log.snapshot(whole)
    log.append(change(1, "c", ids=[10]))
    log.collect()

    found = taken_over(store, 2, 0, [0])
    other = taken_over(store, 2, 1, [1])

    assert sum(name.startswith("1-00000") for name in names(store)) > 7
    assert records(found) == {0: [f"record {n}" for n in range(7)]}
    assert (found.shards[0].emitted, found.shards[0].settled) == ([EmittedRun(4, [{"x": 1}])], 4)
    assert records(other) == {1: ["B", "c"]}
    assert found.roots.tolist() == other.roots.tolist() == [9, 10]


@pytest.mark.usefixtures("many_parts")
def test_half_a_snapshot_counts_for_nothing(store: BlobStore) -> None:
    failing = Failing(store)
    log = settled_log(failing)
    failing.faults = ["", "", "before"]
    with pytest.raises(Unavailable):
        log.snapshot(snapshot(s0=["A"] * 7, s1=["B"]))

    assert records(taken_over(store, 2, 0, [0, 1])) == {0: ["a"], 1: ["b"]}


@pytest.mark.usefixtures("many_parts")
@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_snapshot_that_failed_is_written_again(store: BlobStore, fault: str) -> None:
    for number in range(3):
        failing = Failing(store)
        log = settled_log(failing, 1 + number)
        failing.faults = [*[""] * number, fault]
        with pytest.raises(Unavailable):
            log.snapshot(snapshot(s0=["A"] * 7, s1=["B"]))
        log.snapshot(snapshot(s0=["A"] * 7, s1=["B"]))
        log.append(change(1, "c"))

        assert records(taken_over(store, 2 + number, 0, [0, 1])) == {0: ["A"] * 7, 1: ["B", "c"]}


def test_a_snapshot_must_have_every_shard(store: BlobStore) -> None:
    with pytest.raises(InvariantViolated, match=r"has shards \[0\].*has \[0, 1\]"):
        settled_log(store).snapshot(snapshot(s0=["A"]))


def test_a_snapshot_is_wanted_when_the_log_is_larger_than_the_last_one_by_a_factor(
    store: BlobStore,
) -> None:
    settings = StateSettings(snapshot_factor=2.0, snapshot_bytes_min=300_000)
    log = recover(store, "job", "task", 1, 0, [0], settings).log
    noise = np.random.default_rng(1)

    def appended(size_bytes: int) -> int:
        count = 0
        while not log.wants_snapshot:
            log.append(change(0, noise.bytes(size_bytes)))
            count += 1
        return count

    assert appended(100_000) == 3
    log.snapshot(snapshot(s0=[noise.bytes(1_000_000)]))
    assert not log.wants_snapshot
    assert appended(500_000) == 4
    found = recover(store, "job", "task", 2, 0, [0], settings)
    assert found.log.wants_snapshot, "a new owner has the same to read"
    log = found.log
    log.snapshot(snapshot(s0=["small"]))
    assert appended(1) < 12, "reading many small chunks is dear as well"


def test_a_snapshot_is_wanted_when_the_log_takes_long_to_restore_however_few_its_bytes(
    store: BlobStore,
) -> None:
    settings = StateSettings(snapshot_bytes_min=1_000_000)
    small = [SetStates("w", 0, ["a"], [1])] * 2_000
    log = recover(store, "job", "task", 1, 0, [0], settings).log
    count = 0
    while not log.wants_snapshot:
        log.append(Chunk({0: ShardChange(small)}))
        count += 1
    assert count == 2
    assert stored_bytes(store) < 20_000
    again = recover(store, "job", "task", 2, 0, [0], settings).log
    assert again.wants_snapshot, "a new owner has the same to restore"
    again.snapshot(Chunk({0: ShardChange(small)}))
    assert not again.wants_snapshot


def stored_bytes(store: BlobStore) -> int:
    return sum(each.size_bytes for each in store.list("job/"))


# --- what is deleted -----------------------------------------------------------------------------


def test_a_snapshot_makes_the_chunks_before_it_superfluous(store: BlobStore) -> None:
    log = settled_log(store)
    log.collect()
    assert len(names(store)) == 3
    log.snapshot(snapshot(s0=["A"], s1=["B"]))
    log.collect()

    assert names(store) == ["1-00000/00000000", "1-00000/00000003", "1-00000/00000003.whole"]
    log.snapshot(snapshot(s0=["AA"], s1=["BB"]))
    log.collect()
    assert names(store) == ["1-00000/00000000", "1-00000/00000004", "1-00000/00000004.whole"]
    assert records(taken_over(store, 2, 0, [0, 1])) == {0: ["AA"], 1: ["BB"]}


def test_an_older_log_stays_until_all_of_its_shards_have_a_snapshot(store: BlobStore) -> None:
    settled_log(store)
    first, second = (taken_over(store, 2, rank, [rank]) for rank in range(2))
    first.log.snapshot(snapshot(s0=["A"]))
    first.log.collect()
    assert records(taken_over(store, 3, 0, [0, 1])) == {0: ["A"], 1: ["b"]}

    third = taken_over(store, 4, 0, [0, 1])
    third.log.snapshot(snapshot(s0=["A"], s1=["B"]))
    third.log.collect()

    with pytest.raises(Fenced):
        second.log.append(change(1, "late"))
    left = [name for name in names(store) if not name.startswith("4-")]
    assert left == ["1-00000/00000003", "2-00000/00000002", "2-00001/00000001", "3-00000/00000001"]
    assert records(taken_over(store, 5, 0, [0, 1])) == {0: ["A"], 1: ["B"]}


def test_only_the_fence_of_an_older_log_is_kept_so_that_zombies_still_find_it(
    store: BlobStore,
) -> None:
    zombie = settled_log(store)
    log = taken_over(store, 2, 0, [0, 1]).log
    log.snapshot(snapshot(s0=["A"], s1=["B"]))
    for _ in range(2):
        log.collect()
        assert [name for name in names(store) if name.startswith("1-")] == ["1-00000/00000003"]

    with pytest.raises(Fenced):
        zombie.append(change(0, "late"))


def test_deleting_again_finishes_what_was_interrupted(store: BlobStore) -> None:
    settled_log(store)
    log = taken_over(store, 2, 0, [0, 1]).log
    log.snapshot(snapshot(s0=["A"], s1=["B"]))
    store.delete(PLACE.chunk(LogKey(1, 0), 1))
    store.delete(PLACE.chunk(LogKey(1, 0), 0))
    log.collect()

    assert [name for name in names(store) if name.startswith("1-")] == ["1-00000/00000003"]


def test_a_reader_that_finds_a_chunk_gone_reads_the_snapshot_instead(store: BlobStore) -> None:
    log = settled_log(store)

    def snapshot_and_collect() -> None:
        log.snapshot(snapshot(s0=["A"], s1=["B"]))
        log.collect()

    slow = Racing(store, {("read", PLACE.chunk(LogKey(1, 0), 2)): snapshot_and_collect})
    assert records(taken_over(slow, 2, 0, [0, 1])) == {0: ["A"], 1: ["B"]}


def test_a_store_that_deletes_nothing_stops_nobody(store: BlobStore) -> None:
    class Keeping(Failing):
        def delete(self, name: str) -> None:
            raise Unavailable("no deletes today")

    keeping = Keeping(store)
    log = settled_log(keeping)
    log.snapshot(snapshot(s0=["A"], s1=["B"]))
    keeping.delete = Keeping.delete.__get__(keeping)
    log.collect()
    log.append(change(0, "c"))

    assert records(taken_over(store, 2, 0, [0, 1])) == {0: ["A", "c"], 1: ["B"]}


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seq", [0, 1, 2, 3])
def test_damage_anywhere_in_a_log_is_an_error_and_never_dropped(tmp_path: Path, seq: int) -> None:
    store = Folder(tmp_path)
    settled_log(store).append(change(0, "c"))
    path = tmp_path / PLACE.chunk(LogKey(1, 0), seq)
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(StateError, match=f"{seq:08d}.*job 'job', task 'task'.*is damaged"):
        taken_over(store, 2, 0, [0, 1])


@pytest.mark.parametrize("begins", [False, True], ids=["read", "taken over"])
@pytest.mark.parametrize("seq", [0, 1, 2, 3])
def test_a_chunk_that_somebody_deleted_is_named(store: BlobStore, seq: int, begins: bool) -> None:
    settled_log(store).append(change(0, "c"))
    gone = PLACE.chunk(LogKey(1, 0), seq)
    store.delete(gone)

    read = partial(taken_over, store, 2, 0) if begins else partial(look, store, "job", "task")
    with pytest.raises(StateError, match=f"job 'job', task 'task': {gone} is gone; restore it"):
        read([0, 1])


def test_chunks_that_somebody_deleted_at_the_end_are_named_also_after_a_snapshot(
    store: BlobStore,
) -> None:
    log = settled_log(store)
    log.snapshot(snapshot(s0=["A"], s1=["B"]))
    log.collect()
    log.append(change(0, "c"))
    log.append(change(0, "d"))
    for seq in (4, 5):
        store.delete(PLACE.chunk(LogKey(1, 0), seq))

    for version in (2, 3):
        with pytest.raises(StateError, match=r"00000004 is gone; restore it"):
            taken_over(store, version, 0, [0, 1])


def test_the_mark_of_a_snapshot_that_somebody_deleted_is_named(store: BlobStore) -> None:
    log = settled_log(store)
    log.snapshot(snapshot(s0=["A"], s1=["B"]))
    log.collect()
    log.append(change(0, "c"))
    store.delete(PLACE.mark(LogKey(1, 0), 3))

    with pytest.raises(StateError, match=r"00000003\.whole is gone; restore it"):
        taken_over(store, 2, 0, [0, 1])


def test_the_note_how_far_a_log_has_come_is_named_if_somebody_deleted_it(store: BlobStore) -> None:
    settled_log(store)
    store.delete(PLACE.end(LogKey(1, 0)))

    with pytest.raises(StateError, match=r"00001-00000\.end is gone; restore it"):
        taken_over(store, 2, 0, [0, 1])


def test_a_chunk_that_is_gone_before_a_peer_tries_again_in_its_version_is_named(
    store: BlobStore,
) -> None:
    settled_log(store)
    store.delete(PLACE.chunk(LogKey(1, 0), 2))

    with pytest.raises(StateError, match=r"00000002 is gone; restore it"):
        taken_over(store, 1, 0, [0, 1])


def test_a_log_that_somebody_deleted_is_named(store: BlobStore) -> None:
    settled_log(store)
    log = taken_over(store, 2, 0, [0, 1]).log
    log.append(change(0, "c"))
    for each in store.list(PLACE.prefix):
        if "2-00000/" in each.name:
            store.delete(each.name)

    with pytest.raises(StateError, match=r"00002-00000/00000000 is gone; restore it"):
        taken_over(store, 3, 0, [0, 1])


@pytest.mark.parametrize("gone", ["", "2-"], ids=["of all versions", "of the last version"])
def test_logs_that_a_version_had_in_which_the_job_was_ready_are_not_begun_anew(
    store: BlobStore, gone: str
) -> None:
    settled_log(store)
    taken_over(store, 2, 0, [0, 1]).log.append(change(0, "c"))
    for each in store.list(PLACE.prefix):
        if gone in each.name:
            store.delete(each.name)

    for version in (2, 3):
        with pytest.raises(
            StateError, match=r"shards \[0, 1\] are gone, which allocation version 2"
        ):
            taken_over(store, version, 0, [0, 1], ready=2)
    assert records(taken_over(store, 3, 0, [], ready=2)) == {}


def test_logs_of_versions_that_were_never_ready_need_not_be_there(store: BlobStore) -> None:
    settled_log(store)
    taken_over(store, 2, 0, [0])

    assert records(taken_over(store, 3, 0, [0, 1], ready=1)) == {0: ["a"], 1: ["b"]}


def test_a_log_that_was_collected_leaves_no_note(store: BlobStore) -> None:
    settled_log(store)
    log = taken_over(store, 2, 0, [0, 1]).log
    log.snapshot(snapshot(s0=["A"], s1=["B"]))
    log.collect()

    assert store.read(PLACE.end(LogKey(1, 0))) is None
    assert records(taken_over(store, 3, 0, [0, 1], ready=2)) == {0: ["A"], 1: ["B"]}


def test_names_that_are_not_ours_are_left_alone(store: BlobStore) -> None:
    settled_log(store)
    store.create("job/task/README.txt", b"-")
    store.create(f"{PLACE.chunk(LogKey(1, 0), 1)}.bak", b"-")

    assert records(taken_over(store, 2, 0, [0, 1])) == {0: ["a"], 1: ["b"]}


# --- a look that changes nothing ------------------------------------------------------------------


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_look_finds_what_a_recovery_would_and_ends_no_log(
    store: BlobStore, snapshots: bool
) -> None:
    for version, peers in ((1, 2), (3, 1), (4, 2)):
        logs = {
            rank: taken_over(store, version, rank, range(rank, 4, peers)).log
            for rank in range(peers)
        }
        for rank, log in logs.items():
            for shard in range(rank, 4, peers):
                log.append(change(shard, version))
    if snapshots:
        logs[0].snapshot(snapshot(s0=["all"], s2=["all"]))
    before = names(store)

    found = look(store, "job", "task", range(4))

    assert names(store) == before
    kept = {n: notes_of(state) for n, state in found.shards.items()}
    logs[1].append(change(1, "later"))
    assert kept[1] == [1, 3, 4]
    assert kept == {0: ["all"] if snapshots else [1, 3, 4], 1: [1, 3, 4], 2: kept[0], 3: kept[1]}
    taken_over(store, 5, 0, range(4))
    assert notes_of(look(store, "job", "task", [1]).shards[1]) == [1, 3, 4, "later"]


def test_a_look_at_a_task_that_has_never_begun_finds_nothing(store: BlobStore) -> None:
    assert notes_of(look(store, "job", "task", [0]).shards[0]) == []
    assert names(store) == []
