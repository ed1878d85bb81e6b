"""What triggers emit as rows, on the bench: once each, whoever dies and whoever takes over."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.clocks import ManualClock
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench

from onyx.keystate.pages import Emission
from onyx.settings import StateSettings
from onyx.task import upkeep
from onyx.windows import extent_firing

WORDS = [{"n": n, "word": f"w{n * n % 37}", "time": n * 1_000} for n in range(120)]
EXPECTED = Counter(segment["word"] for segment in WORDS)
FORMATS = {"columns": "arrow", "dicts": "dicts"}


@pytest.fixture(autouse=True)
def groups_fire_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extent_firing, "_ROWS_MIN", 2)


def spec(takes: str, trigger: dict[str, Any]) -> dict[str, Any]:
    group = {"groupByKey": "word", "minPeers": 1, "fluxPolicy": "continue"}
    form = {"batchSize": 7, "batchFormat": FORMATS[takes]}
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["count", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", **form,
             "options": {"segments": WORDS, "partitions": 2}},
            {"name": "count", "type": "reduce", **form, **group},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 7},
        ],
        "windows": [{"id": "words", "task": "count", "type": "global", "aggregation": "count"}],
        "triggers": [
            {"windowId": "words", "type": "watermark", "refinement": "accumulating", **trigger}
        ],
    }  # fmt: skip


def often(event: Any, window: Any, trigger: Any, state_event: Any, groups: Any) -> Any:
    return groups.filter(pc.field("state") > 3).rename_columns(["group", "a", "b", "state"])


def fails(event: Any, window: Any, trigger: Any, state_event: Any, groups: Any) -> Any:
    raise ValueError(f"{len(groups)} groups")


FUNCTIONS = {"m:often": often, "m:fails": fails}
TRIGGERS = {
    "rows": ({"emit": "rows"}, EXPECTED),
    "record batches": (
        {"emit": "m:often", "batchFormat": "arrow"},
        {word: count for word, count in EXPECTED.items() if count > 3},
    ),
}


def written(bench: Bench) -> list[tuple[str, int]]:
    return sorted((segment["group"], segment["state"]) for segment in bench.written("write"))


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("takes", FORMATS)
def test_each_group_is_emitted_once(takes: str, trigger: str) -> None:
    keys, expected = TRIGGERS[trigger]
    bench = Bench(spec(takes, keys), FUNCTIONS, peers={"count": 2})
    bench.settle()
    assert bench.completed
    assert written(bench) == sorted(expected.items())


@pytest.mark.short(3)
@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("rounds", some_of(range(0, 60, 4)))
def test_groups_are_emitted_whoever_dies(trigger: str, rounds: int) -> None:
    keys, expected = TRIGGERS[trigger]
    bench = Bench(spec("columns", keys), FUNCTIONS, peers={"count": 2})
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("count", rounds % 2))
    bench.settle()
    assert bench.completed
    assert set(written(bench)) == set(expected.items()), "a plain output may get some again"


@pytest.mark.short(3)
@pytest.mark.parametrize("rounds", range(0, 60, 9))
def test_groups_are_emitted_whoever_takes_over(rounds: int) -> None:
    bench = Bench(spec("columns", {"emit": "rows"}), FUNCTIONS, peers={"count": 1})
    for _ in range(rounds):
        bench.round()
    bench.rewire(count=3)
    for _ in range(rounds // 3):
        bench.round()
    bench.rewire(count=2)
    bench.settle()
    assert bench.completed
    assert set(written(bench)) == set(EXPECTED.items())


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("takes", FORMATS)
def test_states_with_keys_that_are_no_text_are_rows_of_pairs(takes: str, several: bool) -> None:
    """Numbers alone, which columns hold, or beside text and segments without the key."""
    keys = [1, "b", None] if several else [1, 2, 3]
    segments = [
        {"n": n, "word": f"w{n % 4}"} | ({} if keys[n % 3] is None else {"k": keys[n % 3]})
        for n in range(24)
    ]
    chosen = spec("dicts", {"emit": "rows"})
    chosen["catalog"][0]["options"] = {"segments": segments, "partitions": 1}
    chosen["catalog"][1]["batchFormat"] = FORMATS[takes] if not several else "dicts"
    chosen["windows"][0]["aggregation"] = ["collect-by-key", "k"]
    bench = Bench(chosen, FUNCTIONS, peers={"count": 2})
    bench.settle()
    assert bench.completed, bench.exceptions
    found = {
        row["group"]: {pair["key"]: [each["n"] for each in pair["value"]] for pair in row["state"]}
        for row in bench.written("write")
    }
    assert found == {
        f"w{word}": {
            keys[rest]: [n for n in range(24) if n % 4 == word and n % 3 == rest]
            for rest in range(3)
        }
        for word in range(4)
    }


def test_a_function_over_record_batches_that_raises_is_named() -> None:
    bench = Bench(
        spec("columns", {"emit": "m:fails", "batchFormat": "arrow"}), FUNCTIONS, peers={"count": 1}
    )
    bench.settle()
    assert not bench.completed
    assert "emit m:fails raised ValueError" in bench.exceptions[0]["detail"]


def test_a_table_may_be_returned() -> None:
    functions = {
        "m:often": lambda *given: pa.table(
            {"group": given[-1]["group"], "state": [1] * len(given[-1])}
        )
    }
    keys = {"emit": "m:often", "batchFormat": "arrow"}
    bench = Bench(spec("columns", keys), functions, peers={"count": 2})
    bench.settle()
    assert written(bench) == sorted((word, 1) for word in EXPECTED)


def test_groups_of_rows_count_one_by_one_towards_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    carried = []
    monkeypatch.setattr(upkeep, "carry_out", lambda _, run: carried.append(run))
    run = [Emission(0, [], firings=4)]
    keeper: Any = SimpleNamespace(
        operator=SimpleNamespace(failures=nullcontext),
        clock=ManualClock(),
        firing=None,
        settings=StateSettings(firings_page_max=6),
        emissions=SimpleNamespace(full=False),
    )
    upkeep.fire(keeper, lambda: iter([run] * 5))
    assert len(carried) == 2, "eight groups are a page, where six are enough"


@pytest.mark.parametrize("takes", FORMATS)
def test_a_state_that_is_a_dict_by_other_values_than_text_is_a_list_of_them(takes: str) -> None:
    job = spec(takes, {"emit": "rows"})
    read = job["catalog"][0]
    segments = [{"word": "a", "n": n} for n in (1, 2, 1)] + [{"word": "a"}]
    read["options"] = {"segments": segments, "partitions": 1}
    job["windows"][0]["aggregation"] = ["collect-by-key", "n"]
    bench = Bench(job, {}, {"count": 1})
    bench.settle()
    assert bench.exceptions == []
    (row,) = bench.written("write")
    lone = {"key": None, "value": [{"word": "a", "n": None} if takes == "columns" else segments[3]]}
    assert row["state"] == [
        {"key": 1, "value": [segments[0], segments[2]]},
        {"key": 2, "value": [segments[1]]},
        lone,
    ]
