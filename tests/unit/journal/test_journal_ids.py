"""Requests without segments: of one that falls into parts, the home may get none."""

from __future__ import annotations

import pytest

from onyx.journal.journal import Journal, read_ended
from onyx.journal.logs import Content, PartitionFolder, RememberedRequest
from onyx.storage.interface import MemoryBlobStore

FOLDER, NEXT_JOB = PartitionFolder("job", "in", 0), PartitionFolder("job-2", "in", 0)
ONE = RememberedRequest("one", b"1", 0, 1, 0)
EMPTY = RememberedRequest("empty", b"2", 1, 0, 0)
OTHER = RememberedRequest("other", b"3", 1, 1, 0)

Appended = tuple[tuple[RememberedRequest, ...], ...]
CHUNKS = [((ONE,), (EMPTY,), (OTHER,)), ((ONE, EMPTY), (OTHER,)), ((ONE,), (EMPTY, OTHER))]


@pytest.fixture
def store() -> MemoryBlobStore:
    return MemoryBlobStore()


def journal_of(store: MemoryBlobStore, chunks: Appended) -> Journal:
    journal = Journal(store, FOLDER, 1, "one")
    for requests in chunks:
        runs = [[{"n": each.first}] for each in requests if each.count]
        journal.append(Content(runs, requests))
    return journal


@pytest.mark.parametrize("chunks", CHUNKS)
def test_one_where_collection_ends_is_known_to_the_next_owner_once(
    store: MemoryBlobStore, chunks: Appended
) -> None:
    journal = journal_of(store, chunks)
    assert journal.collect(ONE.end, lambda: [ONE, EMPTY, OTHER], all_of_it=True)

    assert Journal(store, FOLDER, 2, "two").restored == [ONE, EMPTY, OTHER]


@pytest.mark.parametrize("chunks", CHUNKS)
def test_one_where_an_upgrade_begins_is_known_to_the_new_job_once(
    store: MemoryBlobStore, chunks: Appended
) -> None:
    journal = journal_of(store, chunks)
    journal.collect(ONE.end, lambda: [ONE, EMPTY, OTHER], all_of_it=True)

    upgraded = Journal(store, NEXT_JOB, 1, "two")
    upgraded.adopt(read_ended(store, FOLDER), FOLDER, 0)

    assert upgraded.restored == [ONE, EMPTY, OTHER]
    assert Journal(store, NEXT_JOB, 2, "three").restored == [ONE, EMPTY, OTHER]


def test_ids_come_in_the_order_of_their_positions_whoever_goes_on_in_the_journal(
    store: MemoryBlobStore,
) -> None:
    journal_of(store, ((ONE,), (EMPTY,), (OTHER,)))

    upgraded = Journal(store, NEXT_JOB, 1, "two")
    upgraded.adopt(read_ended(store, FOLDER), FOLDER, 0)

    assert upgraded.restored == [ONE, EMPTY, OTHER]
    assert Journal(store, NEXT_JOB, 2, "three").restored == [ONE, EMPTY, OTHER]


def test_no_summary_is_larger_than_what_it_deletes(store: MemoryBlobStore) -> None:
    journal = journal_of(store, ((ONE,),))
    remembered = [ONE, *(RememberedRequest(f"{n}", b"", 1, 0, 0) for n in range(190))]
    assert journal.collect(1, lambda: remembered, all_of_it=True), "it knows of nothing before"
    collected = []
    for position in (1, 2, 3):
        one = RememberedRequest(f"at {position}", b"", position, 1, 0)
        journal.append(Content([[{"n": position}]], (one,)))
        remembered.append(one)
        collected.append(journal.collect(position + 1, lambda: remembered, all_of_it=True))
    assert collected == [False, False, True]
