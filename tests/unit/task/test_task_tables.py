"""Tasks that look up tables: they wait for them, join in both formats, and let go of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.bench import Bench, chain

from onyx.errors import Unavailable
from onyx.flow.columns import record_batch
from onyx.flow.groups.keys import shard_of
from onyx.plugin import IndexedReader
from onyx.plugins.protocol import Input
from onyx.program.phases import Phase
from onyx.settings import Settings, TaskSettings
from onyx.tables.shared import SharedTable

USERS = [{"id": n, "name": f"user {n}", "city": "Bern" if n % 2 else "Rom"} for n in range(5)]
SEEN = [{"user": n % 7, "n": n} for n in range(14)]
TABLE = {"name": "users", "type": "table", "plugin": "files", "key": "id"}
Segments = list[dict[str, Any]]


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.jsonl"
    write(path, USERS)
    return path


def write(path: Path, rows: Segments) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def spec(
    users: Path,
    join: Mapping[str, Any] | None = None,
    segments: Sequence[Any] = SEEN,
    table: Mapping[str, Any] = TABLE,
    **work: Any,
) -> dict[str, Any]:
    """read -> work -> write, where work looks up users."""
    made = chain(segments, work=work)
    (entry,) = (each for each in made["catalog"] if each["name"] == "work")
    if join is not None:
        entry["join"] = {"table": "users", "key": "user", **join}
    if "fn" not in work:
        del entry["fn"]
    options = {"path": str(users), **table.get("options", {})}
    made["catalog"].append({**table, "options": options})
    return made


def shared(bench: Bench) -> SharedTable:
    """The table that all peers of the task have."""
    tables = [task.runtime.tables for task in bench.tasks.values() if task.name == "work"]
    (only,) = {id(each.by_name["users"]): each.by_name["users"] for each in tables}.values()
    return only


def run(bench: Bench) -> Segments:
    bench.settle()
    table = shared(bench)
    for task in bench.tasks.values():
        bench.stop(task)
    assert bench.exceptions == []
    assert bench.completed
    assert table.users == 0, "all have left"
    return sorted(bench.written("write"), key=lambda each: each["n"])


def plain(segments: Segments, **default: Any) -> Segments:
    """The join as a loop."""
    by_id = {row["id"]: {"name": row["name"], "city": row["city"]} for row in USERS}
    none = {"name": None, "city": None, **default}
    return [{**each, **by_id.get(each["user"], none)} for each in segments]


FORMS = [{}, {"batchFormat": "arrow"}]


@pytest.mark.parametrize("form", FORMS, ids=["dicts", "columns"])
def test_segments_get_the_row_of_their_key(users, form):
    assert run(Bench(spec(users, {}, **form))) == plain(SEEN)
    default = {"name": "nobody"}
    assert run(Bench(spec(users, {"default": default}, **form))) == plain(SEEN, **default)
    inner = run(Bench(spec(users, {"how": "inner", "columns": []}, **form)))
    assert inner == [each for each in SEEN if each["user"] < 5]
    under = run(Bench(spec(users, {"columns": ["name"], "as": "who"}, **form)))
    assert [each["who"] for each in under] == [
        {"name": each["name"]} if each["name"] else None for each in plain(SEEN)
    ]


def shout(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("loud", pa.array([str(each).upper() for each in batch["name"]]))


def test_a_function_gets_what_the_join_makes(users):
    made = spec(users, {}, fn="m:loud")
    found = run(Bench(made, {"m:loud": lambda each: {**each, "loud": str(each["name"]).upper()}}))
    columns = run(Bench(spec(users, {}, fn="m:loud", batchFormat="arrow"), {"m:loud": shout}))
    assert found == columns
    assert found[3]["loud"] == "USER 3"


def test_columns_stay_columns(users, tmp_path, monkeypatch):
    def forbidden(_: Any) -> Any:
        raise AssertionError("a dict is made on a path of columns")

    monkeypatch.setattr(record_batch.to_dicts, "__code__", forbidden.__code__)
    made = spec(users, {}, batchFormat="arrow")
    write(tmp_path / "seen.jsonl", SEEN)
    made["catalog"][0] |= {"plugin": "files", "batchFormat": "arrow"}
    made["catalog"][0]["options"] = {"path": str(tmp_path / "seen.jsonl")}
    bench = Bench(made)
    assert run(bench) == plain(SEEN)
    assert {kind for kept in bench.outputs["write"] for kind in kept.batches} == {"columns"}


def test_a_function_looks_up_tables_behind_its_params(users):
    def named(sign: str, table: Any, segment: dict[str, Any]) -> dict[str, Any]:
        row = table.get(segment["user"])
        return {**segment, "name": sign if row is None else row["name"]}

    made = spec(users, tables=["users"], fn="m:named", params=["sign"], options={"sign": "?"})
    found = run(Bench(made, {"m:named": named}))
    assert [each["name"] for each in found] == [each["name"] or "?" for each in plain(SEEN)]


def test_a_function_over_columns_looks_up_a_column_of_keys(users):
    def named(table: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("name", table.rows_of(batch["user"])["name"])

    made = spec(users, tables=["users"], fn="m:named", batchFormat="arrow")
    found = run(Bench(made, {"m:named": named}))
    assert [each["name"] for each in found] == [each["name"] for each in plain(SEEN)]


@pytest.mark.parametrize("form", FORMS, ids=["dicts", "columns"])
@pytest.mark.parametrize("odd", [{"user": "3"}, {"user": 3, "city": "Ulm"}])
def test_what_cannot_be_joined_is_a_dead_letter_alone(users, form, odd):
    if form and isinstance(odd["user"], str):
        return  # text and numbers in one column fail before
    made = spec(users, {}, [*SEEN, {**odd, "n": 99}], deadLetter="bad", **form)
    made["workflow"].append(["work", "bad"])
    made["catalog"].append({"name": "bad", "type": "output", "plugin": "blackhole"})
    bench = Bench(made)
    assert run(bench) == plain(SEEN)
    (letter,) = bench.written("bad")
    assert letter["segment"]["n"] == 99
    assert letter["error"]["type"] == "JoinRefusal"
    assert "table users" in letter["error"]["message"]


def test_without_dead_letters_it_ends_the_job_and_names_the_table(users):
    bench = Bench(spec(users, {}, [{"user": "3"}]))
    bench.settle()
    (reported,) = bench.exceptions
    assert "join with table users: the key is of kind text here" in reported["detail"]
    assert "deadLetter" in reported["detail"]


def test_no_segment_is_read_before_the_table_is_there(users):
    bench = Bench(spec(users, {}))
    bench.until(lambda: bench.task("work").phase is Phase.BUILD)
    bench.slow = []
    bench.settle()
    assert bench.task("work").phase is Phase.BUILD
    assert not bench.trace["read"].count(Phase.READ_BATCH)
    bench.finish_slow()
    bench.slow = None
    assert run(bench) == plain(SEEN)


class Flaky(Input):
    """A source that cannot be reached at first."""

    tries = 0
    cooperative = True

    def __init__(self, context: Any, options: Any) -> None: ...

    def partitions(self) -> Sequence[str]:
        Flaky.tries += 1
        if Flaky.tries < 3:
            raise Unavailable("the network is down")
        return ["0"]

    def open(self, partition: str, cursor: Any) -> Any:
        return IndexedReader(cursor.position, lambda at, most: USERS[at : at + most], lambda: 5)

    def close(self) -> None: ...


def test_a_table_that_cannot_be_read_now_is_tried_again(users, monkeypatch):
    monkeypatch.setattr(Flaky, "tries", 0)
    made = spec(users, {}, table={**TABLE, "plugin": "m:Flaky"})
    bench = Bench(made)
    build = bench.build_input
    monkeypatch.setattr(
        bench, "build_input", lambda name, context: Flaky(context, {}) if ":" in name else
        build(name, context),
    )  # fmt: skip
    assert run(bench) == plain(SEEN)
    assert Flaky.tries == 3


@pytest.mark.parametrize(
    ("rows", "join", "why"),
    [
        ([{"id": 1}, {"name": "x"}], {}, "table users: row 1 has nothing in id"),
        ([{"id": 1}, {"id": None}], {}, "row 1 has nothing in id by which it could be found"),
        ([{"name": "x"}], {}, "table users: no row has 'id': they have name"),
        ([{"id": 1, "a": 2}], {"columns": ["b"]}, "table users has no column 'b': it has id, a"),
        ([{"id": 1, "a": 2}], {"default": {"a": "x"}}, "default.a is 'x', and the column has"),
        ([{"id": [1]}], {}, "cannot be keys of a join"),
        ([{"id": n, "a": "x" * 50} for n in range(99)], {}, "ONYX_TASK_TABLE_BYTES_MAX"),
    ],
)
def test_a_table_that_does_not_fit_ends_the_job_with_the_reason(users, rows, join, why):
    write(users, rows)
    bench = Bench(spec(users, join), settings=Settings(task=TaskSettings(table_bytes_max=2_000)))
    bench.settle()
    assert why in bench.exceptions[0]["detail"]


def test_an_empty_table_has_no_row_for_anybody(users):
    write(users, [])
    join = {"columns": ["name"], "default": {"name": "nobody"}}
    for form in FORMS:
        found = run(Bench(spec(users, join, **form)))
        assert found == [{**each, "name": "nobody"} for each in SEEN]


def test_a_table_is_read_again_when_it_is_time(users):
    made = {**TABLE, "refresh": [1, "minute"]}
    bench = Bench(spec(users, {"columns": ["name"]}, table=made))
    bench.start()
    write(users, [{**row, "name": "new"} for row in USERS])
    bench.clock.advance(59.0)
    table = shared(bench)
    table.tend()
    assert table.now()[1]["name"] == "user 1"
    bench.clock.advance(1.0)
    table.tend()
    table.tend()
    assert table.now()[1]["name"] == "new"
    for rows in ("no JSON", '{"id": 1}', '{"id": 1, "name": 2, "city": "Ulm"}'):
        users.write_text(rows)
        bench.clock.advance(60.0)
        table.tend()
        table.tend()
        assert table.now()[1]["name"] == "new", "it stays when it cannot be read, or does not fit"
    found = run(bench)
    assert {each["name"] for each in found} == {"new", None}


PARTITIONED = {**TABLE, "partitioned": True}
PLACES = [{"place": n % 3, "who": f"w{n}", "n": n} for n in range(9)]


@pytest.mark.parametrize("form", FORMS, ids=["dicts", "columns"])
def test_each_peer_has_the_rows_of_its_groups_also_when_there_are_other_peers(users, form):
    made = spec(users, {}, table=PARTITIONED, groupByKey="user", fluxPolicy="continue", **form)
    bench = Bench(made, peers={"work": 3})
    bench.start()
    assert ids_at(bench, 3) == parts(3)
    bench.rewire(work=2)
    bench.settle()
    assert ids_at(bench, 2) == parts(2)
    for task in bench.tasks.values():
        bench.stop(task)
    assert sorted(bench.written("write"), key=lambda each: each["n"]) == plain(SEEN)
    assert not bench.tables._tables, "all have left"


def ids_at(bench: Bench, peers: int) -> list[list[int]]:
    """Keys of the rows at each peer."""
    tables = [bench.task("work", index).runtime.tables for index in range(peers)]
    return [each.by_name["users"].now().columns["id"].to_pylist() for each in tables]


def parts(peers: int) -> list[list[int]]:
    """Keys of the rows that each peer is to have."""
    found: list[list[int]] = [[] for _ in range(peers)]
    for row in USERS:
        found[shard_of(row["id"]) % peers].append(row["id"])
    return found


@pytest.mark.parametrize("form", FORMS, ids=["dicts", "columns"])
def test_a_partitioned_table_is_found_by_several_keys_in_any_order(users, form):
    write(users, [{"where": n % 3, "name": f"w{n}", "rank": n} for n in range(5)])
    table = {**PARTITIONED, "key": ["where", "name"]}
    made = spec(
        users, {"key": ["place", "who"]}, PLACES, table, groupByKey=["who", "place"],
        fluxPolicy="continue", **form,
    )  # fmt: skip
    bench = Bench(made, peers={"work": 4})
    bench.settle()
    found = sorted(bench.written("write"), key=lambda each: each["n"])
    assert [each["rank"] for each in found] == [0, 1, 2, 3, 4, None, None, None, None]


def test_a_peer_without_rows_of_a_partitioned_table_finds_nothing(users):
    made = spec(users, {"columns": ["name"]}, table=PARTITIONED, groupByKey="user",
                fluxPolicy="continue")  # fmt: skip
    write(users, USERS[:1])
    bench = Bench(made, peers={"work": 3})
    bench.settle()
    found = [(each["user"], each["name"]) for each in bench.written("write")]
    assert set(found) == {(0, "user 0"), *((n, None) for n in range(1, 7))}


def test_rows_that_no_group_can_have_end_the_job(tmp_path):
    path = tmp_path / "users.parquet"
    pq.write_table(pa.table({"id": [float("nan")], "name": ["x"]}), path)
    made = spec(path, {}, table=PARTITIONED, groupByKey="user", fluxPolicy="continue")
    bench = Bench(made, peers={"work": 2})
    bench.settle()
    assert "table users, which is partitioned: " in bench.exceptions[0]["detail"]


def test_peers_of_one_process_have_one_table(users):
    bench = Bench(spec(users, {}, tables=["users"], fn="m:same"), {"m:same": lambda _, each: each},
                  peers={"work": 3})  # fmt: skip
    bench.start()
    assert len(bench.inputs) == 2, "the input and the table"
    assert shared(bench).users == 3
    bench.rewire(work=1)
    bench.settle()
    assert shared(bench).users == 1
    assert run(bench) == plain(SEEN)
