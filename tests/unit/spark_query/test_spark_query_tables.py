"""Tables in jobs on Spark: each process has its own, and rows are those of peers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from tests.support.clocks import ManualClock
from tests.support.spark.inputs import feed
from tests.support.spark.query import Frames, publish_all, request_of, run_query
from tests.support.spark.stream import Worker, written

from onyx.flow.groups.keys import shard_of
from onyx.model.parsing.job import parse_manifest
from onyx.spark.driver.request import QueryReply
from onyx.spark_query import programs
from onyx.tables.dealt import DealtTable

SEEN = [{"user": n % 7, "time": n} for n in range(30)]
USERS = [
    {"id": n, "since": since, "name": f"{n} at {since}"} for since in (10, 0) for n in range(5)
]
MODULE = """
def named(users, segment):
    row = users.get(segment["user"])
    return {**segment, "newest": None if row is None else row["name"]}
"""
JOB = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: shop}
spec:
  engine: spark
  workflow: [[read, who], [who, work], [work, write]]
  catalog:
    - {name: read, type: input, plugin: sequence, BATCHoptions: {partitions: 3, segments: SEEN}}
    - {name: who, type: function, BATCHjoin: {table: users, key: user, at: time, columns: [name]}}
    - {name: work, type: function, fn: "table_shop:named", tables: [users]}
    - {name: write, type: output, plugin: files, options: {path: out}}
    - {name: users, type: table, plugin: files, key: id, versionKey: since,
       options: {path: "users.jsonl"}}
"""

BUCKETS = 4
PARTS = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: parts}
spec:
  engine: spark
  workflow: [[read, who], [who, write]]
  catalog:
    - {name: read, type: input, plugin: sequence, BATCHoptions: {partitions: 3, segments: SEEN}}
    - {name: who, type: function, BATCHgroupByKey: user, fluxPolicy: continue,
       join: {table: users, key: user, at: time, columns: [name]}}
    - {name: write, type: output, plugin: files, options: {path: out}}
    - {name: users, type: table, plugin: files, key: id, versionKey: since, partitioned: true,
       options: {path: "users.jsonl"}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "table_shop.py").write_text(MODULE)
    (tmp_path / "users.jsonl").write_text("".join(json.dumps(row) + "\n" for row in USERS))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    import sys

    sys.modules.pop("table_shop", None)


def run(folder: Path, form: str = "", bytes_max: int = 1_000_000) -> QueryReply:
    return run_text(folder, JOB.replace("BATCH", form), bytes_max)


def run_text(folder: Path, text: str, bytes_max: int = 1_000_000) -> QueryReply:
    job, modules = parse_manifest(text.replace("SEEN", json.dumps(SEEN))), ("table_shop",)
    conf = {"spark.sql.shuffle.partitions": "as many as Frames has"}
    request = request_of(job, folder, modules, table_bytes_max=bytes_max, spark_conf=conf)
    reply = run_query(request, Frames(BUCKETS))
    if reply.failure is None:
        publish_all(request, reply)
    return reply


def lines(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted(folder.glob("part-*"))]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    return sorted(found, key=lambda each: each["time"])


def by_loop() -> list[dict[str, Any]]:
    found = []
    for each in SEEN:
        mine = [row for row in USERS if row["id"] == each["user"]]
        valid = [row for row in mine if row["since"] <= each["time"]]
        at = max(valid, key=lambda row: row["since"])["name"] if valid else None
        newest = max(mine, key=lambda row: row["since"])["name"] if mine else None
        found.append({**each, "name": at, "newest": newest})
    return found


