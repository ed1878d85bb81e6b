"""Spark evaluates what a stage has made, and writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from onyx.base.path_names import PLAIN_NAMES, is_plain_name
from onyx.errors import FailsAgain, OnyxError
from onyx.model.report import show
from onyx.plugins.files.spark_footer import unreadable
from onyx.spark.child.request import StageRequest
from onyx.spark.objects.staged import write_list
from onyx.spark.objects.writing import write_objects
from onyx.spark.session.blame import blame

DEFAULT_OPTIONS = {"json": {"ignoreNullFields": "false"}}
"""Default options of formats, where Spark's own would lose something."""


def write(result: Any, request: StageRequest, may_write: Callable[[], None]) -> None:
    """Have Spark evaluate and write the result.

    Args:
        may_write: returns when a direct write may begin.
    """
    how = request.write
    if request.as_segments and (wrong := unreadable(result.schema.jsonValue())):
        raise FailsAgain(f"the result cannot become segments: {wrong}")
    options = {**DEFAULT_OPTIONS.get(how.format, {}), **how.options}
    for column in how.partition_by:
        if not is_plain_name(column):
            raise FailsAgain(f"write.partitionBy: {show(column)} is no name: {PLAIN_NAMES}")
    try:
        if request.objects is not None and not how.direct:
            written = write_objects(result, request.objects, how.format, options, how.partition_by)
            write_list(Path(request.target), written)
            return
        writer = result.write.format(how.format).options(**options)
        if how.partition_by:
            writer = writer.partitionBy(*how.partition_by)
        if how.direct:
            may_write()
            writer.mode(how.mode).save()
        else:  # Spark makes the target itself and writes nothing when it exists.
            writer.save(request.target)
    except OnyxError:
        raise
    except Exception as error:
        raise blame(error, of_user=True).error() from error
