"""Whether the worker sees what the processes of Spark put on their disks."""

from __future__ import annotations

from onyx.errors import UserError
from onyx.spark.session.masters import is_connect
from onyx.spark_query.programs import Query


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
