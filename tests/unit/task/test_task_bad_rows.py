"""A few bad rows among many good ones: text that is not UTF-8, moments that are none, rows that a
function over columns calls failed. Only they fail, where they are made, and nothing else waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.bench import Bench

ARROW = {"batchFormat": "arrow", "batchSize": 8}
OUTPUT = {"type": "output", "plugin": "blackhole", "batchSize": 8}
Segment = dict[str, Any]


def text(*values: bytes | None) -> pa.Array:
    """A column of text of any bytes, as Arrow lets anybody make it."""
    array = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers())


def job(read: dict[str, Any], *, dead: bool, work: dict[str, Any] | None = None) -> dict[str, Any]:
    """read -> work -> write, where read and work have dead letters if that is wanted."""
    letters = {"deadLetter": "bad"} if dead else {}
    edges = [["read", "bad"], ["work", "bad"]] if dead else []
    catalog = [
        {"name": "read", "type": "input", "plugin": "files", "batchSize": 8, **letters, **read},
        {
            "name": "work",
            "type": "function",
            "batchSize": 8,
            **letters,
            **(work or {"fn": "m:same"}),
        },
        {"name": "write", **OUTPUT},
        *([{"name": "bad", **OUTPUT}] if dead else []),
    ]
    return {"workflow": [["read", "work"], ["work", "write"], *edges], "catalog": catalog}


def run(spec: dict[str, Any], fn: Any = lambda given: given, **more: Any) -> Bench:
    return settled(
        Bench(spec, {"m:same": lambda given: given, "m:work": fn, "m:emit": emit}, **more)
    )


def settled(bench: Bench) -> Bench:
    bench.settle()
    for task in bench.tasks.values():
        bench.stop(task)
    return bench


def emit(event: Any, window: Any, trigger: Any, state_event: Any, state: int) -> Segment:
    return {"n": state}


def numbers(bench: Bench) -> list[int]:
    return sorted(segment["n"] for segment in bench.written("write"))


def letters(bench: Bench) -> dict[Any, str]:
    return {each["segment"].get("n"): each["error"]["message"] for each in bench.written("bad")}


@pytest.fixture
def numbered(tmp_path: Path) -> str:
    """Rows 0 to 19, in two batches and a half."""
    pq.write_table(pa.table({"n": range(20)}), tmp_path / "rows.parquet")
    return str(tmp_path / "rows.parquet")


# --- text that is not UTF-8 -----------------------------------------------------------------------


def latin(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Names as latin-1, of which row 5 and 17 have an umlaut."""
    names = [b"M\xfcller" if n in (5, 17) else b"Smith" for n in batch["n"].to_pylist()]
    return batch.append_column("name", text(*names))


LATIN = {"fn": "m:work", **ARROW}


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
@pytest.mark.parametrize("short_circuit", [True, False], ids=["one process", "over the wire"])
def test_a_row_of_a_function_that_is_no_text_is_a_dead_letter(numbered, short_circuit, guarantee):
    spec = job({"options": {"path": numbered}, **ARROW}, dead=True, work=LATIN)
    bench = run({**spec, "guarantee": guarantee}, latin, short_circuit=short_circuit)
    assert bench.exceptions == []
    assert bench.completed
    assert numbers(bench) == [n for n in range(20) if n not in (5, 17)]
    said = letters(bench)
    assert said.keys() == {5, 17}
    assert "key 'name' holds text that is not UTF-8" in said[5]


def test_without_dead_letters_text_that_is_none_ends_the_job_where_it_is_made(numbered):
    bench = run(job({"options": {"path": numbered}, **ARROW}, dead=False, work=LATIN), latin)
    (reported,) = bench.exceptions
    assert reported["task"] == "work"
    assert "m:work: key 'name' holds text that is not UTF-8" in reported["detail"]
    assert "deadLetter" in reported["detail"]


