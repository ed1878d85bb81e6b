"""Tasks answer questions about the tables that they look up."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.bench import JOB, Bench, chain

from onyx.client.states.kinds import state_named
from onyx.codec.questions import decode_extents, encode_selection
from onyx.ids import GroupId
from onyx.keystate.extents import ALL
from onyx.keystate.selection import Selection
from onyx.task.task import StateQuestion
from onyx.transport.state_queries import TABLE, StateAnswer, StateQuery

SEEN = [{"place": n % 3, "who": f"w{n}", "n": n} for n in range(9)]
ROWS = "".join(f'{{"where": {n % 3}, "name": "w{n}", "rank": {n}}}\n' for n in range(7))


def spec(path: Path, key: Any, looked_up: Any, guarantee: str, **table: Any) -> dict[str, Any]:
    path.write_text(ROWS)
    work = {"groupByKey": looked_up, "fluxPolicy": "continue"} if table else {}
    made = chain(SEEN, work={**work, "join": {"table": "ranks", "key": looked_up}})
    del made["catalog"][1]["fn"]
    options = {"path": str(path)}
    entry = {"name": "ranks", "type": "table", "plugin": "files", "key": key, "options": options}
    made["catalog"].append({**entry, **table})
    return {**made, "guarantee": guarantee}


def asked(bench: Bench, peer: int, key: Any = ALL, durable: bool = False) -> Future[StateAnswer]:
    task = bench.task("work", peer)
    assert task.version is not None
    state, selection = f"{TABLE}ranks", encode_selection(Selection(key=key))
    query = StateQuery(
        "tenancy", GroupId("g"), task.peer, JOB, task.version, state, selection, 100, durable
    )
    answer: Future[StateAnswer] = Future()
    task.post(StateQuestion(query, answer))
    bench.step(task)
    return answer


def ranks(answer: Future[StateAnswer]) -> list[int]:
    return [each.state["rank"] for each in decode_extents(answer.result(0).data)]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-most-once"])
def test_each_peer_has_all_rows_and_they_are_always_durable(tmp_path: Path, guarantee: str) -> None:
    made = spec(tmp_path / "ranks.jsonl", "name", "who", guarantee)
    bench = Bench(made, peers={"work": 2})
    bench.start()
    for peer in range(2):
        assert ranks(asked(bench, peer, durable=True)) == list(range(7))
        assert ranks(asked(bench, peer, "w3")) == [3]
        assert ranks(asked(bench, peer, "w8")) == []


@pytest.mark.parametrize(
    ("key", "looked_up"),
    [("name", "who"), (["where", "name"], ["place", "who"])],
    ids=["one key", "two keys"],
)
def test_a_partitioned_table_is_asked_where_the_group_is(
    tmp_path: Path, key: Any, looked_up: Any
) -> None:
    made = spec(tmp_path / "ranks.jsonl", key, looked_up, "exactly-once", partitioned=True)
    bench = Bench(made, peers={"work": 3})
    bench.start()
    state = state_named(bench.task("work").runtime.program.job, "ranks")
    assert sorted(n for peer in range(3) for n in ranks(asked(bench, peer))) == list(range(7))
    for n in range(7):
        row = {"where": n % 3, "name": f"w{n}"}
        group = row["name"] if key == "name" else row
        (shard,) = state.shards(group)
        assert ranks(asked(bench, shard % 3, group)) == [n]


def test_a_table_that_was_read_again_is_asked_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "ranks.jsonl"
    bench = Bench(spec(path, "name", "who", "exactly-once", refresh=[1, "minute"]))
    bench.start()
    assert ranks(asked(bench, 0, "w3")) == [3]
    path.write_text(ROWS.replace('"rank": 3', '"rank": 30'))
    assert ranks(asked(bench, 0, "w3")) == [3]
    bench.clock.advance(61)
    bench.settle()
    assert ranks(asked(bench, 0, "w3")) == [30]
