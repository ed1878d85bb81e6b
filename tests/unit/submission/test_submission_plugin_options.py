"""Options of the built-in plugins are checked before a worker has the job."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from onyx.model.job import Job, Spark
from onyx.model.parsing.job import parse_mapping
from onyx.submission.job_checks import wrong_options

READ: dict[str, Any] = {"plugin": "sequence", "options": {"segments": []}}
WRITE: dict[str, Any] = {"plugin": "blackhole"}


def job(read: dict[str, Any] = READ, write: dict[str, Any] = WRITE) -> Job:
    return parse_mapping(
        {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": "j"},
            "spec": {
                "workflow": [["read", "write"]],
                "catalog": [
                    {"name": "read", "type": "input", "batchSize": 10, **read},
                    {"name": "write", "type": "output", "batchSize": 10, **write},
                ],
            },
        }
    )


def reported(checked: Job) -> list[str]:
    return [str(problem) for problem in wrong_options(checked)]


def test_a_job_whose_options_are_right() -> None:
    files = {"plugin": "files", "options": {"path": "in/*.csv", "types": {"n": "int"}}}
    spark = {"plugin": "spark", "options": {"path": "out", "stage": "my.stages:daily"}}
    assert reported(job(files, spark)) == []


@pytest.mark.parametrize(
    ("plugin", "options", "problem"),
    [
        ("sequence", {}, "segments: is missing"),
        ("files", {"paths": "x"}, "paths: is not known (did you mean path?)"),
        (
            "files",
            {"path": "x", "format": "lines"},
            "format: is 'lines', which is not offered (known are: csv, jsonl, parquet, text)",
        ),
        (
            "files",
            {"path": "x", "format": "csv", "types": {"a": "integer"}},
            "types[...]: is 'integer', which is not offered (did you mean int?)",
        ),
        ("files", {"path": 3}, "path: is wrong: expected `str | array`, got `int`"),
        ("files", {"path": "ftp://x/y"}, 'path: is "ftp://x/y", but there are only paths'),
        ("files", {"path": ["a", "s3:///b"]}, 'path: is "s3:///b", which names no bucket'),
        ("files", {"path": "a", "delimiter": ";;"}, "delimiter: must be one character"),
        ("files", {"path": "a", "header": False}, "columns: is missing: header: false"),
        ("files", {"path": "a", "types": {"n": "double"}}, "types"),
        ("generator", {"ratePerSecond": 0}, "ratePerSecond: is wrong: expected `float` > 0.0"),
        ("channel", {}, "channel: is missing"),
    ],
)
def test_a_wrong_option_of_an_input(plugin: str, options: dict[str, Any], problem: str) -> None:
    (found,) = reported(job({"plugin": plugin, "options": options}))
    assert found.startswith(f"spec.catalog[0].options.{problem}")


@pytest.mark.parametrize(
    ("plugin", "options", "problem"),
    [
        ("files", {"path": "o", "compression": "lz4"}, "compression: is 'lz4', but jsonl can be"),
        ("files", {"path": "o", "header": True}, "header: is not known"),
        ("blackhole", {"x": 1}, "x: is not known (known are: none)"),
        ("function", {}, "fn: is missing"),
        ("spark", {"path": "o"}, "stage: is missing"),
        ("spark", {"path": "s3://bucket/o", "stage": "s:s", "master": "yarn"}, "master: is 'yarn'"),
        ("stdout", {"pretty": True}, "pretty: is not known"),
    ],
)
def test_a_wrong_option_of_an_output(plugin: str, options: dict[str, Any], problem: str) -> None:
    (found,) = reported(job(write={"plugin": plugin, "options": options}))
    assert found.startswith(f"spec.catalog[1].options.{problem}")


def test_every_unknown_option_of_every_task_is_told() -> None:
    found = wrong_options(
        job({"plugin": "files", "options": {"a": 1, "b": 2}}, {**WRITE, "options": {"c": 3}})
    )
    assert [problem.path[len("spec.catalog") :] for problem in found] == [
        "[0].options.a",
        "[0].options.b",
        "[1].options.c",
    ]


def test_options_of_a_users_plugin_and_params_of_the_function_are_not_ours_to_check() -> None:
    own = {"plugin": "my.plugins:table", "options": {"anything": [1]}}
    read = {**READ, "fn": "my:fn", "params": ["scale"], "options": {"segments": [], "scale": 2}}
    assert reported(job(own)) == []
    assert reported(job(read)) == []


def test_two_results_need_two_places() -> None:
    """The second would be taken for the first, which is there."""
    checked = job(write={"plugin": "spark", "options": {"path": "out", "stage": "m:one"}})
    (read, write) = checked.catalog
    options = {"path": "./out/", "stage": "m:other"}
    again = replace(write, name="again", options=options)
    problems = reported(replace(checked, catalog=(read, write, again)))
    assert problems == [
        "spec.catalog[2].options.path: is that of task write too (each result needs its own, and "
        "outputs of one stage a `frame` each)"
    ]


def spark(master: str, **conf: str) -> list[str]:
    options = {"path": "out", "stage": "m:one", "master": master, "sparkConf": conf}
    found = reported(job(write={"plugin": "spark", "options": options}))
    return [each.removeprefix("spec.catalog[1].options.") for each in found]


@pytest.mark.parametrize(
    "master",
    ["local", "local[2]", "local[*]", "local[2, 3]", "spark://a:7077", "spark://a:7077,b:7077",
     "sc://host", "sc://host:15002", "sc://host:15002/;use_ssl=true;user_id=me"],
)  # fmt: skip
def test_masters_that_can_be_used(master: str) -> None:
    assert spark(master) == []


@pytest.mark.parametrize(
    ("master", "problem"),
    [
        (
            "k8s://https://host:6443",
            "Onyx starts no Spark executors on Kubernetes yet (run a Spark",
        ),
        ("yarn", "is 'yarn', which is no master that is known here (local[N], spark://host:port"),
        ("spark://", "no master that is known"),
        ("local[0]", "no master that is known"),
        ("sc://host:15002/;token=secret", "holds a secret, and a job is for many eyes (set SPARK_"),
    ],
)
def test_masters_that_cannot_be_used_are_refused_with_what_works(master: str, problem: str) -> None:
    (reported,) = spark(master)
    assert reported.startswith("master: ")
    assert problem in reported
    assert "secret" not in reported.partition("(")[0].replace("holds a secret", "")


def test_a_session_of_a_connect_server_has_no_settings_of_the_server() -> None:
    conf = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "8", "mine": "1"}
    (reported,) = spark("sc://host", **conf)
    assert reported.startswith("sparkConf.spark.driver.memory: is set where a Spark Connect server")
    assert spark("spark://host:7077", **conf) == []


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ([{"frame": "a", "stage": "m:f"}, {"frame": "b"}], []),
        ([{"frame": "a"}, {"frame": "b", "stage": "m:f"}], []),
        ([{"frame": "a", "stage": "m:f"}, {"frame": "a"}], ["2.path: is that of task write too"]),
        ([{"stage": "m:f"}, {"frame": "a"}], ["2.path: is that of task write too"]),
        (
            [{"frame": "a", "stage": "m:f"}, {"frame": "b", "stage": "m:f"}],
            ["2.stage: is given, and task write with the same path has one too"],
        ),
        (
            [{"frame": "a"}, {"frame": "b"}],
            ["1.stage: is missing in all outputs", "2.stage: is missing in all outputs"],
        ),
    ],
)
def test_outputs_of_one_path_are_frames_of_one_stage(
    outputs: list[dict[str, str]], expected: list[str]
) -> None:
    first, second = ({"path": "out", **options} for options in outputs)
    checked = job(write={"plugin": "spark", "options": first})
    (read, write) = checked.catalog
    both = (read, write, replace(write, name="again", options=second))
    problems = reported(replace(checked, catalog=both))
    found = [re.sub(r"spec\.catalog\[(\d)\]\.options", r"\1", each) for each in problems]
    assert len(found) == len(expected)
    assert all(each.startswith(start) for each, start in zip(found, expected, strict=True))


def test_what_spark_cannot_run_is_reported_where_spark_is_to_run_the_job() -> None:
    staged = {"plugin": "spark", "options": {"path": "out", "stage": "my.stages:daily"}}
    on_peers = job({"plugin": "generator", "options": {"fn": "app:made"}}, staged)
    on_spark = replace(on_peers, engine="spark")
    assert reported(on_peers) == []
    (problem,) = wrong_options(on_spark)
    assert problem.path == "spec.catalog[1].plugin"
    assert "inputs have no end" in problem.message


@pytest.mark.parametrize(
    ("spec", "entry", "refused"),
    [
        ({}, {}, False),
        ({"guarantee": "at-most-once"}, {}, True),
        ({}, {"guarantee": "at-most-once"}, True),
        ({"guarantee": "at-most-once", "engine": "spark"}, {}, False),
    ],
)
def test_a_group_hears_only_of_what_is_accounted_for(
    spec: dict[str, Any], entry: dict[str, Any], refused: bool
) -> None:
    place = {"bootstrapServers": "a:9092", "topic": "t", "consumerGroup": "g"}
    checked = job({"plugin": "kafka", "options": place})
    read, write = checked.catalog
    found = reported(replace(checked, catalog=(replace(read, **entry), write), **spec))
    assert (
        any(each.startswith("spec.catalog[0].options.consumerGroup: ") for each in found) == refused
    )


@pytest.mark.parametrize(
    ("spark", "path"),
    [
        (Spark("yarn"), "spec.spark.master"),
        (
            Spark("sc://host", {"spark.driver.memory": "4g"}),
            "spec.spark.sparkConf.spark.driver.memory",
        ),
    ],
    ids=["a master that is not known", "a setting of the server"],
)
def test_where_spark_is_to_run_a_job_is_checked_with_its_key(spark: Spark, path: str) -> None:
    found = wrong_options(replace(job(), engine="spark", spark=spark))
    assert [problem.path for problem in found] == [path]


def job_with_a_stage(engine: str = "peers", **options: Any) -> Job:
    return parse_mapping(
        {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": "j"},
            "spec": {
                "engine": engine,
                "workflow": [["read", "stage"], ["stage", "write"]],
                "catalog": [
                    {"name": "read", "type": "input", **READ},
                    {"name": "stage", "type": "function", "sparkStage": "m:f", "options": options},
                    {"name": "write", "type": "output", **WRITE},
                ],
            },
        }
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "path: is missing"),
        (
            {"path": "s3a://bucket/x"},
            'path: is "s3a://bucket/x", but there are only paths and URLs',
        ),
        ({"path": "x", "bundleSegments": 0}, "bundleSegments: is wrong"),
        ({"path": "x", "stage": "m:f"}, "stage: is not known"),
        ({"path": "x", "master": "k8s://x"}, "master: cannot be k8s://"),
        ({"path": "x", "schemas": {"raed": "n INT"}}, "schemas.raed: is no task upstream"),
    ],
)
def test_options_of_a_stage_in_the_middle(options: dict[str, Any], problem: str) -> None:
    (found,) = reported(job_with_a_stage(**options))
    assert found.startswith(f"spec.catalog[1].options.{problem}")


def test_a_stage_in_the_middle_whose_options_are_right() -> None:
    options = {"path": "x", "bundleSeconds": 5, "schemas": {"read": "n INT"}}
    assert reported(job_with_a_stage(**options)) == []


def test_a_stage_in_the_middle_of_a_job_on_spark_has_one_bundle() -> None:
    assert reported(job_with_a_stage("spark", path="x")) == []
    (found,) = reported(job_with_a_stage("spark", path="x", bundleSeconds=1))
    assert found.startswith(
        "spec.catalog[1].options.bundleSeconds: engine spark runs the stage once"
    )


HOSTILE = ["../..", "a/../b", "/etc", "a\n", "..", ".a", " a", "a;b", 'a"b', "\u202ea", "a" * 3_000]
"""Names; no table, column or frame can be called so."""


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:8])
@pytest.mark.parametrize(
    ("where", "plugin", "options"),
    [
        ("frame", "spark", lambda name: {"path": "out", "frame": name, "stage": "m:f"}),
        (
            "write.partitionBy[1]",
            "spark",
            lambda name: {"path": "o", "stage": "m:f", "write": {"partitionBy": ["a", name]}},
        ),
        ("table", "sql", lambda name: {"url": "sqlite:///a", "table": name}),
        ("schema", "sql", lambda name: {"url": "sqlite:///a", "table": "t", "schema": name}),
        ("positionsTable", "sql", lambda name: {**SQL, "table": "t", "positionsTable": name}),
    ],
    ids=["frame", "partitionBy", "table", "schema", "positionsTable"],
)
def test_a_hostile_name_is_refused_by_its_option(
    where: str, plugin: str, options: Callable[[str], dict[str, Any]], name: str
) -> None:
    (found,) = reported(job(write={"plugin": plugin, "options": options(name)}))
    assert found.startswith(f"spec.catalog[1].options.{where}: is ")
    assert len(found) < 400


SQL: dict[str, Any] = {"url": "sqlite:///a"}
GOOD_NAMES = ["flights", "Flights 2024", "\u00fcber", "_t$1", "a.b", "day-of-week"]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_name_of_a_table_or_column_may_be_any_words(name: str) -> None:
    spark = {"path": "out", "stage": "m:f", "write": {"partitionBy": [name]}}
    assert reported(job(write={"plugin": "spark", "options": spark})) == []
    assert reported(job(write={"plugin": "sql", "options": {**SQL, "table": name}})) == []


@pytest.mark.parametrize("path", ["../..", "out/../../etc", "a\\..\\b", "file:///x/../y", ".."])
def test_a_folder_of_spark_does_not_lead_out_of_one_that_it_names(path: str) -> None:
    reads = {"path": path, "format": "csv"}
    (read,) = reported(job(read={"plugin": "spark", "options": reads}))
    (written,) = reported(job(write={"plugin": "spark", "options": {"path": path, "stage": "m:f"}}))
    what = "options.path: has a part `..` (name the folder itself)"
    assert (read, written) == (f"spec.catalog[0].{what}", f"spec.catalog[1].{what}")


@pytest.mark.parametrize("plugin", ["files", "spark"])
def test_no_object_is_above_its_bucket(plugin: str) -> None:
    options = {"path": "s3://bucket/a/../../b"} | ({} if plugin == "files" else {"stage": "m:f"})
    (found,) = reported(job(write={"plugin": plugin, "options": options}))
    assert "options.path: is" in found
    assert "a key of an object has no part `..`" in found


@pytest.mark.parametrize("name", ["../..", "f", "os:system:x", "a" * 3_000])
def test_the_frame_of_an_input_is_the_name_of_a_function(name: str) -> None:
    (found,) = reported(job(read={"plugin": "spark", "options": {"path": "in", "frame": name}}))
    assert found.startswith("spec.catalog[0].options.frame: is not the name of a function")
