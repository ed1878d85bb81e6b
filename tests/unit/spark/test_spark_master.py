"""Where Spark runs, and with which settings: one rule for all that has a choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.model.job import Spark
from onyx.plugins.options import check_options
from onyx.plugins.protocol import PluginContext
from onyx.rights import Rights
from onyx.spark.child.request import StageRequest, Watch
from onyx.spark.input.options import SparkInputOptions
from onyx.spark.input.plugin import SparkInput
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.middle.request import request_of as middle_request
from onyx.spark.session.masters import SparkMaster, spark_of_job
from onyx.spark.stage.frames import request_of as output_request
from onyx.spark.stage.options import SparkOptions

FLEET = "sc://fleet-spark:15002"
MEMORY = {"spark.driver.memory": "4g"}
UTC = {"spark.sql.session.timeZone": "UTC"}
KINDS = ("output", "middle", "input")


def made(kind: str, folder: Path, context: PluginContext, **own: Any) -> StageRequest:
    """What a task of a kind asks Spark."""
    if kind == "input":
        return _snapshot(context, {"path": str(folder), "frame": "m:f", **own})
    if kind == "output":
        read, problems = check_options({"path": str(folder), "stage": "m:f", **own}, SparkOptions)
        assert read is not None, problems
        request = output_request(context, read)
        assert request is not None
        return request
    found, problems = check_options({"path": str(folder), **own}, MiddleOptions)
    assert found is not None, problems
    return middle_request(context, found)


def _snapshot(context: PluginContext, options: dict[str, Any]) -> StageRequest:
    read, problems = check_options(options, SparkInputOptions)
    assert read is not None, problems
    asked: list[StageRequest] = []

    def run(request: StageRequest, timeout_s: float, watch: Watch) -> None:
        asked.append(request)
        Path(request.target).mkdir()

    SparkInput(context, read, run).partitions()
    return asked[0]


def context(spark: Spark, workers: str = "local[*]") -> PluginContext:
    made = plugin_context({}, functions={"m:f": lambda frame: frame})
    return replace(made, spark=spark, spark_master=workers, upstream=("read",), spark_stage="m:f")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("job", "own", "found"),
    [
        (Spark(), {}, SparkMaster("local[*]", {})),
        (Spark("local[2]", MEMORY), {}, SparkMaster("local[2]", MEMORY)),
        (Spark(spark_conf=MEMORY), {}, SparkMaster("local[*]", MEMORY)),
        (Spark("local[2]", MEMORY), {"sparkConf": UTC}, SparkMaster("local[2]", MEMORY | UTC)),
        (
            Spark("local[2]", MEMORY), {"sparkConf": {"spark.driver.memory": "1g"}},
            SparkMaster("local[2]", {"spark.driver.memory": "1g"}),
        ),
        (Spark("local[2]", MEMORY), {"master": "local[1]"}, SparkMaster("local[1]", {})),
        (
            Spark("local[2]", MEMORY), {"master": "local[1]", "sparkConf": UTC},
            SparkMaster("local[1]", UTC),
        ),
    ],
)  # fmt: skip
def test_a_task_runs_where_it_says_or_where_its_job_says(
    kind: str, job: Spark, own: dict[str, Any], found: SparkMaster, tmp_path: Path
) -> None:
    request = made(kind, tmp_path, context(job), **own)
    assert SparkMaster(request.master, request.spark_conf) == found


def test_a_job_says_it_for_all_that_have_no_options_of_their_own() -> None:
    assert spark_of_job(None, FLEET, Rights()) == SparkMaster(FLEET, {})
    assert spark_of_job(Spark("local[2]", MEMORY), FLEET, Rights()) == SparkMaster(
        "local[2]", MEMORY
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("job", "workers", "source"),
    [
        (Spark(FLEET), "local[*]", "spec.spark.master, because the task names none"),
        (Spark(), FLEET, "ONYX_SPARK_MASTER of the workers, because neither the task nor the job"),
        (Spark(spark_conf=MEMORY), FLEET, "ONYX_SPARK_MASTER of the workers"),
    ],
)
def test_settings_that_do_not_fit_the_master_are_refused_with_where_it_comes_from(
    kind: str, job: Spark, workers: str, source: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=source) as raised:
        made(kind, tmp_path, context(job, workers), sparkConf=MEMORY)
    assert "sparkConf.spark.driver.memory" in str(raised.value)
