"""A client that holds requests back for writes which it never commits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onyx.journal.held_requests import (
    AGAIN_S,
    GIVEN_UP_S,
    HELD_REQUEST_BYTES,
    HeldBatch,
    HeldName,
    HeldRoom,
    NotHeld,
)
from onyx.requests.request import BatchOfWrite, Form, Payload, WriterOfBatch
from onyx.storage.interface import MemoryBlobStore

PAYLOAD = Payload(Form.JSON_LINES, b"{}" * 500)
SIZE = len(PAYLOAD.data)
BOUND = 64 * (SIZE + HELD_REQUEST_BYTES)


class Worker:
    """A process that holds requests in the store of all."""

    def __init__(self, store: MemoryBlobStore, jobs: Sequence[str] = ("job",)) -> None:
        self.now_s = 0.0
        self.store = store
        self.jobs = jobs
        self.room = HeldRoom(store, self.jobs, "in", lambda: self.now_s)

    def batch(self, number: int = 0, write: str = "w") -> HeldBatch:
        return HeldBatch(self.store, self.jobs, "in", BatchOfWrite(write, number))

    def hold(self, writer: str, number: int, batch: HeldBatch | None = None) -> str:
        why = self.room.take(SIZE, BOUND)
        if not why:
            assert (batch or self.batch()).hold(HeldName(writer, number), PAYLOAD)
        return why


def held(store: MemoryBlobStore) -> int:
    return sum(size for name, size in store.list("") if name[-10:].isdigit())


@pytest.mark.parametrize("workers", [1, 3])
def test_what_all_writes_of_an_input_hold_together_has_a_bound(workers: int) -> None:
    store = MemoryBlobStore()
    them = [Worker(store) for _ in range(workers)]

    said = [them[n % workers].hold(f"w{n}", 0, them[0].batch(n, f"write{n}")) for n in range(500)]

    assert "journalBytesMax" in said[-1]
    assert held(store) < BOUND * (1 + workers / 16)


def test_there_is_room_again_once_a_batch_is_committed() -> None:
    worker = Worker(MemoryBlobStore())
    taken = 0
    while not worker.hold("a", taken):
        taken += 1
    batch = worker.batch()
    batch.commit([WriterOfBatch("a", taken)], 0)
    batch.sweep()

    worker.now_s += AGAIN_S

    assert not worker.hold("b", 0, worker.batch(1))


def test_what_nobody_commits_goes_after_a_day_and_what_is_written_meanwhile_stays() -> None:
    worker = Worker(MemoryBlobStore())
    worker.hold("gone", 0)
    worker.hold("busy", 0)
    for number in range(1, 49):
        worker.now_s += GIVEN_UP_S / 40
        worker.hold("busy", number)

    names = [name for name, _ in worker.store.list("")]
    with pytest.raises(NotHeld):
        worker.batch().commit([WriterOfBatch("gone", 1)], 0)

    assert not [name for name in names if "/gone/0" in name]
    assert worker.batch().commit([WriterOfBatch("busy", 49)], 0).writers == (
        WriterOfBatch("busy", 49),
    )


@pytest.mark.parametrize("upgraded", [False, True])
def test_what_is_committed_stays_until_the_journal_has_it(upgraded: bool) -> None:
    store = MemoryBlobStore()
    before = Worker(store, ["old"])
    before.hold("a", 0)
    worker = Worker(store, ["new", "old"]) if upgraded else before
    batch = worker.batch()
    decision = batch.commit([WriterOfBatch("a", 1)], 0)

    worker.hold("b", 0, worker.batch(1))
    for number in range(2):  # seen by the first, given up by the second
        worker.now_s += 2 * GIVEN_UP_S
        worker.hold(f"c{number}", 0, worker.batch(1))

    assert batch.left(decision) == [[HeldName("a", 0)]]
    assert batch.read(HeldName("a", 0)) == PAYLOAD
    with pytest.raises(NotHeld):
        worker.batch(1).commit([WriterOfBatch("b", 1)], 0)
