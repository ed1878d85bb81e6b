"""A whole job as a query: the rows of the examples, and what becomes of segments that fail.

Without a JVM (`support.spark.query`): the fragments run the same functions on the same rows.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest
from tests.support.spark.query import Frames, publish_all, request_of, run_query

from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.spark.driver.request import QueryReply, TaskCounts
from onyx.spark_query.run import answer

EXAMPLES = Path(__file__).parents[3] / "examples"
Segments = list[dict[str, Any]]
MODULE = """
import onyx
import pyarrow as pa

tried = []

def double(segment):
    if segment["n"] == 3:
        raise ValueError("three")
    return {"n": segment["n"] * 2}

def fails_twice(segment):
    tried.append(segment["n"])
    segment["touched"] = True
    if tried.count(segment["n"]) < 3:
        raise OSError("busy")
    return {"n": segment["n"], "tries": tried.count(segment["n"])}

def asks_twice(segment):
    seen = dict(segment)
    tried.append(("asks", segment["n"]))
    segment["touched"] = True
    count = tried.count(("asks", segment["n"]))
    return {**seen, "tries": count} if count == 3 else onyx.FAIL

def is_busy(event, old, error, all_new):
    return isinstance(error, OSError)

def same(segment):
    return segment

def noted(segment):
    tried.append(segment["n"])

def both(left, right):
    return left

def mark(batch):
    names = pa.array([b"M\\xfcller" if n == 7 else b"Smith" for n in batch["n"].to_pylist()])
    names = pa.Array.from_buffers(pa.string(), len(names), names.buffers())
    why = pa.array(["five" if n == 5 else None for n in batch["n"].to_pylist()], pa.string())
    return batch.append_column("name", names).append_column("__error__", why)

def row(event, window, trigger, state_event, state):
    return {"group": state_event["group_key"], "state": state}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "small_shop.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    import sys

    sys.modules.pop("small_shop", None)


def job(spec: str, name: str = "shop") -> Job:
    head = f"apiVersion: onyx.dev/v1beta1\nkind: OnyxJob\nmetadata: {{name: {name}}}\nspec:\n"
    return parse_manifest((head + spec).encode())