@pytest.mark.parametrize("batch_format", ["arrow", "dicts"])
def test_a_parquet_row_that_is_no_text_is_a_bad_record(tmp_path, batch_format):
    path = tmp_path / "rows.parquet"
    names = text(*[b"Smith"] * 11, b"M\xfcller", None)
    nested = pa.ListArray.from_arrays(pa.array([*range(13), 13], pa.int32()), names)
    pq.write_table(pa.table({"n": range(13), "name": nested}), path)
    read = {"batchFormat": batch_format, "options": {"path": str(path)}}
    work = {"fn": "m:same", "batchFormat": batch_format}
    (reported,) = run(job(read, dead=True, work=work)).exceptions
    assert (
        f"{path}: record 11 (counted from 0): key 'name' holds text that is" in reported["detail"]
    )
    read["options"]["onBadRecord"] = "segment"
    bench = run(job(read, dead=True, work=work))
    assert bench.completed
    kept = bench.written("write")
    assert sorted(each["n"] for each in kept if each.get("n") is not None) == [*range(11), 12]
    (bad,) = [each for each in kept if each.get("_error")]
    assert "UTF-8" in bad["_error"]
    assert "'n': '11'" in bad["_raw"]


# --- records that cannot be decoded --------------------------------------------------------------

LETTERED = {"onBadRecord": "deadLetter"}
BROKEN = {
    "jsonl": ('{"n":%s}', "{", "not a JSON object"),
    "csv": ("%s", "1,2", "2 fields"),
}


def records(tmp_path: Path, form: str, bad: tuple[int, ...], count: int = 20) -> str:
    """Records 0 to 19, of which some cannot be decoded."""
    good, broken, _ = BROKEN[form]
    lines = [broken if n in bad else good % n for n in range(count)]
    path = tmp_path / f"rows.{form}"
    path.write_text("".join(f"{line}\n" for line in (["n"] if form == "csv" else []) + lines))
    return str(path)


@pytest.mark.parametrize("batch_format", ["arrow", "dicts"])
@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize(
    "bad", [(), (0,), (3, 9, 19), tuple(range(20))], ids=["none", "first", "some", "all"]
)
def test_a_record_that_cannot_be_decoded_is_a_dead_letter_by_one_key(
    tmp_path, bad, form, batch_format
):
    path = records(tmp_path, form, bad)
    options = {"path": path, "recordNumber": "row", **LETTERED}
    if form == "csv":
        options["types"] = {"n": "int"}
    bench = run(job({"batchFormat": batch_format, "options": options}, dead=True))
    assert (bench.exceptions, bench.completed) == ([], True)
    assert numbers(bench) == [n for n in range(20) if n not in bad]
    found = {each["segment"]["row"]: each for each in bench.written("bad")}
    assert sorted(found) == list(bad)
    for row, letter in found.items():
        assert letter["segment"]["_raw"].strip() == BROKEN[form][1]
        assert letter["origin"] == {"input": "read", "partition": 0, "position": row}
        assert letter["error"]["type"] == "UndecodedRecord"
        assert f"'read': {path}: record {row} (counted from 0): " in letter["error"]["message"]
        assert BROKEN[form][2] in letter["error"]["message"]


def test_a_bad_record_has_no_time_and_needs_no_column_of_the_schema(tmp_path):
    path = records(tmp_path, "jsonl", (0, 7))
    schema = {"n": "int64"}
    read = {"options": {"path": path, **LETTERED}, "schema": schema, "watermarkKey": "n", **ARROW}
    bench = run(job(read, dead=True))
    assert (bench.exceptions, bench.completed) == ([], True)
    assert numbers(bench) == [n for n in range(20) if n not in (0, 7)]
    assert [each["error"]["type"] for each in bench.written("bad")] == ["UndecodedRecord"] * 2


