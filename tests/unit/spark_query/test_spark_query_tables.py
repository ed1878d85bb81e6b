"""Tables in jobs on Spark: each process has its own, and rows are those of peers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.spark.query import publish_all, request_of, run_query

from onyx.model.parsing.job import parse_manifest
from onyx.spark.driver.request import QueryReply
from onyx.spark_query import tables

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
apiVersion: onyx.dev/v1alpha1
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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "table_shop.py").write_text(MODULE)
    (tmp_path / "users.jsonl").write_text("".join(json.dumps(row) + "\n" for row in USERS))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    import sys

    sys.modules.pop("table_shop", None)


def run(folder: Path, form: str = "", bytes_max: int = 1_000_000) -> QueryReply:
    text = JOB.replace("BATCH", form).replace("SEEN", json.dumps(SEEN))
    modules = ("table_shop",)
    request = request_of(parse_manifest(text), folder, modules, table_bytes_max=bytes_max)
    reply = run_query(request)
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
    loads, load = [], tables.load_table
    monkeypatch.setattr(tables, "load_table", lambda *given: loads.append(1) or load(*given))
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
