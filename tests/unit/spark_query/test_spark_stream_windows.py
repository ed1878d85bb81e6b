"""Windows over inputs without end: what they hold is committed with the micro-batch that changed
it, whoever dies and whatever Spark repeats."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.spark.functions import spread
from tests.support.spark.inputs import feed
from tests.support.spark.query import Frame
from tests.support.spark.stream import Worker, written

from onyx.model.parsing.job import parse_manifest
from onyx.spark.compiler.compile import compile_job
from onyx.spark.driver.request import QueryBatch
from onyx.spark_query.folding import share_state

INPUTS, FUNCTIONS = "tests.support.spark.inputs", "tests.support.spark.functions"
WIDTH = 10
EVENTS = {
    at: [{"key": "xyz"[n % 3], "at": 3 * n + (n % 2), "v": n} for n in range(40)] for at in "ab"
}
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.spark_query.sources.BATCH_SEGMENTS_MAX", 9)
    monkeypatch.setattr("onyx.spark_query.sources.NEWS_S", 0.0)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that remember nothing."""
    monkeypatch.setattr(share_state, "WARM_BYTES_MAX", 0)


def spec(folder: Path, window: dict[str, Any], trigger: dict[str, Any], **task: Any) -> Any:
    window = {"id": "w", "task": "fold", "windowKey": "at", **window}
    trigger = {"windowId": "w", "emit": f"{FUNCTIONS}:extent", **trigger}
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "fold"], ["fold", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": f"{INPUTS}:fed", "watermarkKey": "at",
             "allowedDisorder": [2, "milliseconds"], "options": {"feed": str(folder / "feed")}},
            {"name": "fold", "type": "reduce", "groupByKey": "key", "fluxPolicy": "continue",
             **task},
            {"name": "write", "type": "output", "plugin": "files",
             "options": {"path": "out", "format": "jsonl"}},
        ],
        "windows": [window],
        "triggers": [trigger],
    }  # fmt: skip


FIXED = {"type": "fixed", "range": [WIDTH, "milliseconds"], "aggregation": ["sum", "v"]}
WATERMARK = {"type": "watermark", "refinement": "discarding"}


def worker(folder: Path, spec: Any) -> Worker:
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "sums"}}
    job = parse_manifest(json.dumps({**head, "spec": spec}).encode())
    return Worker(job, folder, (INPUTS, FUNCTIONS))