@pytest.mark.parametrize("batch_format", ["arrow", "dicts"])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_bad_records_of_another_job_are_bad_here_in_both_formats(tmp_path, form, batch_format):
    path = tmp_path / f"rows.{form}"
    rows = [{"n": n, "_error": "x" if n == 4 else None, "_raw": "{"} for n in range(9)]
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    read = {"batchFormat": batch_format, "options": {"path": str(path), **LETTERED}}
    bench = run(job(read, dead=True))
    assert bench.completed
    assert numbers(bench) == [n for n in range(9) if n != 4]
    assert [each["segment"]["n"] for each in bench.written("bad")] == [4]


# --- event times ----------------------------------------------------------------------------------


def timed(tmp_path: Path, form: str) -> str:
    """Records 0 to 19 with a time, of which 3 and 16 have none."""
    path = tmp_path / f"rows.{form}"
    times = [f"2026-01-01T00:00:{n:02}" for n in range(20)]
    times[3], times[16] = "yesterday", "2026-13-45"
    rows = [{"n": n, "at": at} for n, at in enumerate(times)]
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif form == "csv":
        path.write_text("n,at\n" + "".join(f"{row['n']},{row['at']}\n" for row in rows))
    else:
        path.write_text("".join(f'{{"n":{row["n"]},"at":"{row["at"]}"}}\n' for row in rows))
    return str(path)


def windowed(spec: dict[str, Any]) -> dict[str, Any]:
    spec["catalog"][1] = spec["catalog"][1] | {"type": "reduce", "fn": None}
    spec["catalog"][1].pop("fn")
    window = {"id": "w", "task": "work", "type": "fixed", "windowKey": "at",
              "range": [10, "seconds"], "aggregation": "count"}  # fmt: skip
    trigger = {"id": "t", "windowId": "w", "type": "watermark", "emit": "m:emit",
               "refinement": "accumulating"}  # fmt: skip
    return {**spec, "guarantee": "exactly-once", "windows": [window], "triggers": [trigger]}


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("batch_format", ["dicts", "arrow"])
def test_a_record_without_event_time_is_a_dead_letter_that_names_it(tmp_path, form, batch_format):
    path = timed(tmp_path, form)
    types = {"types": {"n": "int"}} if form == "csv" else {}
    read = {"options": {"path": path, **types}, "watermarkKey": "at", "batchFormat": batch_format}
    bench = run(windowed(job(read, dead=True)))
    assert bench.exceptions == []
    assert bench.completed
    assert numbers(bench) == [9, 9]
    said = letters(bench)
    assert said.keys() == {3, 16}
    assert said[3].startswith(
        f"task 'read': {path}: record 3 (counted from 0): watermarkKey 'at' gives 'yesterday', "
        "which is no event time"
    )
    assert "record 16" in said[16]


@pytest.mark.parametrize("batch_format", ["dicts", "arrow"])
def test_without_dead_letters_a_record_without_event_time_ends_the_job(tmp_path, batch_format):
    path = timed(tmp_path, "jsonl")
    read = {"options": {"path": path}, "watermarkKey": "at", "batchFormat": batch_format}
    bench = run(windowed(job(read, dead=False)))
    (reported,) = bench.exceptions
    assert (reported["task"], reported["phase"]) == ("read", "read-batch")
    assert reported["detail"].startswith(
        f"task 'read': {path}: record 3 (counted from 0): watermarkKey 'at' gives 'yesterday'"
    )
    assert "give the task a deadLetter" in reported["detail"]


def test_a_record_without_event_time_is_one_when_it_is_read_again(tmp_path):
    path = timed(tmp_path, "jsonl")
    read = {"options": {"path": path}, "watermarkKey": "at", "maxPending": 8}
    bench = Bench(windowed(job(read, dead=True)), {"m:emit": emit})
    bench.start()
    for _ in range(3):
        bench.round()
    bench.rewire()
    settled(bench)
    assert bench.exceptions == []
    assert bench.completed
    assert letters(bench).keys() == {3, 16}
    assert set(numbers(bench)) == {9}


