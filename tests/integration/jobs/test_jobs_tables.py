"""Jobs with tables against a plain loop: in folders and buckets, and while workers are killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.jobs.yaml_jobs import FUNCTIONS, manifest
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster
from tests.support.servers.object_stores import ObjectStore

from onyx.ids import JobId, TaskName
from onyx.log.server.process import ZooKeeperServer
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
Rows = list[dict[str, Any]]
SEEN: Rows = [{"n": n, "user": n % 70, "time": n % 20} for n in range(3_000)]
USERS: Rows = [
    {"id": n, "since": since, "name": f"{n} at {since}", "vip": n % 3 == 0}
    for since in (15, 5)
    for n in range(60)
]
MODULE = "table_job"
USER_CODE = """
import pathlib, time
HERE = pathlib.Path(__file__).parent

def slow(segment):
    if not (HERE / "gate").exists():
        time.sleep(0.02)
    return segment
"""


def by_loop() -> Rows:
    found = []
    for each in SEEN:
        mine = [row for row in USERS if row["id"] == each["user"] and row["since"] <= each["time"]]
        newest = max(mine, key=lambda row: row["since"], default=None)
        found.append(
            each
            | {"name": "nobody" if newest is None else newest["name"]}
            | {"vip": None if newest is None else newest["vip"]}
        )
    return found


def lines(rows: Rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def job(seen: str, users: str, out: str, form: str = "", fn: str = "", split: bool = False) -> Any:
    """`split`: each peer has the rows of its groups."""
    groups = "groupByKey: user, fluxPolicy: continue," if split else ""
    return manifest(f"""
        guarantee: exactly-once
        workflow: [[read, who], [who, write]]
        catalog:
          - {{name: read, type: input, plugin: files, {form} batchSize: 100,
              options: {{path: "{seen}"}}}}
          - {{name: who, type: function, {form} {fn} {groups} batchSize: 100, minPeers: 2,
              maxPeers: 2, join: {{table: users, key: user, at: time, columns: [name, vip],
                      default: {{name: nobody}}}}}}
          - {{name: write, type: output, plugin: files, batchSize: 100, options: {{path: "{out}"}}}}
          - {{name: users, type: table, plugin: files, key: id, versionKey: since,
              partitioned: {str(split).lower()},
              options: {{path: "{users}"}}}}
    """)


def decoded(texts: list[bytes]) -> Rows:
    rows = [row for text in texts for row in msgspec.json.Decoder().decode_lines(text)]
    return sorted(rows, key=lambda each: each["n"])


def parts(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("part-*"))]


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(6, modules=[FUNCTIONS]) as env:
        yield env


@pytest.mark.parametrize("form", ["", "batchFormat: arrow,"], ids=["dicts", "columns"])
def test_a_table_of_several_files_gives_what_a_loop_gives(
    env: TestEnv, tmp_path: Path, form: str
) -> None:
    (tmp_path / "seen.jsonl").write_text(lines(SEEN))
    for part in range(3):
        (tmp_path / f"users-{part}.jsonl").write_text(lines(USERS[part * 40 : part * 40 + 40]))
    out = tmp_path / "out"
    env.run(job(f"{tmp_path}/seen.jsonl", f"{tmp_path}/users-*.jsonl", str(out), form))
    assert decoded(parts(out)) == by_loop()


def test_a_table_may_lie_in_a_bucket(env: TestEnv, store: ObjectStore) -> None:
    store.put("seen.jsonl", lines(SEEN))
    store.put("users.jsonl", lines(USERS))
    where = store.url
    env.run(job(f"{where}/seen.jsonl", f"{where}/users.jsonl", f"{where}/out"))
    assert decoded([store.get(key) for key in store.keys("out/part-")]) == by_loop()


def test_a_table_without_files_ends_the_job_with_its_name(env: TestEnv, tmp_path: Path) -> None:
    (tmp_path / "seen.jsonl").write_text(lines(SEEN))
    status = env.run(job(f"{tmp_path}/seen.jsonl", f"{tmp_path}/none.jsonl", str(tmp_path / "out")))
    assert status.state == "failed"
    assert "task 'users': option 'path'" in str(status.exception)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "split"),
    [
        pytest.param("", False, id="dicts", marks=pytest.mark.slow),
        pytest.param("batchFormat: arrow,", False, id="columns", marks=pytest.mark.slow),
        pytest.param("batchFormat: arrow,", True, id="columns and a partitioned table"),
    ],
)
def test_each_segment_is_joined_once_while_workers_are_killed(
    zookeeper: ZooKeeperServer, tmp_path: Path, form: str, split: bool
) -> None:
    (tmp_path / f"{MODULE}.py").write_text(USER_CODE)
    (tmp_path / "seen.jsonl").write_text(lines(SEEN))
    (tmp_path / "users.jsonl").write_text(lines(USERS))
    out = tmp_path / "out"
    fn = "" if form else f'fn: "{MODULE}:slow",'
    given = job(f"{tmp_path}/seen.jsonl", f"{tmp_path}/users.jsonl", str(out), form, fn, split)
    if form:  # the function between is one of dicts, and so holds back the job in both formats
        spec = given["spec"]
        spec["workflow"] = [["read", "slow"], ["slow", "who"], ["who", "write"]]
        spec["catalog"].append({"name": "slow", "type": "function", "fn": f"{MODULE}:slow"})
    with Cluster(zookeeper.address, tmp_path, tmp_path / f"{MODULE}.py") as cluster:
        cluster.start_workers(3, 2)
        made = cluster.submit(given)
        cluster.await_ready(made)
        kill(cluster, made, "who")
        cluster.start_workers(1, 2)
        cluster.await_ready(made)
        kill(cluster, made, "who")
        (tmp_path / "gate").touch()
        cluster.start_workers(1, 2)
        cluster.await_completed(made, 3 * WAIT_S)
    assert decoded(parts(out)) == by_loop()


def kill(cluster: Cluster, job: JobId, task: str) -> None:
    peers = cluster.replica.run(job).allocation[TaskName(task)]
    worker = cluster.worker_of(peers[0])
    group = cluster.group_of(worker)
    worker.kill()
    cluster.await_gone([group])
