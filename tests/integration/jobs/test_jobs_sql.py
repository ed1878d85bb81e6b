"""Jobs with SQL instead of functions: a real ZooKeeper and real workers, against plain loops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.yaml_jobs import manifest
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster

from onyx.errors import OnyxError
from onyx.log.server.process import ZooKeeperServer
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
COUNT = 20_000
ROUTED = """
    guarantee: GUARANTEE
    workflow: [[read, parts], [parts, doubled], [doubled, small], [doubled, large], [parts, bad]]
    catalog:
      - {name: read, type: input, plugin: files, INPUT options: {path: FOLDER/in.jsonl}}
      - name: parts
        type: function
        deadLetter: bad
        sql: >
          select id, text::bigint as n, unnest(parts) as part from segments where text <> ''
      - {name: doubled, type: function, sql: "select *, n * 2 as m from segments", maxPeers: 2}
      - {name: small, type: output, plugin: files, options: {path: FOLDER/small}}
      - {name: large, type: output, plugin: files, options: {path: FOLDER/large}}
      - {name: bad, type: output, plugin: files, options: {path: FOLDER/bad}}
    flowConditions:
      - {from: parts, to: [doubled], predicate: [sql, "part <> 'c'"]}
      - {from: doubled, to: [small], predicate: [sql, "m < 50"]}
      - {from: doubled, to: [large], predicate: [not, [sql, "m < 50"]]}
"""
SLOW = """
    guarantee: exactly-once
    workflow: [[read, work], [work, write]]
    catalog:
      - {name: read, type: input, plugin: generator, maxPeers: 1, batchSize: 100,
         options: {segments: COUNT, ratePerSecond: 4000}}
      - {name: work, type: function, minPeers: 2, maxPeers: 2, batchSize: 100,
         sql: "select *, n * n as square from segments where n % 3 <> 0"}
      - {name: write, type: output, plugin: files, maxPeers: 1,
         options: {path: FOLDER/out, format: jsonl, rollSeconds: 0.5}}
"""


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(8, modules=[]) as env:
        yield env


def rows(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in folder.glob("part-*")]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def filled(job: str, folder: Path, **words: str) -> dict[str, Any]:
    for word, value in {"FOLDER": str(folder), "COUNT": str(COUNT), **words}.items():
        job = job.replace(word, value)
    return manifest(job)


@pytest.mark.parametrize("form", ["", "batchFormat: arrow,"])
@pytest.mark.parametrize(
    "guarantee", ["exactly-once", pytest.param("at-most-once", marks=pytest.mark.slow)]
)
def test_rows_go_where_a_plain_loop_sends_them(
    env: TestEnv, tmp_path: Path, form: str, guarantee: str
) -> None:
    texts = ["", *map(str, range(40)), "x", "y"]
    given = [
        {"id": number, "text": text, "parts": ["a", "b", "c"][: 1 + number % 3]}
        for number, text in enumerate(texts)
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(each) + "\n" for each in given))
    job = filled(ROUTED, tmp_path, GUARANTEE=guarantee, INPUT=form)

    status = env.run(job, WAIT_S)

    assert status.state == "completed", status
    expected: dict[str, list[dict[str, Any]]] = {"small": [], "large": []}
    for each in given:
        if each["text"].isdigit():
            n = int(each["text"])
            expected["small" if n < 25 else "large"] += [
                {"id": each["id"], "n": n, "part": part, "m": n * 2}
                for part in each["parts"]
                if part != "c"
            ]
    for folder, made in expected.items():
        assert sorted(rows(tmp_path / folder), key=str) == sorted(made, key=str)
    letters = rows(tmp_path / "bad")
    assert sorted(each["segment"]["text"] for each in letters) == ["x", "y"]
    assert all("Could not convert string" in str(each["error"]) for each in letters)


def test_when_a_worker_is_killed_each_row_comes_once(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    module = tmp_path / "modules" / "nothing.py"
    module.parent.mkdir()
    module.write_text("")
    with Cluster(zookeeper.address, tmp_path, module) as cluster:
        workers = cluster.start_workers(2, peers=4)
        job = cluster.submit(filled(SLOW, tmp_path))
        cluster.await_ready(job)
        cluster.until(lambda _: len(rows(tmp_path / "out")) > 100, "rows are written")
        workers[0].kill()
        cluster.await_completed(job, WAIT_S)
    squares = sorted(each["square"] for each in rows(tmp_path / "out"))
    assert squares == [n * n for n in range(COUNT) if n % 3]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("select sum(n) as s from segments", r"catalog\[1\].sql: .*has the aggregate sum"),
        ("select * from read_text('/etc/passwd')", "reads with the table function read_text"),
        ("select n / hours as x from segments", "names the column hours"),
    ],
)
def test_a_text_that_cannot_be_run_is_refused_at_submission(
    env: TestEnv, tmp_path: Path, text: str, why: str
) -> None:
    spec = """
    workflow: [[read, work], [work, write]]
    catalog:
      - {name: read, type: input, plugin: sequence, options: {segments: [{n: 1}]}}
      - {name: work, type: function, sql: "TEXT", schema: {n: int64}}
      - {name: write, type: output, plugin: blackhole}
    """
    with pytest.raises(OnyxError, match=why):
        env.submit(manifest(spec.replace("TEXT", text)))
