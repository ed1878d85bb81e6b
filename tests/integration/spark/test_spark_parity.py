"""The same jobs on peers and on Spark: examples, the original's cases, and jobs made by hypothesis.

Hundreds of small jobs take as long as one, because they run as parts of few large ones, in one
session of Spark and one cluster. What differs for a reason is listed in
`tests/conformance/on_spark/differs.yaml`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.conformance.on_spark import drawn, examples, jobs, windows
from tests.conformance.on_spark.merged import Rows, merged, packed, written
from tests.conformance.on_spark.table import surprises
from tests.support.spark.query import publish_all, request_of, run_query
from tests.support.spark.session import MASTER, local_spark

from onyx.errors import UserError
from onyx.model.canonical import to_mapping
from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest, parse_mapping
from onyx.spark.child.request import StageRequest, Watch
from onyx.spark.compiler.compile import compile_job
from onyx.spark.middle.spool import StageSpool
from onyx.spark_query.middle.stages import run_beside
from onyx.spark_query.session import opened
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
CONF = {"spark.sql.shuffle.partitions": "3"}
PEERS = 120
WAIT_S = 400.0
MADE = 16
"""Jobs at once, of at most five tasks each."""
NOTHING = b"""
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: nothing}
spec:
  workflow: [[read, drop]]
  catalog:
    - {name: read, type: input, plugin: sequence, options: {segments: []}}
    - {name: drop, type: output, plugin: blackhole}
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    request = request_of(parse_manifest(NOTHING), folder, (), master=MASTER, spark_conf=CONF)
    with pytest.MonkeyPatch.context() as patch:
        examples.importable(patch)
        with local_spark(folder, partial(opened, request)) as session:
            yield session


@pytest.fixture(scope="module")
def env(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestEnv]:
    """After Spark, which has the examples importable, and runs the stages of peers as well."""
    folder = tmp_path_factory.mktemp("stages")
    request = request_of(parse_manifest(NOTHING), folder, (), master=MASTER, spark_conf=CONF)

    def run(asked: StageRequest, timeout_s: float, watch: Watch) -> None:
        run_beside(spark, request, asked)

    modules = ["baskets", "boxes", "flights.columns", "flights.outliers", "flights.stages",
               "flights.tasks", "flights.windows", "hello", "market", "nexmark.columns",
               "nexmark.dicts", "orders", "visits", drawn.MODULE]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, with_test_env(PEERS, modules=modules) as env:
        patch.setattr(StageSpool.__init__, "__defaults__", (run,))
        yield env


def on_spark(
    jobs: Mapping[str, Job], folder: Path, modules: Iterable[str], spark: Any
) -> dict[str, Rows]:
    """What the jobs write when Spark runs them, few queries for all."""
    found: dict[str, Rows] = {}
    for lot in packed(jobs):
        request = request_of(merged(lot, folder / "spark"), folder, tuple(modules))
        reply = run_query(request, spark)
        assert reply.failure is None, reply.failure
        publish_all(request, reply)
        found |= written(lot, folder / "spark")
    return found


def on_peers(jobs: Mapping[str, Job], folder: Path, env: TestEnv) -> dict[str, Rows]:
    """What they write when peers do."""
    found: dict[str, Rows] = {}
    for lot in packed(jobs):
        status = env.run(merged(lot, folder / "peers"), WAIT_S)
        assert status.state == "completed", status
        found |= written(lot, folder / "peers")
    return found


def refused(made: Mapping[str, Callable[[], Job]]) -> tuple[dict[str, Job], dict[str, str | None]]:
    """Jobs that Spark can run, and why it does not run the others."""
    able: dict[str, Job] = {}
    why: dict[str, str | None] = {}
    for name, make in made.items():
        try:
            job = make()
            compile_job(parse_mapping(to_mapping(replace(job, engine="spark"))))
        except UserError as error:
            why[name] = str(error)
        else:
            able[name] = job
    return able, why


def differences(one: Rows, other: Rows) -> str | None:
    """How what a job wrote on one engine differs from what it wrote on the other."""
    for task, rows in one.items():
        if in_order(rows) != in_order(other[task]):
            return (
                f"{task} has {in_order(rows)[:20]} on Spark, {in_order(other[task])[:20]} on peers"
            )
    return None


def _same(job: Job) -> Job:
    return job


def in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in examples.comparable(rows))


@pytest.mark.slow
def test_examples_write_the_same_rows_on_either_engine(
    tmp_path: Path, spark: Any, env: TestEnv
) -> None:
    files = examples.examples(tmp_path)
    able, found = refused({name: partial(_same, job) for name, job in files.items()})
    there = on_spark(able, tmp_path, examples.modules(able), spark)
    here = on_peers(able, tmp_path, env)
    found |= {name: differences(there[name], here[name]) for name in able}
    assert surprises("examples", found) == []
    assert all(any(rows.values()) for rows in here.values())


@pytest.mark.slow
def test_windows_of_the_cases_fire_as_on_peers(tmp_path: Path, spark: Any) -> None:
    cases = windows.window_cases()
    paths = {name: tmp_path / f"{number}.jsonl" for number, name in enumerate(cases)}
    able, found = refused(
        {name: partial(windows.job_of, case, paths[name]) for name, case in cases.items()}
    )
    for name in found:
        if "threw" in cases[name]["expected"]:  # as it should
            found[name] = None
    rows = on_spark(able, tmp_path, (windows.MODULE,), spark)
    found |= {name: windows.difference(cases[name], rows[name]["write"]) for name in able}
    assert surprises("windows", found) == []
    assert len(found) == 81


def test_whole_jobs_of_the_cases_write_what_these_expect(tmp_path: Path, spark: Any) -> None:
    cases = jobs.whole_jobs()
    able, found = refused(
        {name: partial(jobs.job_of, case, tmp_path) for name, case in cases.items()}
    )
    rows = on_spark(able, tmp_path, jobs.MODULES, spark)
    found |= {name: jobs.difference(cases[name], rows[name]) for name in able}
    assert surprises("jobs", found) == []


# Threads of the cluster use `random` while jobs are drawn, and jobs are long: a warning about that
# would take the place of what has failed.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@given(made=st.lists(drawn.jobs(), min_size=MADE, max_size=MADE))
@settings(
    max_examples=2, deadline=None, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
def test_jobs_made_by_hypothesis_write_the_same_rows_on_either_engine(
    made: list[Job], tmp_path_factory: pytest.TempPathFactory, spark: Any, env: TestEnv
) -> None:
    named = {f"job-{number}": job for number, job in enumerate(made)}
    folder = tmp_path_factory.mktemp("made")
    there = on_spark(named, folder, (drawn.MODULE,), spark)
    here = on_peers(named, folder, env)
    for name, job in named.items():
        difference = differences(there[name], here[name])
        assert difference is None, f"{difference}: {json.dumps(to_mapping(job))}"


def _same(job: Job) -> Job:
    return job