def sums(events: dict[str, Rows] = EVENTS) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for each in (each for part in events.values() for each in part):
        found[each["key"], each["at"] // WIDTH * WIDTH] += each["v"]
    return found


def rows(folder: Path) -> list[tuple[str, int, Any]]:
    return sorted((each["group"], each["lower"], each["value"]) for each in written(folder))


def once(counts: Counter[Any]) -> list[tuple[str, int, int]]:
    return sorted((*key, value) for key, value in counts.items())


def test_extents_fire_when_the_watermark_passes_them_and_the_rest_when_the_inputs_end(
    tmp_path: Path,
) -> None:
    feed(tmp_path / "feed", EVENTS, 40, ends=True)
    found = worker(tmp_path, spec(tmp_path, FIXED, WATERMARK))
    seen: list[int] = []
    found.then = lambda batch: seen.append(len(written(tmp_path)))
    reply = found.run()
    assert reply.failure is None, reply.failure
    assert rows(tmp_path) == once(sums())
    assert len(found.batches) == 5
    assert seen[2] > 0


@pytest.mark.short(3)
@pytest.mark.parametrize("when", ["before the commit", "behind it"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_worker_may_die_at_any_batch(tmp_path: Path, when: str, number: int) -> None:
    feed(tmp_path / "feed", EVENTS, 40, ends=True)
    found = worker(tmp_path, spec(tmp_path, FIXED, WATERMARK))
    found.dies = lambda batch: when if batch.number == number else ""
    assert found.run().failure is not None
    found.dies = lambda batch: ""
    assert found.run().failure is None
    assert rows(tmp_path) == once(sums())


@pytest.mark.usefixtures("cold")
def test_state_is_read_from_the_store_where_no_process_remembers_it(tmp_path: Path) -> None:
    feed(tmp_path / "feed", EVENTS, 40, ends=True)
    assert worker(tmp_path, spec(tmp_path, FIXED, WATERMARK)).run().failure is None
    assert rows(tmp_path) == once(sums())


@pytest.mark.usefixtures("cold")
def test_large_state_is_changed_chunk_by_chunk_and_now_and_then_written_anew(
    tmp_path: Path,
) -> None:
    many = {"a": [{"key": str(n), "at": 0, "v": n} for n in range(90)]}
    many["a"] += [{"key": str(n % 4), "at": 1, "v": 1} for n in range(90)]
    feed(tmp_path / "feed", many, 180, ends=True)
    found = worker(tmp_path, spec(tmp_path, FIXED, WATERMARK))
    chains: list[int] = []
    found.then = lambda batch: chains.extend(len(each.files) for each in batch.held.states)
    assert found.run(buckets=1).failure is None
    assert rows(tmp_path) == once(sums(many))
    assert max(chains) > 2
    assert 1 in chains[chains.index(max(chains)) :]


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("chunks", ["there", "gone"])
def test_the_number_of_buckets_stays_that_of_the_first_query(tmp_path: Path, chunks: str) -> None:
    feed(tmp_path / "feed", EVENTS, 40, ends=True)
    found = worker(tmp_path, spec(tmp_path, FIXED, WATERMARK))
    found.dies = lambda batch: "behind it" if batch.number == 2 else ""
    found.run(buckets=3)
    found.dies = lambda batch: ""
    if chunks == "gone":
        for chunk in (tmp_path / "state").glob("**/buckets.spark/fold/*"):
            chunk.unlink()
    reply = found.run(buckets=20)
    if chunks == "gone":
        assert reply.failure is not None
        assert reply.failure.by_user
        assert "ONYX_STATE_URL" in reply.failure.message
        return
    assert rows(tmp_path) == once(sums())
    assert {batch.held.buckets for batch in found.batches} == {8}


def test_a_job_that_drains_fires_its_windows_for_the_last_time_and_reads_no_more(
    tmp_path: Path,
) -> None:
    feed(tmp_path / "feed", EVENTS, 40)
    found = worker(tmp_path, spec(tmp_path, FIXED, WATERMARK))
    found.dies = lambda batch: "behind it" if batch.number == 2 else ""
    found.run()
    found.dies = lambda batch: "before the commit" if batch.number == 3 else ""
    assert found.run(draining=True).failure is not None
    found.dies = lambda batch: ""
    assert found.run(draining=True).failure is None
    read = {at: part[:18] for at, part in EVENTS.items()}
    assert rows(tmp_path) == once(sums(read))
    assert found.run(draining=True).failure is None
    assert rows(tmp_path) == once(sums(read))


class Clock:
    now_ms = 1_000_000

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def thread_cpu_s(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return Clock.now_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr("onyx.spark_query.programs.SystemClock", Clock)
    monkeypatch.setattr(Clock, "now_ms", 1_000_000)
    return Clock


def test_a_timer_fires_with_the_next_micro_batch_though_nothing_came(
    tmp_path: Path, clock: type[Clock]
) -> None:
    feed(tmp_path / "feed", EVENTS, 5)
    timer = {"type": "timer", "period": [5, "seconds"], "refinement": "accumulating"}
    ever = {"type": "global", "aggregation": "count"}
    found = worker(tmp_path, spec(tmp_path, ever, timer))
    seen: list[list[Any]] = []

    def later(batch: QueryBatch) -> None:
        seen.append([each["value"] for each in written(tmp_path)])
        clock.now_ms += 5_001
        if batch.number == 2:
            feed(tmp_path / "feed", EVENTS, 8)

    found.then = later
    found.dies = lambda batch: "behind it" if batch.number == 4 else ""
    found.run()
    assert [each.number for each in found.batches] == [1, 2, 3, 4]
    assert [sum(each) for each in seen] == [0, 10, 20, 36]


def test_a_partition_that_is_idle_holds_no_extent_back(tmp_path: Path, clock: type[Clock]) -> None:
    events = {"a": EVENTS["a"], "b": []}
    feed(tmp_path / "feed", events, 36)
    made = spec(tmp_path, FIXED, WATERMARK)
    made["catalog"][0]["idleTimeout"] = 60_000
    found = worker(tmp_path, made)
    counts: list[int] = []

    def later(batch: QueryBatch) -> None:
        counts.append(len(written(tmp_path)))
        if batch.number == 4:
            clock.now_ms += 60_001
            feed(tmp_path / "feed", events, 40)

    found.then = later
    found.dies = lambda batch: "behind it" if batch.number == 5 else ""
    found.run()
    assert counts[:4] == [0] * 4
    passed = {key: n for key, n in sums(events).items() if key[1] + WIDTH - 1 <= 3 * 39 + 1 - 2}
    assert rows(tmp_path) == once(Counter(passed))


def test_windows_below_windows_hear_their_watermark_and_their_end(tmp_path: Path) -> None:
    made = spec(tmp_path, FIXED, WATERMARK)
    made["workflow"] = [["read", "fold"], ["fold", "again"], ["again", "write"]]
    made["catalog"].append({"name": "again", "type": "reduce"})
    made["windows"].append({"id": "wider", "task": "again", "type": "fixed", "windowKey": "lower",
                            "range": [4 * WIDTH, "milliseconds"],
                            "aggregation": ["sum", "value"]})  # fmt: skip
    made["triggers"].append({**made["triggers"][0], "windowId": "wider"})
    feed(tmp_path / "feed", EVENTS, 40, ends=True)
    found = worker(tmp_path, made)
    seen: list[int] = []
    found.then = lambda batch: seen.append(len(written(tmp_path)))
    assert found.run().failure is None
    expected: Counter[int] = Counter()
    for (_, lower), value in sums().items():
        expected[lower // (4 * WIDTH) * 4 * WIDTH] += value
    assert {each["lower"]: each["value"] for each in written(tmp_path)} == expected
    assert seen[-1] > 0


def test_segments_with_a_key_that_came_in_an_earlier_batch_are_left_out(tmp_path: Path) -> None:
    made = spec(tmp_path, FIXED, WATERMARK, uniquenessKey="v")
    feed(tmp_path / "feed", {"a": EVENTS["a"][:20] * 2}, 40, ends=True)
    assert worker(tmp_path, made).run().failure is None
    assert rows(tmp_path) == once(sums({"a": EVENTS["a"][:20]}))


def test_a_segment_behind_its_own_watermark_ends_the_folding_before_the_shuffle(
    tmp_path: Path,
) -> None:
    made = spec(tmp_path, FIXED, WATERMARK)
    disordered = {"a": [*EVENTS["a"][:20], {"key": "x", "at": 3, "v": 100}, *EVENTS["a"][20:]]}
    feed(tmp_path / "feed", disordered, 41, ends=True)
    found = worker(tmp_path, made)
    assert compile_job(found.job).exchanges[0].combined
    assert found.run().failure is None
    assert sum(value for *_, value in rows(tmp_path)) == sum(sums(disordered).values())
    assert [value for *key, value in rows(tmp_path) if key == ["x", 0]] == [0, 100]


def test_windows_that_drop_what_is_late_are_folded_behind_the_shuffle(tmp_path: Path) -> None:
    made = spec(tmp_path, {**FIXED, "allowedLateness": [5, "milliseconds"]}, WATERMARK)
    late = {"a": [*EVENTS["a"][:20], {"key": "x", "at": 3, "v": 100}, *EVENTS["a"][20:]]}
    feed(tmp_path / "feed", late, 41, ends=True)
    found = worker(tmp_path, made)
    (window,) = compile_job(found.job).exchanges[0].windows
    assert window.reason == "a micro-batch has to know what is late"
    assert found.run().failure is None
    assert rows(tmp_path) == once(sums({"a": EVENTS["a"]}))


@pytest.mark.parametrize("windows", [True, False])
def test_a_batch_in_whose_middle_an_input_was_read_again_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: bool
) -> None:
    """As when an executor is lost, some buckets have rows of the first reading and others of the
    second."""
    made = spec(tmp_path, FIXED, WATERMARK)
    if not windows:
        made["catalog"][1] |= {"type": "function", "fn": f"{FUNCTIONS}:spread"}
        made["windows"], made["triggers"] = [], []
    feed(tmp_path / "feed", EVENTS, 40, ends=True)
    found = worker(tmp_path, made)
    partitions = Frame.repartitionById

    def torn(frame: Frame, count: int, key: str) -> Frame:
        rows, again = partitions(frame, count, key), partitions(frame.anew(), count, key)
        return Frame([*rows.partitions[:1], *again.partitions[1:]])

    monkeypatch.setattr(Frame, "repartitionById", torn)
    failure = found.run().failure
    assert failure is not None
    assert not failure.by_user
    assert "rows of both readings" in failure.message
    assert found.batches == []

    torn_batches = iter([torn, torn])
    monkeypatch.setattr(
        Frame,
        "repartitionById",
        lambda frame, count, key: next(torn_batches, partitions)(frame, count, key),
    )
    assert found.run().failure is None, "the same query reads the batch anew"
    if windows:
        assert rows(tmp_path) == once(sums())
    else:
        whole = [row for part in EVENTS.values() for each in part for row in spread(each)]
        assert sorted(map(str, written(tmp_path))) == sorted(map(str, whole))
