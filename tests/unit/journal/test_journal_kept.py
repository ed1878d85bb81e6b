"""What a journal keeps of what is processed: for how long, and who finds it."""

from __future__ import annotations

import pytest
from tests.support.takeover.moving import Moving

from onyx.errors import StateError
from onyx.journal.depot import Depot, Gone, surplus
from onyx.journal.journal import COLLECTED_AGE_MS, Journal, read_ended
from onyx.journal.logs import Content, DepotSpan, PartitionFolder, RememberedRequest
from onyx.journal.view import JournalView
from onyx.model.retention import DAY_MS, NOTHING, Retention
from onyx.storage.interface import MemoryBlobStore

FOLDER, NEXT_JOB = PartitionFolder("job", "in", 0), PartitionFolder("job-2", "in", 0)
FOREVER = Retention(days=36_500)


@pytest.fixture(autouse=True)
def two_chunks_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.journal.journal.COLLECTED_CHUNKS_MIN", 2)


@pytest.fixture
def store() -> MemoryBlobStore:
    return MemoryBlobStore()


class Owner:
    """Appends chunks of two segments, one a second."""

    def __init__(
        self,
        store: MemoryBlobStore,
        retention: Retention = FOREVER,
        version: int = 1,
        folder: PartitionFolder = FOLDER,
    ) -> None:
        self.now_ms = 0
        self.journal = Journal(store, folder, version, "g", retention, lambda: self.now_ms)

    def append(self, chunks: int) -> Owner:
        for _ in range(chunks):
            self.now_ms += 1_000
            first = self.journal.end
            rows = [{"n": first}, {"n": first + 1}]
            self.journal.append(Content([rows], (RememberedRequest(str(first), b"", first, 2, 0),)))
        return self

    def collect(self, frontier: int) -> Owner:
        self.journal.collect(frontier, list, all_of_it=True)
        return self


def followed(store: MemoryBlobStore, folder: PartitionFolder = FOLDER, first: int = 0) -> list[int]:
    view, found, position = JournalView(store, folder), [], first
    while (block := view.read(position)) is not None:
        rows = [each["n"] for run in block.runs() for each in run]
        found += rows[position - block.first :]
        position = block.end
    return found


def kept(store: MemoryBlobStore, folder: PartitionFolder = FOLDER) -> list[tuple[int, int]]:
    return [(each.first, each.end) for each in Depot(store, folder).list()]


@pytest.mark.parametrize(
    ("days", "size_bytes", "keeps"),
    [(None, None, False), (0, None, False), (None, 0, False), (0, 5, False), (1, None, True),
     (None, 1, True), (1, 1, True)],
)  # fmt: skip
def test_nothing_is_kept_unless_it_is_asked_for(
    days: float | None, size_bytes: int | None, keeps: bool
) -> None:
    assert Retention(days, size_bytes).keeps is keeps


SPANS = {
    DepotSpan(0, 4, 1 * DAY_MS): 10,
    DepotSpan(4, 6, 2 * DAY_MS): 10,
    DepotSpan(6, 9, 3 * DAY_MS): 10,
}


@pytest.mark.parametrize(
    ("retention", "frontier", "dropped"),
    [
        (NOTHING, 9, 3),
        (NOTHING, 8, 2),
        (Retention(days=2), 9, 1),
        (Retention(days=1.5), 9, 2),
        (Retention(days=1.5), 4, 1),
        (Retention(size_bytes=1), 9, 2),
        (Retention(size_bytes=11), 9, 1),
        (Retention(days=1.5, size_bytes=100), 9, 2),
        (Retention(days=100, size_bytes=100), 9, 0),
    ],
)
def test_what_is_too_old_or_too_much_goes_unless_the_job_reads_it_again(
    retention: Retention, frontier: int, dropped: int
) -> None:
    assert surplus(SPANS, retention, 4 * DAY_MS, frontier) == list(SPANS)[:dropped]


def test_what_is_processed_is_read_in_files_and_the_rest_in_chunks(store: MemoryBlobStore) -> None:
    owner = Owner(store).append(5).collect(7)
    assert kept(store) == [(0, 6)]
    assert followed(store) == list(range(10))
    assert followed(store, first=3) == list(range(3, 10))
    assert owner.journal.read(1)[0] == 0
    owner.append(1).collect(12)
    assert kept(store) == [(0, 6), (6, 12)]
    assert followed(store) == list(range(12))


def test_little_is_put_into_a_file_when_it_is_old(store: MemoryBlobStore) -> None:
    owner = Owner(store).append(1).collect(2)
    assert kept(store) == []
    owner.now_ms += COLLECTED_AGE_MS
    assert kept(owner.collect(2) and store) == [(0, 2)]


