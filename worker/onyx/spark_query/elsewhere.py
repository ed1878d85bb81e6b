"""Queries whose Spark runs elsewhere: what its processes do not see of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onyx.errors import UserError
from onyx.spark.driver.request import QueryRequest
from onyx.spark.session.masters import is_connect, is_local
from onyx.spark.session.shipping import ship_modules
from onyx.spark_query.programs import Query


def send_modules(spark: Any, request: QueryRequest) -> None:
    """Send the modules of the job to where Spark's Python runs, if that is elsewhere."""
    if not is_local(request.master):
        ship_modules(spark, request.modules, Path(request.scratch))


def require_shared_disk(query: Query) -> None:
    """The manifest may name no master; then that of the worker counts, which is known here.

    Raises:
        UserError: the master is a Spark Connect server, and the worker prints what fragments spool.
    """
    master = query.request.master
    if not is_connect(master):
        return
    for output in query.plan.outputs:
        if output.how == "spooled":
            raise UserError(
                f"task {output.task}: this worker prints the rows of stdout, and does not see "
                f"those of executors of {master}; set spec.spark.master to local[N] or "
                "spark://host:port, or take the plugin files"
            )
