"""What lies beside the log of jobs that are forgotten: found, noted, deleted.

A job on Spark may have left files: snapshots of DataFrames as inputs, and bundles of stages in the
middle. A document beside the log says where, from when the job is forgotten until they are removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from onyx.base.path_names import is_path_name
from onyx.base.structs import prepared
from onyx.errors import StateError, Unavailable, UserError
from onyx.ids import JobId
from onyx.log import documents
from onyx.log.interface import LogReader
from onyx.model.job import Job
from onyx.model.parsing.mapping import stored_job
from onyx.model.plugins import runs_spark
from onyx.replica.spec import SPARK_TAG
from onyx.replica.state import Replica

logger = logging.getLogger("onyx.history")
RemoveState = Callable[[JobId], None]
"""Deletes the state of a job. May raise Unavailable or UserError: it is tried again."""
RemoveFiles = Callable[[str, str], bool]
"""Removes a folder with a name in the location that a job names; False: it is tried again."""


def note_left_files(log: LogReader, replica: Replica, jobs: Sequence[JobId]) -> None:
    """Note beside the log where jobs on Spark that are about to be forgotten may have left files:
    afterwards nobody knows."""
    for job in jobs:
        record = replica.records.get(job)
        if record is None or not record.spec.digest:
            continue
        if not any(SPARK_TAG in task.required_tags for task in record.spec.tasks):
            continue
        try:
            found = left_by(job, stored_job(log.get_chunk(record.spec.digest), job))
        except UserError as error:
            logger.warning("what job %s has left is not known: %s", job, error)
            continue
        if found:
            log.put_document(documents.left_files(job), msgspec.json.encode(found), None)


def sweep_documents(
    log: LogReader,
    now: Callable[[], Replica],
    remove_state: RemoveState,
    remove_files: RemoveFiles | None = None,
) -> bool:
    """Delete what lies beside the log of jobs without a record, and reports of groups that are no
    members.

    Args:
        now: reads the newest replica.
        remove_files: None if the locations of jobs are not seen from here. What says where they are
            then stays.

    Returns:
        Whether no state is left of any job without a record.
    """
    reports = {job: log.list_documents(f"stall/{job}") for job in log.list_folders("stall")}
    found = {
        "frontier": log.list_folders("frontier"),
        "exception": log.list_documents("exception"),
        "code": log.list_documents("code"),
        "query": log.list_documents("query"),
        "stall": tuple(reports),
        "outcome": log.list_folders("outcome"),
    }
    with_state, with_files = log.list_documents("location"), log.list_documents("files")
    replica = now()
    for folder, jobs in found.items():
        for job in jobs:
            if JobId(job) not in replica.records:
                log.delete_documents(f"{folder}/{job}")
    for job, groups in reports.items():
        for group in groups if JobId(job) in replica.records else ():
            if group not in replica.groups_index:
                log.delete_documents(f"stall/{job}/{group}")
    for each in with_files:
        if remove_files is not None and JobId(each) not in replica.records:
            _remove_files(log, JobId(each), remove_files)
    left = [job for each in with_state if (job := JobId(each)) not in replica.records]
    removed = [_removed(log, job, remove_state) for job in left]
    return all(removed)


def _remove_files(log: LogReader, job: JobId, remove_files: RemoveFiles) -> None:
    """A folder that another job still reads stays, and is looked at again."""
    path = documents.left_files(job)
    document = log.get_document(path)
    found: list[LeftFiles] = []
    try:
        if document is not None:
            found = documents.decoded(job, path, document.data, list[LeftFiles])
    except StateError as error:
        logger.warning("what job %s has left stays where it is: %s", job, error)
    removed = [remove_files(each.path, each.name) for each in found]
    if all(removed):
        log.delete_documents(path)


def _removed(log: LogReader, job: JobId, remove_state: RemoveState) -> bool:
    try:
        remove_state(job)
    except (Unavailable, UserError) as error:
        logger.warning("the state of job %s, which was collected, is still there: %s", job, error)
        return False
    log.delete_documents(documents.location(job))
    return True


def named(log: LogReader, replica: Replica) -> set[str]:
    """The chunks that a replica names, and what lies beside the log."""
    found: set[str] = set()
    for job, record in replica.records.items():
        found.add(record.spec.digest)
        found.update(each.digest for each in record.partitions.values())
        if record.spec.inputs == record.spec.outputs:  # on Spark
            query = log.get_document(documents.committed_query(job))
            found.add(documents.chunk_of(query) or "" if query is not None else "")
    found.discard("")
    return found


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