def test_who_takes_over_reads_nothing_that_is_processed(store: MemoryBlobStore) -> None:
    Owner(store).append(4).collect(8).append(1)
    owner = Owner(store, version=2)
    assert (owner.journal.end, owner.journal.size_bytes > 0) == (10, True)
    assert [each.first for each in read_ended(store, FOLDER).index] == [8]
    owner.journal.processed(10)
    assert owner.journal.size_bytes == 0


def test_only_what_is_not_processed_counts_as_the_size_of_a_journal(store: MemoryBlobStore) -> None:
    owner = Owner(store).append(1)
    one = owner.journal.size_bytes
    owner.append(1).collect(2)
    assert kept(store) == []
    assert abs(owner.journal.size_bytes - one) < 10
    assert Owner(store, NOTHING, version=2).journal.size_bytes > one


def test_a_position_that_is_gone_is_named_with_the_first_that_is_kept(
    store: MemoryBlobStore,
) -> None:
    owner = Owner(store, Retention(days=1)).append(2).collect(4)
    owner.now_ms += 2 * DAY_MS
    owner.append(2).collect(8).journal.drop(8)
    assert kept(store) == [(4, 8)]
    with pytest.raises(Gone, match=r"position 1 .* job job, task in, is gone: it is kept from 4"):
        followed(store, first=1)
    with pytest.raises(StateError):
        owner.journal.read(1)


def test_nothing_is_dropped_that_the_job_reads_again(store: MemoryBlobStore) -> None:
    owner = Owner(store, Retention(days=1)).append(4).collect(4).collect(8)
    owner.now_ms += 2 * DAY_MS
    owner.journal.drop(4)
    assert kept(store) == [(4, 8)]


def test_times_follow_positions_whatever_the_clocks_of_owners_say(store: MemoryBlobStore) -> None:
    Owner(store).append(4).collect(8)
    late = Owner(store, version=2)
    late.now_ms = -100_000
    late.append(2)
    late.now_ms = 9_000
    late.append(1)
    view = JournalView(store, FOLDER)
    assert [view.since(each) for each in (0, 1_001, 4_000, 4_001, 10_000, 10_001)] == [
        0, 2, 6, 12, 12, 14
    ]  # fmt: skip
    assert view.bounds() == (0, 14, "job")


@pytest.mark.parametrize("begun", [False, True])
def test_a_job_that_upgrades_another_one_goes_on_in_what_that_has_kept(
    store: MemoryBlobStore, begun: bool
) -> None:
    if begun:
        Owner(store).append(5).collect(8)
    for version in (1, 2):  # the second time it is there already
        owner = Owner(store, folder=NEXT_JOB, version=version)
        owner.journal.adopt(read_ended(store, FOLDER), FOLDER, 8)
    owner.append(1)
    store.remove_tree(FOLDER.job)
    assert followed(store, NEXT_JOB) == list(range(12 if begun else 2))
    assert JournalView(store, NEXT_JOB).bounds().origin == "job"


@pytest.mark.parametrize(("position", "spans"), [(8, []), (5, [(4, 8)]), (0, [(0, 4), (4, 8)])])
def test_a_job_that_keeps_nothing_takes_over_what_it_reads_again(
    store: MemoryBlobStore, position: int, spans: list[tuple[int, int]]
) -> None:
    Owner(store).append(5).collect(4).collect(8)
    owner = Owner(store, NOTHING, folder=NEXT_JOB)
    owner.journal.adopt(read_ended(store, FOLDER), FOLDER, position)
    assert kept(store, NEXT_JOB) == spans
    assert owner.journal.read(position)[1]
    owner.journal.drop(8)
    assert kept(store, NEXT_JOB) == []


def test_a_file_at_the_end_that_is_gone_is_missed(store: MemoryBlobStore) -> None:
    Owner(store).append(2).collect(4).append(2).collect(8)
    assert kept(store) == [(0, 4), (4, 8)]
    store.delete(store.list(FOLDER.kept_prefix)[-1].name)
    with pytest.raises(Gone, match=r"position 4 .* is gone: it is kept from 8 on"):
        followed(store)


def test_a_chunk_at_the_end_that_is_gone_is_missed(store: MemoryBlobStore) -> None:
    Owner(store).append(2).collect(4).append(2)
    view = JournalView(store, FOLDER)
    view.check_whole()
    gone = FOLDER.chunk(1, 4)
    store.delete(gone)
    with pytest.raises(StateError, match=f"{gone}, or else the summary .* is gone"):
        view.check_whole()


def test_bounds_are_those_of_a_journal_that_is_collected_while_it_is_listed(
    store: MemoryBlobStore,
) -> None:
    owner = Owner(store).append(2).collect(4)
    moving = Moving(store, FOLDER.prefix, lambda: owner.append(2).collect(8), times=1)
    assert JournalView(moving, FOLDER).bounds() == (0, 8, "job")
