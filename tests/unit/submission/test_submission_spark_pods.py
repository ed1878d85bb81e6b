"""A job is held back when Spark's executors, which are pods, would not see its files."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from onyx.model.job import Job
from onyx.model.parsing.cluster import parse_cluster
from onyx.model.parsing.job import parse_mapping
from onyx.submission.spark_pods import SparkPods, spark_pods, unseen

SHARED: dict[str, Any] = {"data": {"claimName": "shared"}}
READ = {"name": "read", "type": "input", "plugin": "generator", "options": {"segments": 9}}
SINK = {"name": "write", "type": "output", "plugin": "blackhole"}


def pods(**spec: Any) -> SparkPods | None:
    given = {"zookeeper": {"address": "zk:2181"}, "spark": {}, **spec}
    given = {key: value for key, value in given.items() if value is not None}
    return spark_pods(
        parse_cluster(
            {
                "apiVersion": "onyx.dev/v1beta1",
                "kind": "OnyxCluster",
                "metadata": {"name": "fleet"},
                "spec": given,
            }
        )
    )


def job(*catalog: dict[str, Any], **spec: Any) -> Job:
    """A chain of tasks."""
    names = [each["name"] for each in catalog]
    workflow = [list(edge) for edge in itertools.pairwise(names)]
    return parse_mapping(
        {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": "sums"},
            "spec": {
                "guarantee": "exactly-once",
                "workflow": workflow,
                "catalog": [*catalog],
                **spec,
            },
        }
    )


def stage(path: str, **options: Any) -> dict[str, Any]:
    given = {"path": path, "stage": "sums:sums", **options}
    return {"name": "sums", "type": "output", "plugin": "spark", "options": given}


def middle(path: str, **options: Any) -> dict[str, Any]:
    given = {"path": path, **options}
    return {"name": "sums", "type": "function", "sparkStage": "sums:sums", "options": given}


def source(path: str) -> dict[str, Any]:
    given = {"path": path, "frame": "sums:frame"}
    return {"name": "sums", "type": "input", "plugin": "spark", "options": given}


def files(path: str) -> dict[str, Any]:
    options = {"path": path, "format": "jsonl"}
    return {"name": "sums", "type": "output", "plugin": "files", "options": options}


def windowed(read: dict[str, Any] = READ, **spec: Any) -> Job:
    """A job whose window is aggregated by Spark."""
    counted = {"name": "sums", "type": "reduce", "groupByKey": "k", "fluxPolicy": "continue"}
    window = {"id": "counts", "task": "sums", "type": "global", "aggregation": "count",
              "engine": "spark"}  # fmt: skip
    trigger = {"windowId": "counts", "type": "watermark", "refinement": "accumulating",
               "emit": "sums:row"}  # fmt: skip
    return job(read, counted, SINK, windows=[window], triggers=[trigger], **spec)


def found(of: Job, **cluster: Any) -> list[str]:
    seen = pods(**cluster)
    assert seen is not None
    return [str(each) for each in unseen(of, seen)]


WHOLE = {"engine": "spark"}
LOCAL = {"spark": {"master": "local[2]"}}
JOBS = {
    "a stage": job(READ, stage("out/sums")),
    "a stage in the middle": job(READ, middle("bundles"), SINK),
    "a source": job(source("snapshots"), SINK),
    "a whole job": job(READ, files("out"), **WHOLE),
    "a stage in the middle of one": job(READ, middle("bundles"), SINK, **WHOLE),
}


@pytest.mark.parametrize("name", JOBS)
def test_without_a_volume_a_folder_is_refused_with_task_key_and_what_to_set(name: str) -> None:
    (problem,) = found(JOBS[name])
    place = next(n for n, each in enumerate(JOBS[name].catalog) if each.name == "sums")
    assert problem.startswith(f"spec.catalog[{place}].options.path: of task sums is ")
    assert "executors of OnyxCluster fleet do not see" in problem
    assert "set spec.data of the cluster" in problem
    assert "local[*]" in problem


@pytest.mark.parametrize("name", JOBS)
def test_relative_paths_are_on_the_volume(name: str) -> None:
    assert found(JOBS[name], **SHARED) == []


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/data/sums", True),
        ("/data", True),
        ("file:///data/sums", True),
        ("s3://bucket/sums", True),
        ("/tmp/sums", False),
        ("/database/sums", False),
        ("/data/../tmp/sums", False),
        ("../sums", False),
    ],
)
def test_other_paths_must_be_below_its_mount(path: str, seen: bool) -> None:
    of = job(READ, files(path), **WHOLE)
    problems = found(of, **SHARED)
    assert (problems == []) is seen
    assert all("take a path below /data" in each for each in problems)


@pytest.mark.parametrize(
    "of",
    [
        job(READ, stage("s3://bucket/out")),
        job(READ, middle("s3://bucket/bundles"), SINK),
        windowed(),
        job(READ, files("s3://bucket/out"), **WHOLE),
    ],
    ids=["stage", "middle", "window", "whole job"],
)
def test_what_is_in_an_object_store_needs_no_volume(of: Job) -> None:
    assert found(of, settings={"ONYX_STATE_URL": "s3://bucket/state"}) == []


@pytest.mark.parametrize(
    "of",
    [
        job(READ, stage("out/sums", master="local[2]")),
        job(READ, stage("out/sums", master="sc://elsewhere:15002")),
        job(READ, middle("bundles", master="local[1]"), SINK),
        job(READ, files("out")),
        job(READ, files("out"), **WHOLE, **LOCAL),
        windowed(**LOCAL),
        job(READ, stage("out/sums"), **LOCAL),
        job(READ, middle("bundles"), SINK, **LOCAL),
    ],
    ids=[
        "local stage",
        "another server",
        "local middle",
        "peers",
        "local job",
        "local window",
        "stage of a local job",
        "middle of a local job",
    ],
)
def test_what_does_not_run_in_these_pods_needs_no_volume(of: Job) -> None:
    assert found(of) == []


def test_a_stage_with_a_master_of_its_own_runs_there_whatever_its_job_says() -> None:
    here = "sc://fleet-spark.onyx.svc:15002"
    assert len(found(job(READ, stage("out/sums", master=here), **LOCAL))) == 1


def test_a_frame_runs_where_its_stage_does() -> None:
    outputs = [
        {"name": name, "type": "output", "plugin": "spark",
         "options": {"path": "out", "frame": name, **more}}
        for name, more in (("a", {}), ("b", {"stage": "sums:joined", "master": "local[2]"}))
    ]  # fmt: skip
    of = job(READ, *outputs, workflow=[["read", "a"], ["read", "b"]])
    assert found(of) == []


def test_a_window_by_spark_needs_its_state_on_the_volume() -> None:
    (problem,) = found(windowed())
    assert problem.startswith(
        "spec.windows[0].engine: window counts of task sums has its files in "
    )
    assert "ONYX_STATE_URL" in problem
    assert found(windowed(), **SHARED) == []
    own = {"settings": {"ONYX_STATE_URL": "/own/state"}}
    assert "/own/state (ONYX_STATE_URL)" in found(windowed(), **SHARED, **own)[0]
    assert found(windowed(), envFrom=[{"secretRef": {"name": "s3"}}]) == [], "it may say where"


def test_windows_over_inputs_without_end_need_their_state_on_the_volume() -> None:
    """Executors read and write it between micro-batches."""
    endless = {**READ, "options": {}}
    own = {"settings": {"ONYX_STATE_URL": "/own/state"}}
    assert found(job(endless, files("out"), **WHOLE), **SHARED, **own) == []
    counts = windowed(**WHOLE)
    assert found(counts, **SHARED, **own) == [], "with an end nothing is between"
    counts = windowed(endless, **WHOLE)
    assert found(counts, **SHARED) == []
    (problem,) = found(counts, **SHARED, **own)
    assert problem.startswith("spec.windows[0]: window counts of task sums has its state between ")
    assert "/own/state (ONYX_STATE_URL)" in problem
    assert found(windowed(endless, **WHOLE, **LOCAL), **SHARED, **own) == []


@pytest.mark.parametrize(
    "keeps",
    [
        {"processor": "sums:Sums"},
        {"fn": "sums:add", "state": {"sum": "value"}, "groupByKey": "k", "fluxPolicy": "continue"},
    ],
)
def test_other_states_over_inputs_without_end_need_to_be_on_the_volume(
    keeps: dict[str, Any],
) -> None:
    task, endless = {"name": "sums", "type": "function", **keeps}, {**READ, "options": {}}
    own = {"settings": {"ONYX_STATE_URL": "/own/state"}}
    assert found(job(READ, task, SINK, **WHOLE), **SHARED, **own) == []
    assert found(job(endless, task, SINK, **WHOLE), **SHARED) == []
    (problem,) = found(job(endless, task, SINK, **WHOLE), **SHARED, **own)
    assert problem.startswith("spec.catalog[1]: task sums has its state between micro-batches in ")


@pytest.mark.parametrize(
    "spec",
    [
        {"spark": None},
        {"settings": {"ONYX_SPARK_MASTER": "local[2]"}},
        {"env": [{"name": "ONYX_DATA_DIR",
                  "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]},
    ],
    ids=["no executors", "another default", "known in the pod only"],
)  # fmt: skip
def test_nothing_is_held_against_a_cluster_of_which_nothing_is_known(spec: dict[str, Any]) -> None:
    assert pods(**spec) is None


def test_the_data_folder_may_be_another_one() -> None:
    of = job(READ, files("out"), **WHOLE)
    assert found(of, **SHARED, settings={"ONYX_DATA_DIR": "/data/team"}) == []
    (problem,) = found(of, **SHARED, settings={"ONYX_DATA_DIR": "/scratch"})
    assert "is /scratch/out" in problem
