"""A job that drains ends behind all that was taken, also what the journal could not have yet."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.support.clocks import ManualClock

from onyx.errors import Unavailable
from onyx.journal.journal import Journal
from onyx.journal.logs import PartitionFolder
from onyx.plugins.journalled import partition as module
from onyx.plugins.journalled.partition import JournalledPartition
from onyx.plugins.requests.request_queue import RequestQueue
from onyx.requests.request import Level, Request, Status
from onyx.storage.interface import MemoryBlobStore

PATIENCE_S = 60.0


class Store(MemoryBlobStore):
    """It can be away, and says when it was asked meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.asked = threading.Event()

    def create(self, name: str, data: bytes) -> bool:
        if self.away:
            self.asked.set()
            raise Unavailable("the store is away")
        return super().create(name, data)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def woken() -> threading.Semaphore:
    """Released whenever the task is to look again."""
    return threading.Semaphore(0)


@pytest.fixture
def partition(
    monkeypatch: pytest.MonkeyPatch, store: Store, woken: threading.Semaphore
) -> Iterator[JournalledPartition]:
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    journal = Journal(store, PartitionFolder("job", "in", 0), 1, "one")
    found = JournalledPartition(journal, RequestQueue(ManualClock()), woken.release, 2**30, "in-0")
    yield found
    found.close()


def test_a_job_that_drains_waits_for_what_is_on_its_way_to_the_journal(
    partition: JournalledPartition, store: Store, woken: threading.Semaphore
) -> None:
    store.away = True
    mailbox = partition.feed
    assert isinstance(mailbox, RequestQueue)
    asked = mailbox.offer(Request("one", b"d", [{"n": 1}], Level.JOURNAL, 8))
    partition.start()
    assert store.asked.wait(PATIENCE_S)
    assert not partition.drain()
    store.away = False
    while not partition.drain():
        assert woken.acquire(timeout=PATIENCE_S)
    assert asked.result(PATIENCE_S).status is Status.JOURNALLED
    assert partition.end == 1
