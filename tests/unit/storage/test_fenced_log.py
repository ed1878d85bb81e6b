"""Logs of chunks in every store: written, ended, read back; and what tells an end from none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.log.records import notes, notes_of
from tests.support.takeover.moving import Moving
from tests.support.takeover.of_logs import Numbers, NumbersLog

from onyx.errors import Fenced, StateError, Unavailable
from onyx.journal.journal import Journal
from onyx.journal.logs import Content, PartitionFolder, RememberedRequest
from onyx.settings import StateSettings
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.names import LogKey, TaskFolder
from onyx.state.recovery import recover
from onyx.storage import fenced_log
from onyx.storage.fenced_log import Listed, LogWriter, Missing
from onyx.storage.interface import BlobStore, MemoryBlobStore
from onyx.storage.s3 import Trailing

FOLDER = Numbers(MemoryBlobStore()).folder


class OfJournal:
    """A journal as a log of numbers."""

    first = PartitionFolder("job", "in", 0).log(1)

    def __init__(self, store: BlobStore, version: int) -> None:
        self._journal = Journal(store, PartitionFolder("job", "in", 0), version, f"g{version}")
        self.numbers = [int(each.id) for each in self._journal.restored]

    def append(self, number: int) -> None:
        request = RememberedRequest(str(number), b"", self._journal.end, 1, 0)
        self._journal.append(Content([[{"n": number}]], (request,)))
        self.numbers.append(number)

    def collect(self) -> None:
        known = [
            RememberedRequest(str(each), b"", at, 1, 0) for at, each in enumerate(self.numbers)
        ]
        assert self._journal.collect(self._journal.end, lambda: known, all_of_it=True)


class OfState:
    """A state log as a log of numbers."""

    first = TaskFolder("job", "task").log(LogKey(1, 0))

    def __init__(self, store: BlobStore, version: int) -> None:
        found = recover(store, "job", "task", version, 0, [0], StateSettings())
        self._log = found.log
        self.numbers = notes_of(found.shards[0])

    def append(self, number: int) -> None:
        self._log.append(_chunk(number))
        self.numbers.append(number)

    def collect(self) -> None:
        self._log.snapshot(_chunk(*self.numbers))
        self._log.collect()


def _chunk(*numbers: int) -> Chunk:
    ids = np.array(numbers, dtype=np.uint64)
    return Chunk({0: ShardChange(notes(*numbers))}, ids, ids)


class OfLogs(NumbersLog):
    first = FOLDER.log(1)

    def __init__(self, store: Any, version: int) -> None:
        super().__init__(store, version, inclusive=True)


@pytest.mark.parametrize("times", [1, 2], ids=["before the fence", "and while it lists"])
@pytest.mark.parametrize("of", [OfLogs, OfJournal, OfState])
def test_a_fence_at_a_number_that_was_collected_is_no_end(of: Any, times: int) -> None:
    store = MemoryBlobStore()
    old = of(store, 1)
    old.append(0)
    old.collect()

    def go_on() -> None:
        old.append(len(old.numbers))
        old.append(len(old.numbers))
        old.collect()

    new = of(Moving(store, of.first, go_on, times), 2)

    assert new.numbers == old.numbers == list(range(1 + 2 * times))
    with pytest.raises(Fenced):
        old.append(9)


@pytest.mark.parametrize("of", [OfLogs, OfJournal])
def test_a_fence_that_counts_wherever_it_is_is_found_out(
    monkeypatch: pytest.MonkeyPatch, of: Any
) -> None:
    """A planted bug: what was acknowledged behind it is lost."""

    def fence(logs: Any, key: Any, log: Listed, replaced: bool = False) -> int:
        seq: int = logs.end(key, log, replaced)
        while not logs.store.create(logs.folder.chunk(key, seq), logs.fence_data(key, seq)):
            seq += 1
        return seq

    monkeypatch.setattr(fenced_log.FencedLogs, "fence", fence)
    with pytest.raises(AssertionError):
        test_a_fence_at_a_number_that_was_collected_is_no_end(of, 1)


def test_a_fence_that_counts_by_a_listing_alone_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planted bug: the listing of a folder is taken for one of a moment."""
    monkeypatch.setattr(fenced_log.FencedLogs, "reached", lambda logs, key: 0)
    with pytest.raises(AssertionError):
        test_a_fence_at_a_number_that_was_collected_is_no_end(OfJournal, 2)


# --- in every store -------------------------------------------------------------------------------


def test_what_is_written_is_read_back_as_it_was_and_in_order(blobs: BlobStore) -> None:
    logs = Numbers(blobs)
    log = NumbersLog(blobs, 1)
    for number in (7, 8, 9):
        log.append(number)

    listed = logs.list()

    assert list(listed) == [1]
    assert list(listed[1].sizes) == [0, 1, 2, 3]
    assert [logs.read(1, seq).number for seq in range(1, 4)] == [7, 8, 9]
    assert logs.find(1, 4) is None
    with pytest.raises(Missing, match=r"logs/001/0004"):
        logs.read(1, 4)


