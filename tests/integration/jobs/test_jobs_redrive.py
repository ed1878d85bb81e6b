"""Dead letters of one version of a job go into the next one, in the form that they had."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs import redrive_functions
from tests.support.jobs.redrive_cluster import LETTERS_TABLE
from tests.support.jobs.yaml_jobs import channel, manifest, taken, until
from tests.support.patience import rounds
from tests.support.servers.kafka_broker import KafkaBroker
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.processes import onyx
from tests.support.servers.sql_databases import Database

from onyx import api
from onyx.ids import JobId
from onyx.plugins.channel import Channel
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
COUNT = 40
ODD = [redrive_functions.dated({"n": n}) for n in range(1, COUNT, 2)]


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(8, modules=[redrive_functions.__name__]) as env:
        yield env


def job(name: str, fn: str, bad: str, target: Channel, again: str = "") -> Any:
    module = redrive_functions.__name__
    batch = "arrow" if fn.endswith("columns") else "dicts"
    way = (", [again, work]", "- {name: again, type: input, plugin: requests}")
    edge, entry = way if again else ("", "")
    return manifest(
        f"""
        workflow: [[in, dated], [dated, work], [work, out]{edge}]
        guarantee: exactly-once
        catalog:
          - {{name: in, type: input, plugin: requests}}
          {entry}
          - {{name: dated, type: function, fn: "{module}:dated"}}
          - {{name: work, type: function, fn: "{module}:{fn}", batchFormat: {batch},
              deadLetter: bad}}
          - {{name: out, type: output, plugin: channel, options: {{channel: {target.name}}}}}
          - {{name: bad, type: output, {bad}}}
        {again}
        """,
        name,
    )


def files(bad: str, form: str) -> str:
    return f'plugin: files, options: {{path: "{bad}", format: {form}, rollSeconds: 1}}'


def redrive(env: TestEnv, job: JobId, *more: str) -> dict[str, Any]:
    done = onyx(env.settings, "redrive", job, "work", "--json", *more)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _is_done(env: TestEnv, job: JobId) -> bool:
    client = env.client
    return client.completed_positions(client.replica(), client.job(job), job) == {"in": COUNT}


def check(env: TestEnv, name: str, fn: str, bad: str, marks: str, *needed: str) -> None:
    target = channel()
    old = env.submit(job(name, f"broken{fn}", bad, target))
    with api.appender(env.settings, old) as appender:
        appender.append([{"n": n} for n in range(COUNT)])
    assert sorted(each["n"] for each in taken(target)) == list(range(0, COUNT, 2))
    refused = onyx(env.settings, "redrive", old, "work", *needed)
    assert (refused.returncode, "no way in" in refused.stderr) == (2, True), refused.stderr
    # What is in flight would be read again by the new version, and not fail.
    assert any(_is_done(env, old) for _ in rounds())
    again = f"upgrade: {{from: {old}}}"
    new = env.submit(job(name, f"mended{fn}", bad, target, again))
    until(env, lambda replica: len(replica.run(new).ready) > 4)
    assert redrive(env, new, "--dry-run", *needed)["redriven"] == len(ODD)
    one = redrive(env, new, "--marks", f"{marks}/elsewhere", "--dry-run", "--first", "1")
    assert one["redriven"] == 1
    assert redrive(env, old, *needed)["redriven"] == len(ODD), "the one in its place is meant"
    assert sorted(taken(target), key=lambda each: each["n"]) == ODD
    assert redrive(env, new, *needed)["left"] == {"redriven before": len(ODD)}
    env.client.drain(new)
    assert env.client.wait(new, 60.0)
    ended = onyx(env.settings, "redrive", new, "work", *needed)
    assert (ended.returncode, "has ended" in ended.stderr) == (2, True), ended.stderr
    assert taken(target) == []


@pytest.mark.short(1)
@pytest.mark.parametrize(("fn", "form"), [("_columns", "parquet"), ("", "jsonl")])
def test_letters_of_the_job_before_go_into_the_one_in_its_place(
    env: TestEnv, tmp_path: Path, fn: str, form: str
) -> None:
    bad = str(tmp_path / "bad")
    check(env, f"shop-{form}", fn, files(bad, form), bad)


@pytest.mark.short(1)
def test_letters_in_a_bucket_go_in_and_have_their_marks_there(
    env: TestEnv, store: ObjectStore
) -> None:
    bad = f"{store.url}/bad"
    check(env, "lake", "", files(bad, "jsonl"), bad)
    assert [key.rpartition(".")[2] for key in store.keys("bad/_redriven/")] == ["claim", "done"]


def test_letters_in_a_table_go_in_and_marks_lie_where_somebody_says(
    env: TestEnv, sqlite_database: Database, tmp_path: Path
) -> None:
    sqlite_database.run(LETTERS_TABLE.format(time="TEXT"))
    marks = str(tmp_path / "marks")
    bad = f'plugin: sql, options: {{url: "{sqlite_database.url}", table: letters, rollSeconds: 1}}'
    check(env, "table", "", bad, marks, "--marks", marks)
    id = env.client.named("table")
    refused = onyx(env.settings, "redrive", id, "work", "--history")
    assert refused.returncode == 2
    assert "beside letters in a table letters nothing can be kept: --marks" in refused.stderr
    kept = onyx(env.settings, "redrive", id, "work", "--history", "--marks", marks)
    assert kept.stdout.count("processed") == 1, kept.stdout + kept.stderr
    for option in ("--from", "--marks"):
        refused = onyx(env.settings, "redrive", id, "work", "--history", option, "")
        assert f"{option} is empty" in refused.stderr


@pytest.mark.slow
def test_letters_in_a_topic_go_in(env: TestEnv, kafka: KafkaBroker, tmp_path: Path) -> None:
    marks, topic = str(tmp_path / "marks"), kafka.create("dead-letters", 2)
    options = f'{{bootstrapServers: "{kafka.address}", topic: {topic}, rollSeconds: 1}}'
    check(env, "topic", "", f"plugin: kafka, options: {options}", marks, "--marks", marks)