@pytest.mark.parametrize("form", ["", "batchFormat: arrow, "], ids=["dicts", "columns"])
def test_a_table_gives_what_it_gives_on_peers(
    folder: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, load = [], programs.load_table
    monkeypatch.setattr(programs, "load_table", lambda *given: loads.append(1) or load(*given))
    assert run(folder, form).failure is None
    assert lines(folder / "out") == by_loop()
    assert len(loads) == 1, "once a process"


def test_a_table_that_is_too_large_ends_the_query_with_the_task_that_looks_it_up(
    folder: Path,
) -> None:
    failure = run(folder, bytes_max=50).failure
    assert failure is not None
    assert failure.task == "who"
    assert "table users has more than 50 bytes" in failure.message


@pytest.mark.parametrize("form", ["", "batchFormat: arrow, "], ids=["dicts", "columns"])
@pytest.mark.parametrize("bytes_max", [1_000_000, 1_500])
def test_each_bucket_looks_up_its_part_of_a_partitioned_table_which_is_read_once(
    folder: Path, form: str, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part has 1,200 bytes at most, and all of them 3,000."""
    found: dict[int, list[int]] = {}
    dealt, deal, part = [], programs.deal_table, DealtTable.part

    def noted(self: DealtTable, number: int) -> Any:
        table = part(self, number)
        found[number] = sorted({row["id"] for row in table.values()})
        assert sum(self._sizes_bytes[each] for each in self._held) <= bytes_max
        return table

    monkeypatch.setattr(programs, "deal_table", lambda *given: dealt.append(1) or deal(*given))
    monkeypatch.setattr(DealtTable, "part", noted)
    assert run_text(folder, PARTS.replace("BATCH", form), bytes_max).failure is None
    assert lines(folder / "out") == [
        {key: each[key] for key in each if key != "newest"} for each in by_loop()
    ]
    assert len(dealt) == 1, "once a process"
    users = range(5)
    assert found == {
        bucket: [id for id in users if shard_of(id) % BUCKETS == bucket]
        for bucket in {shard_of(each["user"]) % BUCKETS for each in SEEN}
    }


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (USERS, "table users has more than 300 bytes, which a process of Spark would hold"),
        ([{"id": 1, "since": 0, "name": "x"}, {"since": 0}], "row 1 has nothing in id by which"),
        ([{"since": 0, "name": "x"}], "table users: no row has 'id': they have since, name"),
        ([{"id": 1, "since": None, "name": "x"}], "row 0 has nothing in since by which"),
    ],
)
def test_a_partitioned_table_that_does_not_fit_ends_the_query(
    folder: Path, rows: list[dict[str, Any]], why: str
) -> None:
    (folder / "users.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    failure = run_text(folder, PARTS.replace("BATCH", ""), bytes_max=300).failure
    assert failure is not None
    assert failure.task == "who"
    assert why in failure.message


def test_a_disk_without_room_for_a_partitioned_table_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("onyx.tables.dealt.tempfile.TemporaryFile", Full)
    failure = run_text(folder, PARTS.replace("BATCH", "")).failure
    assert failure is not None
    assert "parts of table users cannot be written to a file in TMPDIR: " in failure.message
    assert "No space left on device" in failure.message
    assert failure.away, "it is tried again"


def test_a_partitioned_table_without_rows_has_nothing_for_anybody(folder: Path) -> None:
    (folder / "users.jsonl").write_text("")
    assert run_text(folder, PARTS.replace("BATCH", "")).failure is None
    assert lines(folder / "out") == [{**each, "name": None} for each in SEEN]


@pytest.mark.parametrize("partitioned", ["true", "false"])
def test_micro_batches_look_up_what_has_been_read_again_meanwhile(
    folder: Path, partitioned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(programs, "SystemClock", lambda: clock)
    monkeypatch.setattr("onyx.spark_query.sources.BATCH_SEGMENTS_MAX", 7)
    monkeypatch.setattr("onyx.spark_query.sources.NEWS_S", 0.0)
    inputs = "tests.support.spark.inputs"
    feed(folder / "feed", {"a": SEEN}, 100, ends=True)
    text = PARTS.replace("BATCH", "").replace("plugin: sequence", f'plugin: "{inputs}:fed"')
    text = text.replace("{partitions: 3, segments: SEEN}", f'{{feed: "{folder}/feed"}}')
    text = text.replace("partitioned: true", f"partitioned: {partitioned}, refresh: [1, minute]")
    worker = Worker(parse_manifest(text), folder, (inputs,))
    users = folder / "users.jsonl"

    def then(batch: Any) -> None:
        rows = [{**row, "name": f"batch {batch.number}"} for row in USERS]
        if batch.number == 2:
            rows = [{"id": 1, "since": 0, "name": 7}]  # of another type: it stays as it is
        users.write_text("".join(json.dumps(row) + "\n" for row in rows))
        clock.advance(60.0)

    worker.then = then
    assert worker.run().failure is None
    seen: dict[int, set[str]] = {}
    for each in written(folder):
        if each["user"] < 5:
            seen.setdefault(each["time"] // 7 + 1, set()).add(each["name"].partition(" at")[0])
    assert seen == {
        1: {"0", "1", "2", "3", "4"}, 2: {"batch 1"}, 3: {"batch 1"}, 4: {"batch 3"},
        5: {"batch 4"},
    }  # fmt: skip