def lines(folder: Path) -> Segments:
    texts = [path.read_text() for path in sorted(folder.glob("part-*"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def in_order(segments: Segments) -> Segments:
    return sorted(segments, key=lambda each: json.dumps(each, sort_keys=True))


def run_example(
    name: str, file: str, modules: tuple[str, ...], tmp_path: Path, patch: pytest.MonkeyPatch
) -> tuple[Path, QueryReply]:
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder)
    patch.syspath_prepend(str(folder))
    request = request_of(parse_manifest((folder / file).read_bytes()), folder, modules)
    reply = run_query(request)
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    return folder, reply


def test_a_chain_of_tasks_prints_what_it_prints_on_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, reply = run_example("hello", "job.yaml", ("hello",), tmp_path, monkeypatch)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        '{"greeting":"Hello, Ada of London!"}',
        '{"greeting":"Hello, Edsger of Rotterdam!"}',
        '{"greeting":"Hello, Grace of New York!"}',
    ]
    assert reply.tasks == {
        "people": TaskCounts(3, 3), "greet": TaskCounts(3, 3), "print": TaskCounts(3, 3),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["dicts", "arrow"])
def test_folders_are_keys_of_segments_as_on_peers(folder: Path, form: str) -> None:
    for year in (2024, 2025):
        (folder / f"in/year={year}").mkdir(parents=True)
        (folder / f"in/year={year}/a.csv").write_text("n\n1\n")
    spec = f"""
  workflow: [[read, write]]
  catalog:
    - {{name: read, type: input, plugin: files, batchFormat: {form},
       options: {{path: "in/*/*.csv", types: {{n: int, year: int}}}}}}
    - {{name: write, type: output, plugin: files, options: {{path: out}}}}
"""
    request = request_of(job(spec), folder, ())
    reply = run_query(request)
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    assert in_order(lines(folder / "out")) == [{"n": 1, "year": 2024}, {"n": 1, "year": 2025}]


def test_windows_fire_by_event_time_and_set_late_segments_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = run_example("windows", "fixed.yaml", ("visits",), tmp_path, monkeypatch)
    page = (folder / "README.md").read_text("utf-8")
    expected = [line.strip() for line in page.splitlines() if line.startswith("    {")]
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(expected)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("sliding.yaml", {"page": "/docs", "from": "12:15", "mean": 80.0}),
        ("session.yaml", {"user": "ada", "from": "15:00", "to": "15:00", "pages": ["/"]}),
        ("own.yaml", {"page": "/", "users": ["ada", "grace"]}),
    ],
)
def test_each_kind_of_window_runs(
    file: str, expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run_example("windows", file, ("visits",), tmp_path, monkeypatch)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert expected in printed
    assert len(printed) == {"sliding.yaml": 16, "session.yaml": 6, "own.yaml": 6}[file]


def test_segments_that_fail_become_dead_letters_in_every_fragment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, reply = run_example("failures", "job.yaml", ("orders",), tmp_path, monkeypatch)
    totals = {each["customer"]: each["total"] for each in lines(folder / "totals")}
    assert totals == {"ann": 11, "bob": 5}
    letters = lines(folder / "bad")
    assert {(each["task"], each["error"]["type"]) for each in letters} == {
        ("price", "KeyError"),
        ("price", "Refusal"),
        ("totals", "UserError"),
    }
    assert reply.tasks["price"].failed == 2
    assert not (folder / "bad/.staging").exists()


def test_nothing_is_visible_before_it_is_published(folder: Path) -> None:
    request = request_of(
        job("""
  workflow: [[read, write]]
  catalog:
    - {name: read, type: input, plugin: generator, options: {segments: 5, partitions: 2}}
    - {name: write, type: output, plugin: files, options: {path: out}}
"""),
        folder,
        (),
    )
    reply = run_query(request)
    assert lines(folder / "out") == []
    publish_all(request, reply)
    publish_all(request, reply)  # as a worker does that takes over from one that died
    assert in_order(lines(folder / "out")) == [{"n": number} for number in range(5)]


def test_the_outputs_of_a_stage_write_a_frame_each(folder: Path) -> None:
    request = request_of(
        job("""
  workflow: [[read, left], [read, right]]
  catalog:
    - {name: read, type: input, plugin: generator, options: {segments: 3}}
    - {name: left, type: output, plugin: spark,
       options: {path: out, frame: left, stage: "small_shop:both"}}
    - {name: right, type: output, plugin: spark, options: {path: out, frame: right}}
"""),
        folder,
        ("small_shop",),
    )
    reply = run_query(request)
    assert reply.failure is None
    assert {task: len(each.tokens) for task, each in reply.outputs.items()} == {
        "left": 1,
        "right": 1,
    }


def test_a_segment_that_nothing_takes_care_of_ends_the_query_with_its_task(folder: Path) -> None:
    request = request_of(
        job("""
  workflow: [[read, double], [double, write]]
  catalog:
    - {name: read, type: input, plugin: generator, options: {segments: 5}}
    - {name: double, type: function, fn: "small_shop:double"}
    - {name: write, type: output, plugin: files, options: {path: out}}
"""),
        folder,
        ("small_shop",),
    )
    failure = run_query(request).failure
    assert failure is not None
    assert failure.by_user
    assert failure.task == "double"
    assert failure.message.startswith(
        "task 'double' failed in apply-fn: small_shop:double raised ValueError: three "
        "(small_shop.py, line 9)"
    )
    assert failure.report is not None
    assert failure.report["segment"] == "{'n': 3}"


@pytest.mark.parametrize("batch_format", ["dicts", "arrow"])
def test_bad_rows_fail_alone_as_on_peers(folder: Path, batch_format: str) -> None:
    rows = [{"n": n, "at": f"2026-01-01T00:00:{n:02}"} for n in range(20)]
    rows[3]["at"] = "yesterday"
    texts = [json.dumps(row) for row in rows]
    texts[11] = "{"
    (folder / "rows.jsonl").write_text("\n".join(texts))
    request = request_of(
        job(f"""
  guarantee: exactly-once
  workflow: [[read, mark], [mark, count], [count, write]]
  catalog:
    - {{name: read, type: input, plugin: files, batchFormat: {batch_format}, watermarkKey: at,
       options: {{path: rows.jsonl, onBadRecord: deadLetter}}}}
    - {{name: mark, type: function, fn: "small_shop:mark", batchFormat: arrow, deadLetter: bad}}
    - {{name: count, type: reduce}}
    - {{name: write, type: output, plugin: files, options: {{path: out}}}}
    - {{name: bad, type: output, plugin: files, options: {{path: bad}}}}
  windows: [{{id: ever, task: count, type: fixed, windowKey: at, range: [1, days],
             aggregation: count}}]
  triggers: [{{windowId: ever, type: watermark, refinement: accumulating, emit: "small_shop:row"}}]
"""),
        folder,
        ("small_shop",),
    )
    reply = run_query(request)
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    assert [each["state"] for each in lines(folder / "out")] == [16]
    bad = lines(folder / "bad")
    said = {each["segment"].get("n"): each["error"]["message"] for each in bad}
    assert said.keys() == {3, 5, 7, None}
    assert [each["segment"]["_raw"] for each in bad if "_raw" in each["segment"]] == ["{"]
    assert "rows.jsonl: record 11 (counted from 0): not a JSON object" in said[None]
    assert f"{folder}/rows.jsonl: record 3 (counted from 0): watermarkKey 'at' gives" in said[3]
    assert said[5] == "five"
    assert "key 'name' holds text that is not UTF-8" in said[7]


def test_without_dead_letters_a_record_without_event_time_ends_the_query(folder: Path) -> None:
    (folder / "rows.jsonl").write_text('{"n":0,"at":5}\n{"n":1}\n')
    request = request_of(
        job("""
  guarantee: exactly-once
  workflow: [[read, count], [count, write]]
  catalog:
    - {name: read, type: input, plugin: files, watermarkKey: at, options: {path: rows.jsonl}}
    - {name: count, type: reduce}
    - {name: write, type: output, plugin: blackhole}
  windows: [{id: ever, task: count, type: fixed, windowKey: at, range: [1, days],
             aggregation: count}]
  triggers: [{windowId: ever, type: watermark, refinement: accumulating, emit: "small_shop:row"}]
"""),
        folder,
        ("small_shop",),
    )
    failure = run_query(request).failure
    assert failure is not None
    assert (failure.by_user, failure.task) == (True, "read")
    assert f"{folder}/rows.jsonl: record 1 (counted from 0): the segment has no 'at'" in (
        failure.message
    )


def test_a_failure_behind_a_window_names_the_task_that_failed(folder: Path) -> None:
    request = request_of(
        job("""
  guarantee: exactly-once
  workflow: [[read, count], [count, double], [double, write]]
  catalog:
    - {name: read, type: input, plugin: generator, options: {segments: 3}}
    - {name: count, type: reduce}
    - {name: double, type: function, fn: "small_shop:double"}
    - {name: write, type: output, plugin: blackhole}
  windows: [{id: ever, task: count, type: global, aggregation: count}]
  triggers: [{windowId: ever, type: segment, threshold: [9, elements], refinement: accumulating,
              emit: "small_shop:row"}]
"""),
        folder,
        ("small_shop",),
    )
    failure = run_query(request).failure
    assert failure is not None
    assert failure.task == "double"
    assert "raised KeyError" in failure.message


def test_a_retry_begins_with_the_segment_as_it_was(folder: Path) -> None:
    request = request_of(
        job("""
  workflow: [[read, ask], [ask, write]]
  catalog:
    - {name: read, type: input, plugin: generator, options: {segments: 2}}
    - {name: ask, type: function, fn: "small_shop:fails_twice", deadLetter: write}
    - {name: write, type: output, plugin: files, options: {path: out}}
  flowConditions:
    - {from: [ask], to: none, predicate: "small_shop:is_busy", thrownException: true,
       shortCircuit: true, action: retry, maxRetries: 2}
    - {from: [ask], to: [write], predicate: [">=", n, 0]}
"""),
        folder,
        ("small_shop",),
    )
    reply = run_query(request)
    publish_all(request, reply)
    assert in_order(lines(folder / "out")) == [{"n": 0, "tries": 3}, {"n": 1, "tries": 3}]


@pytest.mark.parametrize("before", ["small_shop:same", ""])
def test_a_function_has_a_segment_tried_again_as_it_was(folder: Path, before: str) -> None:
    first = f"fn: {json.dumps(before)}, " if before else ""
    request = request_of(
        job(f"""
  workflow: [[read, ask], [ask, write]]
  catalog:
    - {{name: read, type: input, plugin: generator, {first}options: {{segments: 2}}}}
    - {{name: ask, type: function, fn: "small_shop:asks_twice"}}
    - {{name: write, type: output, plugin: files, options: {{path: out}}}}
"""),
        folder,
        ("small_shop",),
    )
    reply = run_query(request)
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    assert in_order(lines(folder / "out")) == [{"n": 0, "tries": 3}, {"n": 1, "tries": 3}]


@pytest.mark.parametrize("buckets", [1, 3, 8])
def test_groups_come_together_however_many_buckets_there_are(folder: Path, buckets: int) -> None:
    request = request_of(
        job("""
  guarantee: exactly-once
  workflow: [[read, count], [read, total], [count, write], [total, write]]
  catalog:
    - {name: read, type: input, plugin: sequence, batchFormat: arrow, options: {partitions: 3,
       segments: [{k: a}, {k: b}, {k: a}, {k: c}, {k: a}, {k: b}, {k: null}]}}
    - {name: count, type: reduce, groupByKey: k, fluxPolicy: continue}
    - {name: total, type: reduce}
    - {name: write, type: output, plugin: files, options: {path: out}}
  windows:
    - {id: each, task: count, type: global, aggregation: count}
    - {id: sum, task: total, type: global, aggregation: count}
  triggers:
    - {windowId: each, type: segment, threshold: [99, elements], refinement: accumulating,
       emit: "small_shop:row"}
    - {windowId: sum, type: segment, threshold: [99, elements], refinement: accumulating,
       emit: "small_shop:row"}
"""),
        folder,
        ("small_shop",),
    )
    publish_all(request, run_query(request, Frames(buckets)))
    assert in_order(lines(folder / "out")) == in_order(
        [
            {"group": "a", "state": 3},
            {"group": "b", "state": 2},
            {"group": "c", "state": 1},
            {"group": None, "state": 1},
            {"group": None, "state": 7},
        ]
    )


def test_windows_behind_windows_get_what_those_emit_with_its_event_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "nexmark"
    shutil.copytree(EXAMPLES / "nexmark", folder)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "data").mkdir(exist_ok=True)
    bids = [
        {"auction": number % 3, "price": number, "bidder": 1, "date_time": number * 700}
        for number in range(40)
    ]
    (folder / "data/bids-0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in bids))
    from nexmark import answers

    request = request_of(
        parse_manifest((folder / "q5.yaml").read_bytes()), folder, ("nexmark.dicts",)
    )
    reply = run_query(request)
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    expected = answers.q5(lambda kind: pandas.DataFrame(bids))
    assert answers.agree(answers.written(folder / "out/q5"), expected)


@pytest.mark.parametrize("options", ["{}", "{segments: 3}"], ids=["without end", "with an end"])
def test_a_worker_with_a_connect_server_refuses_rows_that_it_would_have_to_print(
    folder: Path, options: str
) -> None:
    asked = job(f"""
        workflow: [[read, out]]
        catalog:
          - {{name: read, type: input, plugin: generator, options: {options}}}
          - {{name: out, type: output, plugin: stdout}}
    """)
    reply = answer(
        request_of(asked, folder, (), master="sc://spark"), lambda _: None, lambda _: None
    )
    assert reply.failure is not None
    assert reply.failure.by_user
    assert "task out: this worker prints the rows of stdout" in reply.failure.message


def test_a_query_begins_where_its_inputs_say(folder: Path) -> None:
    segments = [{"n": n} for n in range(10, 20)]
    old, new = folder / "old.jsonl", folder / "new.jsonl"
    for path, modified_s in ((old, 1_000), (new, 3_000)):
        path.write_text(f'{{"n": {modified_s}}}\n')
        os.utime(path, (modified_s, modified_s))
    spec = f"""
  workflow: [[read, write], [files, write]]
  catalog:
    - {{name: read, type: input, plugin: sequence,
        options: {{segments: {segments}, startFrom: {{position: 7}}}}}}
    - {{name: files, type: input, plugin: files,
        options: {{path: "*.jsonl", startFrom: "1970-01-01T00:30:00Z"}}}}
    - {{name: write, type: output, plugin: files, options: {{path: out, format: jsonl}}}}
"""
    request = request_of(job(spec), folder, ("small_shop",))
    reply = run_query(request)
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    assert sorted(each["n"] for each in lines(folder / "out")) == [17, 18, 19, 3_000]
