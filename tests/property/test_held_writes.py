"""Drivers that hold and commit the same batch, at once, with lost answers and deaths.

Whatever they do: of one batch the rows of one driver are taken, all of them, each once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.jobs.turns import Actor, TurnStore

from onyx.errors import StateError, Unavailable
from onyx.journal.held_requests import KEPT_BATCHES, HeldBatch, HeldName, NotHeld
from onyx.requests.request import BatchOfWrite, Form, Payload, WriterOfBatch
from onyx.storage.interface import MemoryBlobStore

BATCH = BatchOfWrite("w", 7)
T = TypeVar("T")


class Driver:
    """Holds its rows and commits the batch; the job may be upgraded meanwhile."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.done = False

    def live(self, actor: Actor) -> None:
        store = TurnStore(actor, self.world.store)
        writers = [WriterOfBatch(f"{self.name}a", 2), WriterOfBatch(f"{self.name}b", 1)]
        for writer in writers:
            for number in range(writer.requests):
                name = HeldName(writer.name, number)
                payload = Payload(Form.MSGPACK, f"{name}".encode())
                assert repeated(lambda n=name, p=payload: self.batch(store).hold(n, p))
        batch = self.batch(store)
        decision = repeated(lambda: batch.commit(writers, 0))
        for names in repeated(lambda: batch.left(decision)):
            for name in names:
                found = repeated(lambda n=name: batch.read(n))
                if found is not None:
                    self.world.journal.add(name)  # under an id, so once
        repeated(batch.sweep)
        self.done = True

    def batch(self, store: TurnStore) -> HeldBatch:
        return HeldBatch(store, list(self.world.jobs), "in", BATCH)


class World:
    def __init__(self) -> None:
        self.store = MemoryBlobStore()
        self.jobs = ["job"]
        self.journal: set[HeldName] = set()
        self.drivers: list[tuple[Driver, Actor]] = []

    def begin(self) -> None:
        driver = Driver(self, f"d{len(self.drivers)}")
        self.drivers.append((driver, Actor(driver.live)))


def repeated(call: Callable[[], T]) -> T:
    while True:
        try:
            return call()
        except Unavailable:
            continue


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(
    ["", "", "", "", "", "", "before", "after", "kill", "begin"]
)), max_size=150))  # fmt: skip
@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
def test_of_a_batch_the_rows_of_one_driver_are_taken_each_once(
    steps: list[tuple[int, str]],
) -> None:
    world = World()
    world.begin()
    world.begin()
    for number, what in steps:
        live = [each for each in world.drivers if not each[1].done]
        if what == "begin" and len(world.drivers) < 4:
            world.begin()
        if not live:
            continue
        _, actor = live[number % len(live)]
        if what == "kill":
            actor.kill()
            continue
        actor.fault = what if what in ("before", "after") else ""
        actor.turn()
    world.begin()  # the last one is left alone
    for _, actor in world.drivers:
        while not actor.done:
            actor.turn()
        assert actor.error is None, actor.error
    assert world.drivers[-1][0].done
    by_driver = Counter(name.writer[:-1] for name in world.journal)
    assert list(by_driver.values()) == [3]
    kept = [each.name for each in world.store.list("")]
    assert [each.rsplit("/", 1)[1] for each in kept] == ["committed", "taken"]


def committed(
    store: MemoryBlobStore, jobs: list[str], batch: int, name: str
) -> list[list[HeldName]]:
    held = HeldBatch(store, jobs, "in", BatchOfWrite("w", batch))
    held.hold(HeldName(name, 0), Payload(Form.JSON_LINES, b"{}"))
    left = held.left(held.commit([WriterOfBatch(name, 1)], 0))
    held.sweep()
    return left


def test_what_was_committed_before_an_upgrade_is_committed() -> None:
    store = MemoryBlobStore()
    old = HeldBatch(store, ["old"], "in", BATCH)
    old.hold(HeldName("a", 0), Payload(Form.JSON_LINES, b"{}"))
    old.commit([WriterOfBatch("a", 1)], 0)
    assert committed(store, ["new", "old"], BATCH.batch, "b") == [[HeldName("a", 0)]]


@pytest.mark.parametrize("jobs", [["job"], ["new", "job"]])
def test_a_request_of_a_committed_batch_that_is_gone_is_missed_unless_it_is_taken(
    jobs: list[str],
) -> None:
    store, name = MemoryBlobStore(), HeldName("a", 1)
    held = HeldBatch(store, ["job"], "in", BATCH)
    for number in range(2):
        held.hold(HeldName("a", number), Payload(Form.JSON_LINES, b"{}"))
    held.commit([WriterOfBatch("a", 2)], 0)
    (gone,) = (each.name for each in store.list("") if each.name.endswith("/0000000001"))
    store.delete(gone)
    held = HeldBatch(store, jobs, "in", BATCH)
    assert held.left(held.commit([], 0)) == [[HeldName("a", 0), name]]
    with pytest.raises(StateError, match=r"0000000001 is gone, which is request 1 of a in batch"):
        held.read(name)
    held.sweep()
    assert (held.left(held.commit([], 0)), held.read(name)) == ([], None)


def test_a_batch_of_long_ago_is_refused_and_not_taken_again() -> None:
    store = MemoryBlobStore()
    assert committed(store, ["job"], 3, "a")
    assert committed(store, ["job"], 3 + KEPT_BATCHES, "b")
    held = HeldBatch(store, ["job"], "in", BatchOfWrite("w", 3))
    held.hold(HeldName("c", 0), Payload(Form.JSON_LINES, b"{}"))
    with pytest.raises(NotHeld, match="committed too late"):
        held.commit([WriterOfBatch("c", 1)], 0)
