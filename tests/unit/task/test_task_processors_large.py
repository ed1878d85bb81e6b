"""Items of which a processor makes more than memory should hold: sent while they are worked on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench

from onyx.operators.processor import calls, turns
from onyx.processors import Inbox, Processor, Traverser, traverse
from onyx.settings import Settings
from onyx.task.state import emissions

ITEMS = [{"n": n, "many": 7 if n % 4 else 150, "key": "ab"[n % 2]} for n in range(12)]
MADE = Counter((each["n"], i) for each in ITEMS for i in range(each["many"]))


@pytest.fixture(autouse=True)
def small_outboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outboxes of 8 segments; a hundred count as too many for memory."""
    monkeypatch.setattr(calls.outbox_of, "__defaults__", (8, 8))
    monkeypatch.setattr(calls.Calls.process, "__defaults__", (40, 0))


class Expands(Processor):
    """Makes many of one, and has no state."""

    left: Traverser[Any] | None = None

    def process_item(self, ordinal: int, item: Any) -> bool:
        if self.left is None:
            self.left = traverse({"n": item["n"], "i": i} for i in range(item["many"]))
        if not self.emit_from(self.left):
            return False
        self.left = None
        return True


class Counts(Expands):
    """Numbers the segments of each key: what is made follows from the state."""

    def init(self) -> None:
        self.counts: dict[str, int] = {}

    def process_item(self, ordinal: int, item: Any) -> bool:
        key = item["key"]
        if self.left is None:
            number = self.counts.get(key, 0)
            self.left = traverse(
                {"n": item["n"], "i": i, "key": key, "number": number + i}
                for i in range(item["many"])
            )
            self.counts[key] = number + item["many"]
        if not self.emit_from(self.left):
            return False
        self.left = None
        return True

    def save_to_snapshot(self) -> bool:
        assert self.left is None, "no state is saved in the middle of an item"
        return all(self.outbox.offer_to_snapshot(*each) for each in self.counts.items())

    def restore_from_snapshot(self, inbox: Inbox[Any]) -> None:
        self.counts.update(inbox.drain())


class ExpandsColumns(Processor):
    left: Traverser[Any] | None = None

    def process_item(self, ordinal: int, item: pa.RecordBatch) -> bool:
        if self.left is None:
            self.left = traverse(
                pa.RecordBatch.from_pylist(
                    [{"n": row["n"], "i": i + k} for k in range(5)][: row["many"] - i]
                )
                for row in item.to_pylist()
                for i in range(0, row["many"], 5)
            )
        if not self.emit_from(self.left):
            return False
        self.left = None
        return True


def bench_of(
    make: Any,
    guarantee: str = "exactly-once",
    peers: int = 1,
    grouped: bool = False,
    after: Bench | None = None,
    items: Sequence[dict[str, Any]] = ITEMS,
    **task: Any,
) -> Bench:
    if grouped:
        task |= {"groupByKey": "key", "fluxPolicy": "continue"}
    spec = {
        "guarantee": guarantee,
        "workflow": [["read", "make"], ["make", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 5,
             "options": {"segments": list(items), "partitions": 1}},
            {"name": "make", "type": "function", "processor": "m:make", **task},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
    }  # fmt: skip
    upgrade = {} if after is None else {"upgrade": {"from": after.id}}
    settings = Settings()
    settings = replace(settings, state=replace(settings.state, firings_page_max=30))
    return Bench(
        {**spec, **upgrade},
        {"m:make": make},
        peers={"make": peers},
        settings=settings,
        after=after,
    )


def until(bench: Bench, condition: Callable[[], bool]) -> Iterator[None]:
    """Rounds until this holds."""
    for _ in range(3_000):
        if condition():
            return
        bench.round()
        bench.clock.advance(0.01)
        yield
    raise AssertionError(bench.exceptions)


def is_inside(bench: Bench) -> bool:
    """Whether some of what is made of an item has arrived, and more will be made."""
    keeper = bench.task("make").allocation.keeper
    return bool(keeper is not None and keeper.operator.unfinished and bench.written("write"))


def made(bench: Bench) -> Counter[tuple[int, int]]:
    return Counter((each["n"], each["i"]) for each in bench.written("write"))


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "no state": (Expands, {}),
    "state": (Counts, {"grouped": True}),
    "columns": (ExpandsColumns, {"batchFormat": "arrow"}),
}


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_result_of_a_large_item_is_sent_once(kind: str, guarantee: str) -> None:
    make, more = KINDS[kind]
    bench = bench_of(make, guarantee, **more)
    bench.settle()
    assert bench.completed
    assert made(bench) == MADE


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
@pytest.mark.parametrize("kind", KINDS)
def test_results_arrive_before_the_item_is_done_with(kind: str, guarantee: str) -> None:
    make, more = KINDS[kind]
    bench = bench_of(make, guarantee, **more)
    bench.start()
    inside = 0
    for _ in until(bench, lambda: bench.completed):
        inside += is_inside(bench)
    assert inside > 0
    assert made(bench) == MADE


