"""Where the Spark stages of a query have their files: below the `path` of each task, in a folder of
the worker and of the run (`spark.driver.leftovers`).
"""

from __future__ import annotations

from onyx.spark.driver.storage import Place
from onyx.spark.middle.request import place_of
from onyx.spark_query.programs import Query


def folder_in(query: Query, task: str) -> Place:
    """The folder of a task with a Spark stage, in this run."""
    request = query.request
    return place_of(query.context(task)) / request.incarnation / request.attempt


def parts_of(query: Query, task: str) -> Place:
    """Where what comes to the stage is written."""
    return folder_in(query, task) / "parts"
