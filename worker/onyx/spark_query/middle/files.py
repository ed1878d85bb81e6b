"""Where the Spark stages of a query have their files: below the `path` of each task, in a folder of
the worker and of the run (`spark.driver.leftovers`).
"""

from __future__ import annotations

from onyx.spark.middle.request import location_of_task
from onyx.spark_query.programs import Query
from onyx.storage.interface import Location


def folder_in(query: Query, task: str) -> Location:
    """The folder of a task with a Spark stage, in this run."""
    return location_of_task(query.plugins.context(task)) / _run(query)


def remove_run(query: Query, task: str) -> None:
    """Remove the folder of a task with all that is in it. Raises UserError, Unavailable."""
    location_of_task(query.plugins.context(task)).remove_tree(_run(query))


def parts_of(query: Query, task: str) -> Location:
    """Where what comes to the stage is written."""
    return folder_in(query, task) / "parts"


def _run(query: Query) -> str:
    return f"{query.request.incarnation}/{query.request.attempt}"