@pytest.mark.short(4)
@pytest.mark.parametrize("rounds", some_of(range(6, 90, 9)))
@pytest.mark.parametrize("kind", KINDS)
def test_large_items_are_exact_whenever_a_peer_dies(kind: str, rounds: int) -> None:
    make, more = KINDS[kind]
    bench = bench_of(make, peers=2, **more)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("make", rounds % 2))
    bench.settle()
    assert bench.completed
    assert set(made(bench)) == set(MADE)
    if kind == "state":
        check_numbers(bench)


@pytest.mark.parametrize("rounds", some_of(range(6, 60, 11)))
@pytest.mark.parametrize("kind", KINDS)
def test_large_items_are_exact_when_peers_come_and_go(kind: str, rounds: int) -> None:
    make, more = KINDS[kind]
    bench = bench_of(make, **more)
    for count in (3, 1, 2):
        for _ in range(rounds):
            bench.round()
        bench.rewire(make=count)
    bench.settle()
    assert bench.completed
    assert set(made(bench)) == set(MADE)
    if kind == "state":
        check_numbers(bench)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_item_is_finished_by_the_new_job_of_an_upgrade(kind: str) -> None:
    make, more = KINDS[kind]
    old = bench_of(make, **more)
    old.start()
    for _ in until(old, lambda: is_inside(old)):
        pass
    new = bench_of(make, after=old, **more)
    new.settle()
    assert new.completed
    assert {*made(old), *made(new)} == set(MADE)


def test_no_more_is_made_of_an_item_than_may_be_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(emissions, "UNSETTLED_MAX", 50)
    bench = bench_of(Counts, grouped=True)
    bench.start()
    most = 0
    for _ in until(bench, lambda: bench.completed):
        most = max(most, bench.task("make").allocation.keeper.emissions.unsettled)
    assert made(bench) == MADE
    assert 50 < most <= 50 + 40 + 2 * 8


def check_numbers(bench: Bench) -> None:
    """By key the numbers have no gap, and each belongs to one segment."""
    of_key: dict[str, dict[int, tuple[int, int]]] = {"a": {}, "b": {}}
    for each in bench.written("write"):
        found = of_key[each["key"]].setdefault(each["number"], (each["n"], each["i"]))
        assert found == (each["n"], each["i"])
    assert [sorted(each) == list(range(len(each))) for each in of_key.values()] == [True, True]


class Random(Counts):
    """Makes something else each time."""

    made = iter(range(10**6))

    def process_item(self, ordinal: int, item: Any) -> bool:
        if self.left is None:
            self.left = traverse(
                {"n": item["n"], "i": next(self.made)} for _ in range(item["many"])
            )
        if not self.emit_from(self.left):
            return False
        self.left = None
        return True


def test_what_differs_when_it_is_made_again_ends_the_job_rather_than_a_segment() -> None:
    bench = bench_of(Random, grouped=True)
    bench.start()
    for _ in until(bench, lambda: is_inside(bench)):
        pass
    bench.crash(bench.task("make"))
    for _ in range(200):
        bench.round()
        bench.clock.advance(0.01)
    assert "something else of the same items" in bench.exceptions[0]["detail"]


class Waits(Expands):
    """Waits in the middle of an item."""

    calls = 0

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        self.calls += 1
        if self.calls % 3:
            super().process(ordinal, inbox)


def test_a_processor_may_wait_in_the_middle_of_a_large_item() -> None:
    bench = bench_of(Waits)
    for _ in range(3_000):
        bench.round()
        bench.clock.advance(0.05)
        if bench.completed:
            break
    assert made(bench) == MADE


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_starts_again_that_has_not_kept_what_it_has_to_do_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, more = KINDS[kind]
    few = [{"n": n, "many": 2, "key": "ab"[n % 2]} for n in range(1, 80)]
    monkeypatch.setattr(turns.History.__init__, "__defaults__", (0,))
    bench = bench_of(make, items=[*few, ITEMS[0]], **more)
    bench.start()
    for _ in until(bench, lambda: bool(bench.written("write"))):
        pass
    bench.slow = []
    for _ in until(bench, lambda: bool(bench.restarted)):
        pass
    bench.finish_slow()
    monkeypatch.setattr(turns.History.__init__, "__defaults__", (1_000,))
    bench.crash(bench.task("make"))
    bench.settle()
    assert bench.completed
    assert not bench.exceptions
    expected = {(each["n"], i) for each in [*few, ITEMS[0]] for i in range(each["many"])}
    assert set(made(bench)) == expected
