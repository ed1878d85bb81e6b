"""Processors on the bench: what a plain loop gives, through crashes and rescaling."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench

from onyx.processors import Inbox, Processor, traverse

EVENTS = [{"n": n, "word": "abcdefgh"[n * n % 7], "time": n * 1_000} for n in range(60)]


class Totals(Processor):
    """A running count for each word, and at the end a total."""

    def init(self) -> None:
        self.counts: dict[str, int] = {}

    def process_item(self, ordinal: int, item: Any) -> bool:
        count = self.counts.get(item["word"], 0) + 1
        if not self.try_emit({"word": item["word"], "count": count}):
            return False
        self.counts[item["word"]] = count
        return True

    def complete(self) -> bool:
        self.left = getattr(self, "left", None) or traverse(
            [{"word": word, "total": count} for word, count in self.counts.items()]
        )
        return self.emit_from(self.left)

    def save_to_snapshot(self) -> bool:
        self.saving = getattr(self, "saving", None) or traverse(list(self.counts.items()))
        if not self.save_from(self.saving):
            return False
        self.saving = None
        return True

    def restore_from_snapshot(self, inbox: Inbox[tuple[str, int]]) -> None:
        for word, count in inbox.drain():
            assert word not in self.counts, "words are keys of groups"
            self.counts[word] = count


def expected() -> list[dict[str, Any]]:
    """By a plain loop."""
    counts: Counter[str] = Counter()
    made = []
    for segment in EVENTS:
        counts[segment["word"]] += 1
        made.append({"word": segment["word"], "count": counts[segment["word"]]})
    return made + [{"word": word, "total": count} for word, count in counts.items()]


def by_content(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in rows)


EXPECTED = by_content(expected())


def spec(guarantee: str = "exactly-once", **more: Any) -> dict[str, Any]:
    read = {"options": {"segments": EVENTS, "partitions": 1}, **more.pop("read", {})}
    task = {"processor": "m:totals", "groupByKey": "word", "fluxPolicy": "continue"}
    task = more.pop("task", task)
    return {
        "guarantee": guarantee,
        "workflow": [["read", "totals"], ["totals", "write"], *more.pop("edges", [])],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 5,
             "watermarkKey": "time", **read},
            {"name": "totals", "type": "function", "batchSize": 5, **task},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5},
            *more.pop("tasks", []),
        ],
        **more,
    }  # fmt: skip


def bench_of(make: Callable[..., Any] = Totals, peers: int = 2, **more: Any) -> Bench:
    functions = {"m:totals": make, **more.pop("functions", {})}
    return Bench(spec(**more), functions, peers={"totals": peers})


def written(bench: Bench) -> Counter[str]:
    """What was written, a repeat of the same tree once."""
    return by_content(bench.written("write"))


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_a_processor_gives_what_a_plain_loop_gives(guarantee: str) -> None:
    bench = bench_of(guarantee=guarantee)
    bench.settle()
    assert bench.completed
    assert written(bench) == EXPECTED


@pytest.mark.parametrize("rounds", some_of(range(0, 90, 4)))
def test_a_processor_is_exact_whenever_a_peer_dies(rounds: int) -> None:
    bench = bench_of()
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("totals", rounds % 2))
    bench.settle()
    assert bench.completed
    assert set(written(bench)) == set(EXPECTED)


@pytest.mark.parametrize("rounds", some_of(range(10, 80, 7)))
@pytest.mark.parametrize("grouped", [True, False])
def test_a_processor_is_exact_when_peers_come_and_go(rounds: int, grouped: bool) -> None:
    task = {"processor": "m:totals"}
    bench = bench_of(peers=1) if grouped else bench_of(Numbers, peers=1, task=task)
    for count in (3, 2, 1):
        for _ in range(rounds):
            bench.round()
        bench.rewire(totals=count)
    bench.settle()
    assert bench.completed
    if grouped:
        assert set(written(bench)) == set(EXPECTED)
    else:
        at_the_end = {row["processor"]: row["sum"] for row in bench.written("write")}
        assert sum(at_the_end.values()) == sum(event["n"] for event in EVENTS)


class Numbers(Processor):
    """A sum over what each processor has seen, saved under keys that several have."""

    def init(self) -> None:
        self.sum = 0

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        self.sum += sum(item["n"] for item in inbox.drain())

    def complete(self) -> bool:
        return self.try_emit({"processor": self.context.index, "sum": self.sum})

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot("sum", self.sum)

    def restore_from_snapshot(self, inbox: Inbox[tuple[str, int]]) -> None:
        self.sum += sum(value for _, value in inbox.drain())


class Heard(Processor):
    """What is called, as segments."""

    def process_item(self, ordinal: int, item: Any) -> bool:
        return self.try_emit({"from": self.context.parents[ordinal], "n": item["n"]})

    def try_process_watermark(self, watermark: int) -> bool:
        return self.try_emit({"watermark": watermark})

    def complete_edge(self, ordinal: int) -> bool:
        return self.try_emit({"ended": self.context.parents[ordinal]})

    def complete(self) -> bool:
        return self.try_emit({"complete": True})


def test_a_processor_knows_the_task_that_segments_come_from_and_event_time() -> None:
    other = {"name": "other", "type": "input", "plugin": "sequence", "batchSize": 3,
             "options": {"segments": [{"n": -n, "time": n} for n in range(7)]},
             "watermarkKey": "time"}  # fmt: skip
    bench = bench_of(
        Heard, peers=1, task={"processor": "m:totals"}, tasks=[other], edges=[["other", "totals"]]
    )
    bench.settle()
    assert bench.completed
    rows = bench.written("write")
    heard = defaultdict(list)
    for row in rows:
        if "from" in row:
            heard[row["from"]].append(row["n"])
    assert sorted(heard["read"]) == list(range(60))
    assert sorted(heard["other"]) == list(range(-6, 1))
    marks = [row["watermark"] for row in rows if "watermark" in row]
    assert marks
    assert len(set(marks)) == len(marks)
    assert sorted(row["ended"] for row in rows if "ended" in row) == ["other", "read"]
    assert sum("complete" in row for row in rows) == 1


class Columnar(Processor):
    """Rows of a batch, twice."""

    def process_item(self, ordinal: int, item: Any) -> bool:
        self.again = getattr(self, "again", None) or traverse([item, item])
        if not self.emit_from(self.again):
            return False
        self.again = None
        return True


def test_a_processor_over_columns_gets_and_offers_record_batches() -> None:
    task = {"processor": "m:totals", "batchFormat": "arrow"}
    bench = bench_of(Columnar, peers=2, task=task)
    bench.settle()
    assert bench.completed
    assert by_content(bench.written("write")) == by_content([*EVENTS, *EVENTS])
    assert set(bench.outputs["write"][0].batches) == {"columns"}


def test_hooks_get_what_a_processor_made_in_its_format() -> None:
    seen: list[Any] = []
    hooks = {"after_apply_fn": lambda event, _: seen.append(event["results"])}
    bench = bench_of(
        Columnar,
        task={"processor": "m:totals", "batchFormat": "arrow"},
        functions={"m:hooks": lambda: hooks},
        lifecycles=[{"task": "totals", "calls": "m:hooks"}],
    )
    bench.settle()
    batches = [each for each in seen if each]
    assert all(isinstance(each, pa.RecordBatch) for each in batches)
    assert sum(len(each) for each in batches) == 2 * len(EVENTS)


class Fails(Processor):
    def process_item(self, ordinal: int, item: Any) -> bool:
        raise ValueError("not this one")


def test_what_a_processor_raises_ends_the_job_and_is_blamed_on_it() -> None:
    bench = bench_of(Fails)
    for _ in range(30):
        bench.round()
    detail = bench.exceptions[0]["detail"]
    assert "process of processor m:totals raised ValueError: not this one" in detail
    assert "test_task_processors.py, line" in detail
    assert bench.exceptions[0]["phase"] == "apply-fn"


class Forgets(Processor):
    """Loses what a full outbox refuses."""

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        for item in inbox.drain():
            for _ in range(500):
                self.try_emit(item)


def test_a_processor_that_loses_what_is_refused_ends_the_job() -> None:
    bench = bench_of(Forgets)
    for _ in range(30):
        bench.round()
    assert "in the same call" in bench.exceptions[0]["detail"]


class Pages(Totals):
    """Totals one by one, with a chunk between two of them."""

    completes_in_pages = True

    def complete(self) -> bool:
        for word in sorted(self.counts):
            if self.try_emit({"word": word, "total": self.counts[word]}):
                del self.counts[word]
            return False
        return True


@pytest.mark.parametrize("rounds", range(60, 110, 3))
def test_a_processor_that_completes_in_pages_is_exact_when_peers_come_and_go(rounds: int) -> None:
    bench = bench_of(Pages)
    for _ in range(rounds):
        bench.round()
    bench.rewire(totals=1 + rounds % 3)
    bench.settle()
    assert bench.completed
    assert set(written(bench)) == set(EXPECTED)


class Changes(Totals):
    """Saves the counts that have changed only."""

    saves_changes = True

    def init(self) -> None:
        super().init()
        self.changed: set[str] = set()

    def process_item(self, ordinal: int, item: Any) -> bool:
        self.changed.add(item["word"])
        return super().process_item(ordinal, item)

    def save_to_snapshot(self) -> bool:
        while self.changed:
            word = next(iter(self.changed))
            if not self.outbox.offer_to_snapshot(word, self.counts.get(word)):
                return False
            self.changed.remove(word)
        return True


@pytest.mark.short(5)
@pytest.mark.parametrize("rounds", range(0, 90, 7))
def test_a_processor_that_saves_changes_is_exact_when_peers_die(rounds: int) -> None:
    bench = bench_of(Changes)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("totals", rounds % 2))
    for _ in range(rounds // 2):
        bench.round()
    bench.rewire(totals=3)
    bench.settle()
    assert bench.completed
    assert set(written(bench)) == set(EXPECTED)


@pytest.mark.parametrize("failing", [7, 22, 43])
def test_a_task_that_is_restarted_goes_on_with_what_was_durable(failing: int) -> None:
    broken = [True]

    class Sometimes(Totals):
        def process_item(self, ordinal: int, item: Any) -> bool:
            if broken[0] and item["n"] == failing:
                raise ValueError("not now")
            return super().process_item(ordinal, item)

    bench = bench_of(
        Sometimes,
        peers=1,
        lifecycles=[{"task": "totals", "calls": "m:calls"}],
        functions={"m:calls": lambda: {"handle_exception": lambda *_: "restart"}},
    )
    bench.settle()
    assert not bench.completed
    while not bench.restarted:
        bench.clock.advance(0.5)
        bench.round()
    broken[0] = False
    bench.crash(bench.task("totals"))
    bench.settle()
    assert bench.completed
    assert set(written(bench)) == set(EXPECTED)


def test_a_processor_that_may_block_has_a_thread_of_its_own_and_is_closed() -> None:
    closed: list[int] = []

    class Blocks(Totals):
        is_cooperative = False

        def close(self) -> None:
            closed.append(self.context.index)

    bench = bench_of(Blocks)
    bench.settle()
    for index in range(2):
        assert not bench.task("totals", index).cooperative
        bench.stop(bench.task("totals", index))
    assert sorted(closed) == [0, 1]


class Greets(Processor):
    """Made with a parameter and a table."""

    def __init__(self, word: str, users: Any) -> None:
        self.word = word
        self.users = users

    def process_item(self, ordinal: int, item: Any) -> bool:
        return self.try_emit({"said": f"{self.word} {self.users[item['n'] % 2]['name']}"})


def test_a_processor_gets_params_and_tables_as_its_arguments(tmp_path: Path) -> None:
    users = tmp_path / "users.jsonl"
    users.write_text('{"id": 0, "name": "ada"}\n{"id": 1, "name": "bob"}\n')
    table = {"name": "users", "type": "table", "plugin": "files", "key": "id",
             "options": {"path": str(users)}}  # fmt: skip
    task = {"processor": "m:totals", "params": ["word"], "options": {"word": "hi"},
            "tables": ["users"]}  # fmt: skip
    bench = bench_of(Greets, task=task, tasks=[table])
    bench.settle()
    assert bench.completed
    assert Counter(row["said"] for row in bench.written("write")) == {"hi ada": 30, "hi bob": 30}


def test_segments_that_do_not_fit_the_schema_are_dead_letters() -> None:
    segments = [{"n": n if n % 10 != 9 else "nine"} for n in range(40)]
    task = {"processor": "m:totals", "batchFormat": "arrow", "deadLetter": "failed",
            "schema": {"n": "int64", "time": "int64"}}  # fmt: skip
    failed = {"name": "failed", "type": "output", "plugin": "blackhole"}
    segments = [{"time": n, **each} for n, each in enumerate(segments)]
    read = {"options": {"segments": segments, "partitions": 1}}
    bench = bench_of(Columnar, task=task, tasks=[failed], read=read)
    bench.settle()
    assert bench.completed
    assert len(bench.written("failed")) == 4
    assert Counter(row["n"] for row in bench.written("write")) == {
        n: 2 for n in range(40) if n % 10 != 9
    }


class Halves(Processor):
    """A segment for each two, the rest at the end: no row has one of its own."""

    def init(self) -> None:
        self.held: list[int] = []

    def process_item(self, ordinal: int, item: Any) -> bool:
        pair = [*self.held, item["n"]]
        if len(pair) == 2 and not self.try_emit({"pair": pair}):
            return False
        self.held = pair if len(pair) == 1 else []
        return True

    def complete(self) -> bool:
        return not self.held or self.try_emit({"pair": self.held})

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot(f"of {self.context.index}", self.held)

    def restore_from_snapshot(self, inbox: Inbox[tuple[str, list[int]]]) -> None:
        for _, held in inbox.drain():
            self.held += held


@pytest.mark.short(5)
@pytest.mark.parametrize("rounds", range(5, 90, 6))
def test_segments_without_groups_are_processed_once_when_a_peer_dies(rounds: int) -> None:
    bench = bench_of(Halves, task={"processor": "m:totals"})
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("totals", rounds % 2))
    bench.settle()
    assert bench.completed
    pairs = {tuple(row["pair"]) for row in bench.written("write")}
    assert sorted(n for pair in pairs for n in pair) == list(range(60))
