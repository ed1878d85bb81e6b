"""Whole jobs whose data is in an object store, against a real cluster in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.support.jobs.yaml_jobs import FUNCTIONS, manifest
from tests.support.servers.object_stores import ObjectStore

from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
FILES, ROWS = 5, 400


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(6, modules=[FUNCTIONS]) as env:
        yield env


def job(source: str, target: str) -> dict[str, Any]:
    return manifest(f"""
        workflow: [[read, work], [work, write]]
        catalog:
          - {{name: read, type: input, plugin: files, batchSize: 100, maxPeers: 2,
              options: {{path: "{source}", types: {{n: int}}}}}}
          - {{name: work, type: function, fn: "f:inc", batchSize: 100}}
          - {{name: write, type: output, plugin: files, batchSize: 100, maxPeers: 2,
              options: {{path: "{target}", rollSegments: 300}}}}
    """)


def rows(store: ObjectStore, prefix: str) -> list[int]:
    parts = [store.get(key) for key in store.keys(f"{prefix}/part-")]
    return [row["n"] for part in parts for row in msgspec.json.Decoder().decode_lines(part)]


@pytest.mark.short(1)
def test_a_job_reads_and_writes_objects_and_leaves_no_trace_beside_them(
    env: TestEnv, store: ObjectStore
) -> None:
    for number in range(FILES):
        first = number * ROWS
        lines = "".join(f"{n}\n" for n in range(first, first + ROWS))
        store.put(f"in/{number}.csv", f"n\n{lines}")
    env.run(job(f"{store.url}/in/*.csv", f"{store.url}/out"))
    assert sorted(rows(store, "out")) == list(range(1, FILES * ROWS + 1))
    assert [key for key in store.keys("out/") if "/part-" not in key] == []


def test_a_job_without_its_objects_fails_with_job_task_and_key(
    env: TestEnv, store: ObjectStore
) -> None:
    status = env.run(job(f"{store.url}/nothing/*.csv", f"{store.url}/out"))
    pattern = f"{store.url}/nothing/*.csv"
    reported = f"job 'job', task 'read': option 'path' {pattern!r} matches no file"
    assert status.state == "failed"
    assert reported in str(status.exception)
