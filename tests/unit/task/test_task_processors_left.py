"""Processors that leave segments in their inbox: nothing is lost, doubled, or called in vain."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench

from onyx.peer.watch.stall_watch import facts_of
from onyx.processors import Inbox, Processor
from onyx.reports.stalls import Reason
from onyx.settings import Settings
from onyx.task.channels import edges
from onyx.task.diagnosis import diagnose

USERS = [{"user": n, "name": f"user {n}"} for n in range(40)]
ORDERS = [{"user": n % 40, "order": n} for n in range(100)]
JOINED = Counter((f"user {each['user']}", each["order"]) for each in ORDERS)


class HashJoin(Processor):
    """Takes no order before all users are there."""

    def init(self) -> None:
        self.names: dict[int, str] = {}
        self.complete_users = False
        self.calls = 0

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        self.calls += 1
        if self.context.parents[ordinal] == "users":
            self.names.update((each["user"], each["name"]) for each in inbox.drain())
        elif self.complete_users:
            super().process(ordinal, inbox)

    def process_item(self, ordinal: int, item: Any) -> bool:
        return self.try_emit({"name": self.names[item["user"]], "order": item["order"]})

    def complete_edge(self, ordinal: int) -> bool:
        self.complete_users |= self.context.parents[ordinal] == "users"
        return True

    def save_to_snapshot(self) -> bool:
        offer = self.outbox.offer_to_snapshot
        return all(offer(*each) for each in self.names.items()) and offer(
            f"complete {self.context.index}", self.complete_users
        )

    def restore_from_snapshot(self, inbox: Inbox[tuple[Any, Any]]) -> None:
        for key, value in inbox.drain():
            if isinstance(key, str):
                self.complete_users |= value
            else:
                self.names[key] = value


class ColumnsJoin(HashJoin):
    """The same over record batches."""

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        if self.context.parents[ordinal] == "users":
            for batch in inbox.drain():
                self.names.update((each["user"], each["name"]) for each in batch.to_pylist())
        elif self.complete_users:
            Processor.process(self, ordinal, inbox)

    def process_item(self, ordinal: int, item: Any) -> bool:
        rows = [
            {"name": self.names[each["user"]], "order": each["order"]} for each in item.to_pylist()
        ]
        return self.try_emit(pa.RecordBatch.from_pylist(rows))


def bench_of(
    make: Any = HashJoin,
    guarantee: str = "exactly-once",
    orders: list[dict[str, Any]] = ORDERS,
    users: list[dict[str, Any]] = USERS,
    peers: int = 2,
    batch_size: int = 5,
    settings: Settings | None = None,
    short_circuit: bool = True,
    **task: Any,
) -> Bench:
    spec = {
        "guarantee": guarantee,
        "workflow": [["orders", "join"], ["users", "join"], ["join", "write"]],
        "catalog": [
            {"name": "orders", "type": "input", "plugin": "sequence", "batchSize": batch_size,
             "options": {"segments": orders, "partitions": 1}},
            {"name": "users", "type": "input", "plugin": "sequence", "batchSize": 3,
             "options": {"segments": users, "partitions": 1}},
            {"name": "join", "type": "function", "processor": "m:join", "groupByKey": "user",
             "fluxPolicy": "continue", "batchSize": batch_size, **task},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
    }  # fmt: skip
    return Bench(
        spec,
        {"m:join": make},
        peers={"join": peers},
        settings=settings,
        short_circuit=short_circuit,
    )


def joined(bench: Bench) -> Counter[tuple[str, int]]:
    return Counter((each["name"], each["order"]) for each in bench.written("write"))


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_hash_join_leaves_one_side_until_the_other_is_complete(guarantee: str) -> None:
    bench = bench_of(guarantee=guarantee)
    bench.settle()
    assert bench.completed
    assert joined(bench) == JOINED


def test_a_hash_join_over_columns_leaves_record_batches() -> None:
    bench = bench_of(ColumnsJoin, batchFormat="arrow")
    bench.settle()
    assert bench.completed
    assert joined(bench) == JOINED


@pytest.mark.parametrize("rounds", some_of(range(4, 60, 4)))
@pytest.mark.parametrize("make", [HashJoin, ColumnsJoin])
def test_what_is_left_is_neither_lost_nor_doubled_when_peers_die(make: Any, rounds: int) -> None:
    more = {"batchFormat": "arrow"} if make is ColumnsJoin else {}
    bench = bench_of(make, **more)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("join", rounds % 2))
    bench.settle()
    assert bench.completed
    assert set(joined(bench)) == set(JOINED)


@pytest.mark.parametrize("rounds", some_of(range(4, 60, 7)))
def test_what_is_left_is_neither_lost_nor_doubled_when_peers_come_and_go(rounds: int) -> None:
    bench = bench_of()
    for count in (3, 1, 2):
        for _ in range(rounds):
            bench.round()
        bench.rewire(join=count)
    bench.settle()
    assert bench.completed
    assert set(joined(bench)) == set(JOINED)


def test_a_processor_that_waits_is_not_called_again_and_again() -> None:
    calls: list[int] = []

    class Noted(HashJoin):
        def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
            calls.append(ordinal)
            super().process(ordinal, inbox)

    bench = bench_of(Noted, peers=1)
    bench.settle()
    assert bench.completed
    assert len(calls) < 200


def test_an_edge_that_is_left_holds_its_sender_back_and_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(edges, "LEFT_MAX", 20)
    bench = bench_of(peers=1)
    left: list[int] = []
    held: list[int] = []
    for _ in range(2_000):
        if bench.completed:
            break
        bench.round()
        bench.clock.advance(0.01)
        allocation = getattr(bench.task("join"), "allocation", None)
        if allocation is not None:
            left.append(sum(map(len, allocation.edges.batches())))
            held.append(len(allocation.inbox.waiting_roots()))
    assert joined(bench) == JOINED
    assert 20 <= max(left) <= 30
    assert max(held) > 0


@pytest.mark.parametrize("short_circuit", [True, False])
def test_senders_that_are_held_back_take_no_room_from_others(
    monkeypatch: pytest.MonkeyPatch, short_circuit: bool
) -> None:
    monkeypatch.setattr(edges, "LEFT_MAX", 20)
    bench = bench_of(peers=1, settings=small_inboxes(), short_circuit=short_circuit)
    bench.settle()
    assert bench.completed
    assert joined(bench) == JOINED


def small_inboxes() -> Settings:
    """An inbox of fewer segments than one edge sends."""
    settings = Settings()
    return replace(settings, task=replace(settings.task, inbox_segments_max=15))


class Pairs(Processor):
    """One of each side at a time: whoever is ahead waits."""

    def init(self) -> None:
        self.first: Any = None

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        if ordinal == 0 and self.first is None:
            self.first = inbox.poll()
        elif ordinal == 1 and self.first is not None:
            order, user = self.first, inbox.peek()
            if self.try_emit({"name": user["name"], "order": order["order"]}):
                inbox.remove()
                self.first = None

    def save_to_snapshot(self) -> bool:
        return self.first is None or self.outbox.offer_to_snapshot("first", self.first)

    def restore_from_snapshot(self, inbox: Inbox[tuple[str, Any]]) -> None:
        for _, self.first in inbox.drain():
            pass


def test_a_processor_may_take_of_two_edges_in_turns() -> None:
    bench = bench_of(Pairs, orders=ORDERS[:40], peers=1)
    bench.settle()
    assert bench.completed
    assert Counter(each["name"] for each in bench.written("write")) == Counter(
        each["name"] for each in USERS
    )


@pytest.mark.parametrize("rounds", some_of(range(4, 60, 7)))
def test_a_processor_that_takes_in_turns_is_exact_when_its_peer_dies(rounds: int) -> None:
    bench = bench_of(Pairs, orders=ORDERS[:40], peers=1)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("join"))
    bench.settle()
    assert bench.completed
    assert {each["order"] for each in bench.written("write")} == set(range(40))


class Waits(Processor):
    """Takes when some time has passed, of which it hears by being called again."""

    def init(self) -> None:
        self.calls = 0

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        self.calls += 1
        if self.calls % 5 == 0:
            for item in inbox.drain():
                self.try_emit({"name": "", "order": item.get("order", -1)})


def test_a_processor_that_waits_for_time_is_called_again() -> None:
    bench = bench_of(Waits, peers=1)
    for _ in range(2_000):
        bench.round()
        bench.clock.advance(0.05)
        if bench.completed:
            break
    assert bench.completed
    assert sum(each["order"] >= 0 for each in bench.written("write")) == len(ORDERS)


class TakesNothing(Processor):
    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        """Waits for what never comes."""


def stalled(bench: Bench, rounds: int = 400) -> tuple[Reason, str] | None:
    """Why the processor does not advance, if it does not."""
    for _ in range(rounds):
        bench.round()
        bench.clock.advance(0.02)
    task = bench.task("join")
    before = task.status.batches
    for _ in range(rounds):
        bench.round()
        bench.clock.advance(0.02)
    assert task.status.batches == before
    now_s = bench.clock.monotonic_s()
    return diagnose(facts_of(task, bench.replica(), (), now_s, True, None))


def test_edges_that_are_all_left_are_named() -> None:
    found = stalled(bench_of(TakesNothing, peers=1))
    assert found == (
        Reason.INBOX,
        "processor m:join leaves 100 segments of orders and 40 segments of users in its inbox, and "
        "nothing more comes to it from another task: it waits for ever, unless process takes them "
        "or the time is what it waits for",
    )


def test_an_edge_that_waits_for_another_one_is_named() -> None:
    class Waiting(HashJoin):
        def complete_edge(self, ordinal: int) -> bool:
            return True

        def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
            if ordinal == 0 or len(self.names) < 20:
                super().process(ordinal, inbox)

    found = stalled(bench_of(Waiting, peers=1, orders=ORDERS[:7]))
    assert found is not None
    assert found[1].startswith("processor m:join leaves 7 segments of orders and 19 segments of")


def test_edges_of_one_input_that_wait_for_each_other_are_named() -> None:
    spec = {
        "guarantee": "exactly-once",
        "workflow": [["read", "orders"], ["read", "users"], ["orders", "join"], ["users", "join"],
                     ["join", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "maxPending": 20,
             "options": {"segments": ORDERS, "partitions": 1}},
            {"name": "orders", "type": "function", "fn": "m:same"},
            {"name": "users", "type": "function", "fn": "m:users"},
            {"name": "join", "type": "function", "processor": "m:join"},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
    }  # fmt: skip
    functions = {
        "m:join": HashJoin,
        "m:same": lambda segment: segment,
        "m:users": lambda segment: {**segment, "name": ""},
    }
    found = stalled(Bench(spec, functions))
    assert found == (
        Reason.INBOX,
        "processor m:join leaves 20 segments of orders in its inbox and waits for more of users, "
        "which comes from read too: what is left there keeps that from reading on, so they may "
        "wait for each other for ever (take what comes, and keep it in the state)",
    )
