"""A Spark stage of the user runs in the Spark of its query, beside the query's own session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onyx.spark.child.request import EXACT_TYPES, StageRequest
from onyx.spark.child.run_stage import Turn, run
from onyx.spark.driver.request import QueryRequest
from onyx.spark.session.kept import sessions_beside
from onyx.spark.session.masters import OF_SESSIONS

ROWS_OF_SPARK = {"spark.sql.execution.arrow.maxRecordsPerBatch": "10000"}
"""Spark's own: rows of a stage are rows, not batches of segments."""


def run_beside(spark: Any, request: QueryRequest, asked: StageRequest) -> None:
    """Run a stage in the Spark of a query, in a session of its own. Raises like `run_stage.run`."""
    scratch = Path(request.scratch)
    with sessions_beside(spark, request.master, scratch, request.spark_conf) as sessions:
        run(asked, Turn(sessions, asked.name, scratch))


def session_settings(request: QueryRequest, own: Mapping[str, str]) -> dict[str, str]:
    """What is set in the session of a stage.

    Args:
        own: `sparkConf` of the task.
    """
    given = {**request.spark_conf, **own}
    settable = {key: value for key, value in given.items() if key.startswith(OF_SESSIONS)}
    return {**EXACT_TYPES, **ROWS_OF_SPARK, **settable}
