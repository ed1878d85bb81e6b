"""Tasks whose windows have hardly a state in memory: they count the same, and leave nothing."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.bench import Bench

from onyx.settings import Settings, StateSettings

WORDS = [{"n": n, "word": f"word-{n * n % 23}", "time": n * 1_000} for n in range(80)]
EXPECTED = Counter(segment["word"] for segment in WORDS)


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    return {"word": state_event["group_key"], "from": state_event["lower_bound"], "state": state}


def same(segment: dict[str, Any]) -> dict[str, Any]:
    return segment


def spec(window: dict[str, Any], trigger: dict[str, Any]) -> dict[str, Any]:
    options = {"segments": WORDS, "partitions": 2}
    read = {"name": "read", "type": "input", "plugin": "sequence", "options": options}
    group = {"groupByKey": "word", "minPeers": 1, "fluxPolicy": "continue"}
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["count", "write"]],
        "catalog": [
            {**read, "batchSize": 5, "watermarkKey": "time"},
            {"name": "count", "type": "reduce", "fn": "m:same", "batchSize": 5, **group},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5},
        ],
        "windows": [{"id": "w", "task": "count", "aggregation": "count", **window}],
        "triggers": [{"windowId": "w", "id": "t", "emit": "m:emitted", **trigger}],
    }


GLOBAL = (
    {"type": "global"},
    {"type": "segment", "threshold": [1000, "elements"], "refinement": "accumulating"},
)
FIXED = (
    {"type": "fixed", "windowKey": "time", "range": [10, "seconds"], "aggregation": "conj"},
    {"type": "watermark", "refinement": "discarding"},
)


def bench_of(case: tuple[dict[str, Any], dict[str, Any]], folder: Path, **state: Any) -> Bench:
    """With at most three extents in memory, and a snapshot every few chunks."""
    settings = Settings(
        state=StateSettings(
            memory_extents_max=3, scratch_dir=str(folder), snapshot_bytes_min=100_000, **state
        )
    )
    functions = {"m:emitted": emitted, "m:same": same}
    return Bench(spec(*case), functions, peers={"count": 2}, settings=settings)


def counts(bench: Bench) -> Counter[str]:
    """How many segments the states that were written tell of."""
    found: Counter[str] = Counter()
    for segment in bench.written("write"):
        state = segment["state"]
        found[segment["word"]] += state if isinstance(state, int) else len(state)
    return found


@pytest.mark.short(3)
@pytest.mark.parametrize("rounds", [4, 9, 16, 30])
@pytest.mark.parametrize("case", [GLOBAL, FIXED], ids=["global", "fixed"])
def test_counts_are_exact_though_a_peer_dies(case: Any, rounds: int, tmp_path: Path) -> None:
    bench = bench_of(case, tmp_path)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("count", 1))
    bench.settle()
    assert bench.completed
    assert counts(bench) == EXPECTED


@pytest.mark.parametrize("rounds", [4, 16, 30])
def test_repeats_that_a_source_holds_are_recognized_on_disk_though_a_peer_dies(
    rounds: int, tmp_path: Path
) -> None:
    settings = Settings(
        state=StateSettings(
            memory_extents_max=3, scratch_dir=str(tmp_path), snapshot_bytes_min=100_000
        )
    )
    job = spec(*GLOBAL)
    job["catalog"][0]["options"]["segments"] = [*WORDS, *WORDS[::-1]]
    job["catalog"][1]["uniquenessKey"] = "n"
    functions = {"m:emitted": emitted, "m:same": same}
    bench = Bench(job, functions, peers={"count": 2}, settings=settings)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("count", 1))
    bench.settle()
    assert bench.completed
    assert counts(bench) == EXPECTED


def test_nothing_is_left_on_the_disk(tmp_path: Path) -> None:
    bench = bench_of(GLOBAL, tmp_path)
    bench.until(lambda: len(list(tmp_path.glob("*/db"))) == 2)
    bench.settle()
    del bench
    gc.collect()
    assert [each for each in tmp_path.iterdir() if each.is_dir()] == []


def test_a_scratch_folder_that_cannot_be_made_kills_the_job_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bench = bench_of(GLOBAL, tmp_path / "file")
    bench.settle()
    [message] = {str(report["message"]) for report in bench.exceptions}
    assert "ONYX_STATE_SCRATCH_DIR: nothing can be written to" in message