def test_the_next_owner_has_all_and_the_one_before_appends_nothing(
    blobs: BlobStore, trailing: Trailing
) -> None:
    old = NumbersLog(blobs, 1)
    old.append(1)
    old.append(2)
    old.collect()
    old.append(3)
    trailing.write()

    new = NumbersLog(blobs, 4)

    with pytest.raises(Fenced, match="version 1 is over"):
        old.append(4)
    new.append(5)
    assert new.numbers == [1, 2, 3, 5]
    new.collect()
    assert NumbersLog(blobs, 9).numbers == [1, 2, 3, 5]
    with pytest.raises(Fenced):
        NumbersLog(blobs, 7)


def test_a_log_is_ended_though_all_of_its_chunks_are_collected(blobs: BlobStore) -> None:
    old = NumbersLog(blobs, 1, inclusive=True)
    old.append(1)
    old.collect()

    assert NumbersLog(blobs, 2, inclusive=True).numbers == [1]
    with pytest.raises(Fenced):
        old.append(2)


def test_a_chunk_before_the_fence_counts(blobs: BlobStore) -> None:
    old = NumbersLog(blobs, 1)
    moving = Moving(blobs, FOLDER.log(1), lambda: old.append(1), times=1)

    assert NumbersLog(moving, 2).numbers == [1]
    with pytest.raises(Fenced):
        old.append(2)


# --- doubt ----------------------------------------------------------------------------------------


class Doubtful:
    """A store that is not heard of once."""

    def __init__(self, store: BlobStore, done: bool) -> None:
        self._store = store
        self._done = done
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, name: str, data: bytes) -> bool:
        if not self.broken:
            return self._store.create(name, data)
        self.broken = False
        if self._done:
            self._store.create(name, data)
        raise Unavailable("no answer")


@pytest.mark.parametrize("done", [False, True])
def test_what_is_in_doubt_is_written_once_and_before_anything_else(done: bool) -> None:
    store = MemoryBlobStore()
    doubtful = Doubtful(store, done)
    logs = Numbers(doubtful)
    assert logs.begin(1, logs.encode(1, 0, 0))
    writer = LogWriter(logs, 1, 0)
    doubtful.broken = True
    with pytest.raises(Unavailable):
        writer.append("a", lambda seq: logs.encode(1, seq, 10))
    assert writer.doubtful == "a"

    writer.append("b", lambda seq: logs.encode(1, seq, 11))

    assert [logs.read(1, seq).number for seq in (1, 2)] == [10, 11]
    assert (writer.doubtful, writer.last) == (None, 2)


def test_who_was_fenced_in_doubt_stays_fenced() -> None:
    store = MemoryBlobStore()
    doubtful = Doubtful(store, done=False)
    old = NumbersLog(doubtful, 1)
    doubtful.broken = True
    with pytest.raises(Unavailable):
        old.append(1)
    new = NumbersLog(store, 2)

    for number in (1, 2):
        with pytest.raises(Fenced):
            old.append(number)
    assert new.numbers == NumbersLog(store, 3).numbers == []


# --- what is gone ---------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", ["chunk", "note"])
def test_the_end_of_a_log_that_is_gone_is_named(gone: str) -> None:
    store = MemoryBlobStore()
    log = NumbersLog(store, 1)
    log.append(1)
    name = FOLDER.chunk(1, 1) if gone == "chunk" else FOLDER.end(1)
    store.delete(name)

    for version in (2, 3):
        with pytest.raises(StateError, match=f"{name} is gone"):
            NumbersLog(store, version)


def test_who_owns_nothing_waits_for_what_is_missing() -> None:
    logs = Numbers(MemoryBlobStore())

    def look(listed: Any) -> None:
        raise Missing("a chunk")

    with pytest.raises(StateError, match="a chunk is gone"):
        logs.steadily(look)
    with pytest.raises(Unavailable, match="the numbers in logs/ keeps changing: a chunk is gone"):
        logs.steadily(look, owner=False)


def test_logs_that_change_all_the_time_are_looked_at_later() -> None:
    store = MemoryBlobStore()
    logs, looks = Numbers(store), []

    def look(listed: Any) -> None:
        store.create(FOLDER.chunk(1, len(looks)), b"-")
        looks.append(listed)
        raise Missing("a chunk")

    with pytest.raises(Unavailable):
        logs.steadily(look)
    assert len(looks) == fenced_log.TRIES_MAX


def test_names_of_another_form_are_no_logs() -> None:
    store = MemoryBlobStore()
    for name in ("README", "001/0001.bak", "001/00001", "1/0001", "002/0001.mark", "003.end"):
        store.create(f"logs/{name}", b"-")

    assert Numbers(store).list() == {2: Listed(marks=[1]), 3: Listed(noted=True)}
