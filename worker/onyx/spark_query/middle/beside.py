"""A Spark stage of the user runs in the Spark of its query, beside the query's own session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onyx.spark.child.request import StageRequest
from onyx.spark.child.run_stage import Turn, run
from onyx.spark.driver.request import QueryRequest
from onyx.spark.session.kept import sessions_beside


def run_beside(spark: Any, request: QueryRequest, asked: StageRequest) -> None:
    """Run a stage in the Spark of a query, in a session of its own. Raises like `run_stage.run`."""
    scratch = Path(request.scratch)
    with sessions_beside(spark, request.master, scratch, request.spark_conf) as sessions:
        run(asked, Turn(sessions, asked.name, scratch))
