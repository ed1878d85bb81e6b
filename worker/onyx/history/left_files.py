"""Where a job on Spark may have left files: snapshots of DataFrames as inputs, and bundles of
stages in the middle. A document beside the log says so from when the job is forgotten until they
are removed.
"""

from __future__ import annotations

import msgspec

from onyx.base.path_names import is_path_name
from onyx.base.structs import prepared
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.model.plugins import runs_spark


@prepared
class LeftFiles(msgspec.Struct, frozen=True):
    """The files of one task."""

    path: str
    """The path as the job says it."""
    name: str
    """Name of the folder below."""


def left_by(job_id: JobId, job: Job) -> list[LeftFiles]:
    """What a job may have left, whether it is there or not."""
    found = []
    for entry in job.catalog:
        reads = entry.type == "input" and runs_spark(entry.type, entry.plugin)
        path = entry.options.get("path")
        named = is_path_name(job_id) and is_path_name(entry.name)
        if isinstance(path, str) and named and (reads or entry.stage is not None):
            found.append(LeftFiles(path, f"{job_id}.{entry.name}"))
    return found
