"""The engine of a job, as its manifest and the command line choose it."""

from __future__ import annotations

import pytest

from onyx.errors import ManifestError
from onyx.model.job import Job, Spark
from onyx.model.parsing.job import parse_file, parse_mapping, to_mapping

MANIFEST = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: hello}
spec:
  %s
  workflow: [[read, write]]
  catalog:
    - {name: read, type: input, plugin: files, options: {path: in.jsonl}}
    - {name: write, type: output, plugin: files, options: {path: out}}
"""
ON_SPARK = 'engine: spark\n  spark: {master: "local[2]"}'


def parsed(keys: str, engine: str | None = None) -> Job:
    return parse_file(MANIFEST % keys, "job.yaml", engine=engine)[0]


@pytest.mark.parametrize(
    ("keys", "chosen", "engine", "spark"),
    [
        ("guarantee: at-least-once", None, "peers", None),
        ("guarantee: at-least-once", "spark", "spark", None),
        (ON_SPARK, None, "spark", Spark("local[2]")),
        (ON_SPARK, "spark", "spark", Spark("local[2]")),
        (ON_SPARK, "peers", "peers", None),
    ],
)
def test_who_submits_a_job_may_choose_another_engine_than_its_file(
    keys: str, chosen: str | None, engine: str, spark: Spark | None
) -> None:
    job = parsed(keys, chosen)
    assert (job.engine, job.spark) == (engine, spark)


def test_rules_are_checked_for_the_engine_that_was_chosen() -> None:
    upgrade = "upgrade: {from: old-1}"
    assert parsed(upgrade).upgrade is not None
    with pytest.raises(ManifestError, match=r"spec\.upgrade: is not for engine: spark"):
        parsed(upgrade, "spark")


@pytest.mark.parametrize("keys", ["upgrade: {from: old-1}", "upgradePolicy: KeepState"])
def test_a_job_on_spark_whose_inputs_have_no_end_may_keep_its_state(keys: str) -> None:
    endless = MANIFEST.replace("plugin: files, options: {path: in.jsonl}", "plugin: 'feeds:mine'")
    job = parse_file(endless % f"engine: spark\n  {keys}", "job.yaml")[0]
    assert job.engine == "spark"


def test_a_job_on_spark_is_stored_and_read_back_as_it_is() -> None:
    conf = "{spark.sql.shuffle.partitions: '8', empty: ''}"
    job = parsed(f"engine: spark\n  spark: {{sparkConf: {conf}}}")
    assert parse_mapping(to_mapping(job)) == job
