"""A large map of one group on the bench: a plain dict, through crashes, in memory and on disk."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.jobs.bench import JOB, Bench

from onyx.codec.questions import decode_extents, encode_selection
from onyx.ids import GroupId
from onyx.keystate.entries import in_order
from onyx.keystate.selection import Inside, Selection, place_of
from onyx.operators.keyed import states
from onyx.settings import Settings, StateSettings
from onyx.state.local import spilled
from onyx.task.task import StateQuestion
from onyx.transport.state_queries import StateAnswer, StateQuery

EVENTS = [{"n": n, "host": "h", "url": f"{n * 37 % 101:03}", "time": n} for n in range(240)]


def count(segment: dict[str, Any], state: Any) -> dict[str, Any]:
    urls, n, url = state.urls, segment["n"], segment["url"]
    urls[url] = urls.get(url, 0) + 1
    if n % 5 == 0:
        urls.pop(f"{n:03}", None)
    if n == 90:
        state.urls = {key: value for key, value in urls.items() if key < "050"}
        urls = state.urls
    if n == 120:
        state.urls.clear()
    if n % 31 == 0 and not segment.get("again"):
        urls.clear()
        raise ValueError("taken back")
    return {"n": n, "urls": len(urls), "first": min(urls, default=None), "of": urls.get(url)}


def expected() -> list[dict[str, Any]]:
    """By a plain dict."""
    found, urls = [], Plain()
    for segment in EVENTS:
        before = dict(urls.urls)
        try:
            found.append(count(segment, urls))
        except ValueError:
            urls.urls = before
    return found


class Plain:
    def __init__(self) -> None:
        self.urls: dict[str, int] = {}


ROWS = expected()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled, "TOGETHER_MAX", 4)
    monkeypatch.setattr(spilled, "PAGE", 16)
    monkeypatch.setattr(states, "ENTRIES_MAX", 8)


def bench_of(on_disk: bool, folder: Path, peers: int = 2) -> Bench:
    state = StateSettings(
        chunk_segments_max=7,
        snapshot_bytes_min=500,
        memory_extents_max=10 if on_disk else 0,
        scratch_dir=str(folder),
    )
    spec = {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["count", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 6,
             "options": {"segments": EVENTS, "partitions": 1}, "watermarkKey": "time"},
            {"name": "count", "type": "function", "fn": "m:count", "groupByKey": "host",
             "fluxPolicy": "continue", "state": {"urls": "map[str, int]"},
             "deadLetter": "letters"},
            *({"name": name, "type": "output", "plugin": "blackhole"}
              for name in ("write", "letters")),
        ],
    }  # fmt: skip
    return Bench(spec, {"m:count": count}, {"count": peers}, settings=Settings(state=state))


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("rounds", [20, 60, 100, 140])
def test_a_large_map_is_exact_when_peers_die_come_and_go(
    rounds: int, on_disk: bool, tmp_path: Path
) -> None:
    bench = bench_of(on_disk, tmp_path)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("count", rounds // 20 % 2))
    for peers in (3, 1):
        for _ in range(rounds // 5):
            bench.round()
        bench.rewire(count=peers)
    bench.settle()
    assert bench.completed
    found: dict[int, Any] = {}
    for row in bench.written("write"):
        assert found.setdefault(row["n"], row) == row, "never two answers"
    assert [found[n] for n in sorted(found)] == ROWS


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
def test_a_large_map_is_asked_for_in_pages(
    on_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(on_disk, tmp_path, peers=1)
    bench.start()
    left: dict[str, int] = {}
    for _ in range(55):
        bench.round()
        task = bench.task("count")
        wholes = task.allocation.keeper.operator.query("count.urls")
        left = {key: value for each in wholes for key, value in in_order(each.state)}
    assert len(left) > 35
    monkeypatch.setattr(states, "PART_MAX", 10)
    asked, pages = Selection(), []
    while True:
        (part,), more = answered(bench, task, asked)
        pages.append(part.state)
        if not more:
            break
        asked = replace(asked, after=place_of(part))
    assert [len(each) for each in pages[:-1]] == [10] * (len(pages) - 1)
    assert [entry for each in pages for entry in each.items()] == sorted(left.items())
    for inside, found in (
        (Inside(("007",)), left.get("007")),
        (Inside((next(iter(left)),)), next(iter(left.values()))),
        (Inside(first="04", end="06"), {k: left[k] for k in sorted(left) if "04" <= k < "06"}),
        (Inside(first="02", items_max=2), {k: left[k] for k in [k for k in left if k >= "02"][:2]}),
    ):
        (one,), _ = answered(bench, task, Selection(key="h", inside=inside))
        assert one.state == found


def answered(bench: Bench, task: Any, asked: Selection) -> tuple[list[Any], bool]:
    wiring = task.allocation.wiring
    query = StateQuery(
        "tenancy", GroupId("g"), task.peer, JOB, wiring.version, "count.urls",
        encode_selection(asked), 100, durable=False,
    )  # fmt: skip
    answer: Future[StateAnswer] = Future()
    task.post(StateQuestion(query, answer))
    bench.step(task)
    found = answer.result(0)
    return list(decode_extents(found.data)), found.more