# --- rows that a function calls failed ------------------------------------------------------------


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows above 15 leave, those that 5 divides have failed."""
    failed = pc.equal(pc.multiply(pc.divide(batch["n"], 5), 5), batch["n"])
    said = pc.if_else(failed, "five divides it", pa.scalar(None, pa.string()))
    return batch.append_column("__error__", said).filter(pc.less_equal(batch["n"], 15))


@pytest.mark.parametrize("short_circuit", [True, False], ids=["one process", "over the wire"])
def test_rows_with_an_error_are_dead_letters_and_the_rest_of_the_batch_goes_on(
    numbered, short_circuit
):
    work = {"fn": "m:work", **ARROW}
    spec = job({"options": {"path": numbered}, **ARROW}, dead=True, work=work)
    bench = run(spec, checked, short_circuit=short_circuit)
    assert bench.completed
    assert numbers(bench) == [n for n in range(16) if n % 5]
    assert bench.written("write")[0].keys() == {"n"}
    assert letters(bench) == dict.fromkeys((0, 5, 10, 15), "five divides it")


def test_a_condition_takes_rows_with_an_error(numbered):
    work = {"fn": "m:work", **ARROW}
    spec = job({"options": {"path": numbered}, **ARROW}, dead=True, work=work)
    spec["flowConditions"] = [
        {"from": "work", "to": ["write"], "shortCircuit": True, "thrownException": True,
         "predicate": "m:odd", "postTransform": "m:put"},
    ]  # fmt: skip
    functions = {
        "m:work": checked,
        "m:odd": lambda event, old, error, every: old["n"] % 2 == 1,
        "m:put": lambda event, old, error: {"n": -old["n"], "why": str(error)},
    }
    bench = settled(Bench(spec, functions))
    assert bench.completed
    assert letters(bench).keys() == {0, 10}
    assert [each for each in bench.written("write") if "why" in each] == [
        {"n": -5, "why": "five divides it"},
        {"n": -15, "why": "five divides it"},
    ]


def test_without_dead_letters_a_row_with_an_error_ends_the_job(numbered):
    work = {"fn": "m:work", **ARROW}
    bench = run(job({"options": {"path": numbered}, **ARROW}, dead=False, work=work), checked)
    (reported,) = bench.exceptions
    assert "m:work: five divides it (2 segments of the batch failed)" in reported["detail"]
    assert reported["segment"] == "{'n': 0}"


@pytest.mark.parametrize("column", [pa.array([0] * 8), pa.array([True] * 8)])
def test_an_error_that_is_no_text_is_the_functions_mistake(numbered, column):
    def wrong(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("__error__", column.slice(0, len(batch)))

    work = {"fn": "m:work", **ARROW}
    bench = run(job({"options": {"path": numbered}, **ARROW}, dead=False, work=work), wrong)
    (reported,) = bench.exceptions
    assert "in __error__: it must be text" in reported["detail"]


def test_all_that_is_made_of_a_row_fails_with_it(numbered):
    def twice(batch: pa.RecordBatch) -> pa.Table:
        said = np.array([None, "no"], dtype=object)[(batch["n"].to_numpy() % 7 == 0).astype(int)]
        fine = batch.append_column("__error__", pa.nulls(len(batch), pa.string()))
        return pa.Table.from_batches(
            [batch.append_column("__error__", pa.array(said, pa.string())), fine]
        )

    work = {"fn": "m:work", **ARROW}
    bench = run(job({"options": {"path": numbered}, **ARROW}, dead=True, work=work), twice)
    assert bench.completed
    assert numbers(bench) == sorted([n for n in range(20) if n % 7] * 2)
    assert letters(bench) == dict.fromkeys((0, 7, 14), "no")


# --- bad rows among good ones stay alone ----------------------------------------------------------


def messy(tmp_path: Path, form: str) -> tuple[str, list[int]]:
    """A file of 400 records, and the numbers of those that are good."""
    path = tmp_path / f"rows.{form}"
    bad = {
        "csv": {7: "7", 100: "x,", 101: '"', 251: "1_0,x", 399: "9,\xff"},
        "jsonl": {7: "{", 100: '{"n":"x"}', 101: "[1]", 251: '{"n":{}}', 399: '"\xff"'},
    }[form]
    good = "{0},s{0}" if form == "csv" else '{{"n":{0},"s":"s{0}"}}'
    lines = [bad.get(n, good.format(n)) for n in range(400)]
    header = ["n,s"] if form == "csv" else []
    path.write_bytes("\n".join([*header, *lines]).encode("latin-1") + b"\n")
    quoted = 102 if form == "csv" else 400  # a quote that is never closed takes the rest
    return str(path), [n for n in range(400) if n not in bad and n < quoted]


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
@pytest.mark.parametrize("timeout", [{}, {"batchTimeout": 5}])
@pytest.mark.parametrize("short_circuit", [True, False], ids=["one process", "over the wire"])
def test_good_rows_stay_in_large_columns(tmp_path, guarantee, short_circuit, timeout):
    path, good = messy(tmp_path, "jsonl")
    large = {"batchFormat": "arrow", "batchSize": 400}
    options = {"path": path, "onBadRecord": "segment"}
    work = {"fn": "m:work", **large}
    spec = job({"options": options, **large, **timeout}, dead=True, work=work)
    spec["catalog"][2]["batchSize"] = 400
    spec["flowConditions"] = [
        {"from": "read", "to": ["bad"], "predicate": ["not", ["is-null", "_error"]]},
        {"from": "read", "to": ["work"], "predicate": ["is-null", "_error"]},
    ]
    sizes: list[int] = []

    def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(len(batch))
        return batch

    bench = run({**spec, "guarantee": guarantee}, counted, short_circuit=short_circuit)
    assert bench.exceptions == []
    assert bench.completed
    assert numbers(bench) == good
    assert len(sizes) <= 4, "one bad record does not cut a batch"
    raw = sorted(each["_raw"] for each in bench.written("bad") if "_raw" in each)
    assert raw == sorted(["{", "[1]", '"\ufffd"'])
    said = [each["error"]["message"] for each in bench.written("bad") if "error" in each]
    assert len(said) == 2
    assert all("key 'n' holds a " in each and "column is of type int64" in each for each in said)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_columns_fail_where_dicts_fail(tmp_path, form):
    path, good = messy(tmp_path, form)
    types = {"types": {"n": "int"}} if form == "csv" else {}
    found = {}
    for batch_format in ("dicts", "arrow"):
        options = {"path": path, "onBadRecord": "segment", "recordNumber": "row", **types}
        read = {"options": options, "batchFormat": batch_format}
        bench = run(job(read, dead=True, work={"fn": "m:same", "batchFormat": "dicts"}))
        assert bench.completed
        found[batch_format] = {
            each["row"]: each["_raw"] for each in bench.written("write") if each.get("_error")
        }
        kept = [each for each in bench.written("write") if not each.get("_error")]
        assert set(good) <= {each["row"] for each in kept}
        assert all(each["row"] == each["n"] for each in kept if isinstance(each["n"], int))
    assert found["arrow"] == found["dicts"]
    assert max(found["arrow"]) == (101 if form == "csv" else 399)


def test_what_was_read_apart_is_not_lost_when_the_job_is_allocated_anew(tmp_path):
    path, good = messy(tmp_path, "jsonl")
    large = {"batchFormat": "arrow", "batchSize": 50}
    options = {"path": path, "onBadRecord": "segment"}
    spec = job({"options": options, **large}, dead=True, work={"fn": "m:same", **large})
    spec["catalog"][2]["batchSize"] = 50
    for rounds in range(1, 6):
        bench = Bench({**spec, "guarantee": "at-most-once"}, {"m:same": lambda given: given})
        bench.start()
        for _ in range(rounds):
            bench.round(["read"])
        bench.rewire()
        settled(bench)
        assert bench.completed
        written = [each for each in bench.written("write") if not each.get("_error")]
        assert sorted(each["n"] for each in written) == good
        assert len(bench.written("write")) - len(written) == 3
