"""Versions of a job go on in one journal, and begin again in what it has kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.ids import AllocationVersion, JobId
from onyx.journal.journal import Journal, read_ended
from onyx.journal.logs import Content, PartitionFolder, RememberedRequest
from onyx.model.retention import Retention
from onyx.plugins.journalled.partitions import JournalledPartitions
from onyx.plugins.protocol import START, Cursor, OldJournal, PluginContext
from onyx.plugins.requests.request_queue import RequestQueue
from onyx.plugins.starting import StartAt, StartFrom
from onyx.requests.request import Level, Request
from onyx.storage.interface import MemoryBlobStore

FOREVER = Retention(days=36_500)
STORED = {"journalOf": "v1"}


@pytest.fixture(autouse=True)
def two_chunks_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.journal.journal.COLLECTED_CHUNKS_MIN", 2)


@pytest.fixture
def store() -> MemoryBlobStore:
    return MemoryBlobStore()


def journal_of(store: MemoryBlobStore, job: str, clock: ManualClock | None = None) -> Journal:
    now_ms = (clock or ManualClock()).wall_ms
    return Journal(store, PartitionFolder(JobId(job), "work", 0), 1, job, FOREVER, now_ms)


def append(journal: Journal, count: int) -> None:
    for _ in range(count):
        journal.append(Content([[{"n": journal.end}]]))


def partitions(
    store: MemoryBlobStore, job: str, count: int = 1, **more: Any
) -> JournalledPartitions:
    context: PluginContext = plugin_context({}, job=job, clock=ManualClock(10.0))
    context = replace(context, durable_store=lambda: store, **more)
    found = JournalledPartitions(
        context, count, 2**30, lambda name, journal: pytest.fail("not opened"), FOREVER
    )
    found.allocate(AllocationVersion(1))
    return found


def numbers(journal: Journal, first: int) -> list[int]:
    found: list[int] = []
    while first + len(found) < journal.end:
        at, runs = journal.read(first + len(found))
        found += [each["n"] for run in runs for each in run][first + len(found) - at :]
    return found


@pytest.mark.parametrize("done", [True, False])
def test_what_a_version_took_is_carried_over_though_it_died_before_it_stored_a_cursor(
    store: MemoryBlobStore, done: bool
) -> None:
    first, second = (journal_of(store, job) for job in ("v1", "v2"))
    append(first, 3)
    if done:
        old = PartitionFolder(JobId("v1"), "work", 0)
        second.adopt(read_ended(store, old), old, 1)
        append(second, 2)
    third = partitions(store, "v3", upgrades=JobId("v2"))._journal("0", Cursor(1, STORED))
    assert numbers(third, 1) == list(range(1, 5 if done else 3))


@pytest.mark.parametrize("processed", [3, 5])
def test_a_request_waits_for_its_trees_where_homes_of_others_are_known_too(
    store: MemoryBlobStore, processed: int
) -> None:
    """The home of a request in parts may have none of its segments, in a chunk of its own."""
    old, folder = journal_of(store, "v1"), PartitionFolder(JobId("v1"), "work", 0)
    for number in range(10):
        old.append(Content((), (RememberedRequest(f"home {number}", b"d", number, 0, 0),)))
        run = [{"n": number}]
        old.append(Content([run], (RememberedRequest(f"request {number}", b"d", number, 1, 0),)))
    new = journal_of(store, "v2")
    new.adopt(read_ended(store, folder), folder, processed)

    mailbox = RequestQueue(ManualClock(), new.restored)
    mailbox.passed(processed)
    asked = [
        mailbox.offer(Request(f"request {number}", b"d", [{"n": number}], Level.ACK, 8))
        for number in range(10)
    ]
    wanted = [number < processed for number in range(10)]
    assert [each.done() for each in asked] == wanted
    mailbox.acked(np.array([8], dtype=np.uint64))
    wanted[8] = True
    assert [each.done() for each in asked] == wanted


OLD = OldJournal(JobId("v1"), (6,), (STORED,))


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("beginning", 0),
        ("end", 6),
        (StartAt(position=3), 3),
        (StartAt(position=30), 6),
        (StartAt(positions={}), 0),
        (StartAt(records_ago=5), 3),
        (StartAt(records_ago=1), 6),
        ("1970-01-01T00:00:05Z", 4),
        (StartAt(time_ago=3_500), 6),
    ],
)
def test_a_version_begins_again_where_it_says_and_leaves_nothing_out_that_was_taken(
    store: MemoryBlobStore, start: StartFrom, first: int
) -> None:
    clock = ManualClock()
    old = journal_of(store, "v1", clock)
    for _ in range(8):
        clock.advance(1.0)
        append(old, 1)
    old.collect(6, list, all_of_it=True)
    found = partitions(
        store,
        "v2",
        begins_after=lambda: OLD,
        upgrades=JobId("v1"),
    )
    cursor = found.start("0", start)
    assert cursor == Cursor(first, STORED)
    assert numbers(found._journal("0", cursor), first) == list(range(first, 8))


@pytest.mark.parametrize(("start", "old"), [(None, OLD), ("beginning", None)])
def test_without_a_place_or_an_old_job_a_journal_is_a_new_one(
    store: MemoryBlobStore, start: StartFrom | None, old: OldJournal | None
) -> None:
    append(journal_of(store, "v1"), 8)
    assert partitions(store, "v2", begins_after=lambda: old).start("0", start) == START


@pytest.mark.parametrize(
    ("start", "partition_count", "why"),
    [
        ("beginning", 2, "job v1, which has 1 partitions, not 2: take as many, or leave it out"),
        (StartAt(positions={"7": 1}), 1, "has a position for '7', which is no partition"),
        (StartAt(position=1), 1, "is gone in partition 0: job v1 keeps from 2 on"),
    ],
)
def test_a_place_that_is_not_there_is_refused_by_the_option(
    store: MemoryBlobStore, start: StartFrom, partition_count: int, why: str
) -> None:
    old = journal_of(store, "v1")
    append(old, 4)
    old.collect(2, list, all_of_it=True)
    folder = PartitionFolder(JobId("v1"), "work", 0)
    (kept,) = store.list(folder.kept_prefix)
    store.delete(kept.name)
    before = OldJournal(JobId("v1"), (4,), (STORED,))
    found = partitions(store, "v2", partition_count, begins_after=lambda: before)
    with pytest.raises(UserError, match="option 'startFrom'.*" + why):
        found.start("0", start)
