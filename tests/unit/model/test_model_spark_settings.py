"""Settings of Spark in a job that Spark does not know or cannot read are told before it starts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onyx.errors import ManifestError
from onyx.model.job import CatalogEntry, Job, Spark
from onyx.model.notices import notices
from onyx.model.parsing.job import parse_manifest
from onyx.model.spark_settings import CHANNEL

HERE = "spec.spark.sparkConf"


def told(settings: dict[str, str]) -> list[str]:
    job = Job("j", (), (), spark=Spark("local[2]", settings), engine="spark")
    return [str(each) for each in notices(job)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.driver.memory", "4g"),
        ("spark.executor.memory", "512M"),
        ("spark.sql.shuffle.partitions", "8"),
        ("spark.sql.adaptive.enabled", "False"),
        ("spark.memory.fraction", "0.6"),
        ("spark.network.timeout", "120s"),
        ("spark.rpc.message.maxSize", "128"),
        ("spark.kryoserializer.buffer.max", "64mb"),
        ("spark.sql.parquet.compression.codec", "ZSTD"),
        ("spark.kubernetes.driver.service.ipFamilies", "IPv4,IPv6"),
        ("spark.jars.packages", "org.postgresql:postgresql:42.7.3"),
        ("spark.hadoop.fs.s3a.endpoint", "http://store:9000"),
        ("spark.executorEnv.LANG", "C"),
        ("spark.sql.catalog.lake.type", "rest"),
        ("spark.kubernetes.executor.label.team", "a"),
        ("spark.shuffle.io.maxRetries", "5"),
        ("spark.app.name", "ours"),
    ],
)
def test_a_setting_that_spark_takes_is_no_matter(key: str, value: str) -> None:
    assert refused({key: value}) == []
    assert [each for each in told({key: value}) if CHANNEL not in each] == []


def refused(settings: dict[str, str], of_task: bool = False) -> list[str]:
    conf = {"sparkConf": settings}
    spec: dict[str, Any] = {
        "workflow": [["read", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "files", "options": {"path": "in.jsonl"}},
            {"name": "write", "type": "output", "plugin": "spark", "options": {"path": "out"}},
        ],
    }
    if of_task:
        spec["catalog"][1]["options"] |= conf
    else:
        spec["spark"] = conf
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
    try:
        parse_manifest(json.dumps({**head, "spec": spec}).encode())
    except ManifestError as error:
        return [str(each).partition(": ")[2] for each in error.problems]  # behind file and line
    return []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("spark.driver.memory", "4gigs", 'is "4gigs", with which Spark does not start'),
        ("spark.driver.memory", "4gb", "(it is a size such as 512m or 4g)"),
        ("spark.sql.shuffle.partitions", "lots", "(it is a whole number)"),
        ("spark.sql.shuffle.partitions", "", "(it is a whole number)"),
        ("spark.sql.adaptive.enabled", "yes", "(it is true or false)"),
        ("spark.network.timeout", "2 fortnights", "(it is a time such as 30s or 5min)"),
        ("spark.memory.fraction", "half", "(it is a number)"),
        ("spark.scheduler.mode", "LIFO", "(it is one of FAIR, FIFO, NONE)"),
    ],
)
def test_one_that_spark_cannot_read_is_refused_with_its_key(
    key: str, value: str, said: str
) -> None:
    (found,) = refused({key: value})
    assert found.startswith(f'{HERE}["{key}"]: ')
    assert said in found
    (found,) = refused({key: value}, of_task=True)
    assert found.startswith(f'spec.catalog[1].options.sparkConf["{key}"]: ')


def test_settings_of_a_job_that_does_not_use_spark_are_told() -> None:
    """The same file may run with `--engine spark`."""
    entry = CatalogEntry("out", "output", plugin="blackhole")
    (found,) = notices(Job("j", (), (entry,), spark=Spark("local[2]", {})))
    assert str(found).startswith("spec.spark: has no effect here, because nothing of this job")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("spark.sql.shufle.partitions", "8", "(did you mean spark.sql.shuffle.partitions?)"),
        ("spark.diver.memory", "4g", "is no setting of Spark, and has no effect unless a jar of"),
        ("spark.databricks.delta.x", "1", "has no effect unless a jar of yours reads it"),
        ("sql.shuffle.partitions", "8", "has no effect: Spark's settings begin with spark."),
    ],
)
def test_one_that_is_unknown_is_told_with_its_key(key: str, value: str, said: str) -> None:
    (found,) = told({key: value})
    assert found.startswith(f'{HERE}["{key}"]: ')
    assert said in found


def test_settings_of_a_task_are_told_too() -> None:
    entry = CatalogEntry("out", "output", plugin="spark", options={"sparkConf": {"spark.x": 1}})
    (found,) = notices(Job("j", (), (entry,)))
    assert found.path == 'spec.catalog[0].options.sparkConf["spark.x"]'
