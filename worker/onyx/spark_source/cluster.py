"""A client of the cluster whose jobs are read: which job there is, and where its output writes.

With `window_state` the only module here that reaches a cluster. No worker imports it.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from onyx.client.appending import addresses_of
from onyx.client.client import Client
from onyx.errors import UserError
from onyx.flow.columns.schemas import arrow_schema
from onyx.ids import JobId
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.model.job import CatalogEntry, Job
from onyx.model.report import listed, nearest
from onyx.settings import Settings, from_environment
from onyx.spark_source.options import SourceOptions, WriteOptions
from onyx.spark_source.outputs import FoundOutput, output_at, readable
from onyx.storage.opening import absolute


def find(options: SourceOptions) -> FoundOutput:
    """The output of a job and a task.

    Raises:
        UserError: there is no such job or task, or its output cannot be read.
        Unavailable: ZooKeeper does not answer.
    """
    assert options.job is not None, "checked with the options"
    with connect(options) as client:
        entry = _output(job_of(client, options.job), options)
    path = absolute(str(entry.options["path"]), settings(options).data_dir)
    frame = entry.options.get("frame")
    output = output_at(path, options, entry.plugin, frame)
    # A result has other columns than the segments of which it was made.
    return FoundOutput(output, arrow_schema(entry) if output.content == "parts" else None)


def workers(options: WriteOptions) -> list[str]:
    """Addresses of the workers. Raises Unavailable: there is none, or ZooKeeper does not answer."""
    with connect(options) as client:
        return addresses_of(client.replica())


def settings(options: SourceOptions | WriteOptions) -> Settings:
    """The settings: those of ONYX_* variables, with what the options say."""
    found = from_environment(os.environ)
    if options.zookeeper is not None:
        address = replace(found.zookeeper, address=options.zookeeper)
        found = replace(found, zookeeper=address)
    if options.tenancy is not None:
        found = found.of(options.tenancy)
    return found


def connect(options: SourceOptions | WriteOptions) -> Client:
    """A client of the cluster; close it."""
    chosen = settings(options)
    return Client(ZooKeeperClientLog(chosen), chosen.job_scheduler)


def job_of(client: Client, job: str) -> Job:
    """The job with this id. Raises UserError when there is none."""
    try:
        return client.job(JobId(job))
    except UserError as error:
        named = [str(each.id) for each in client.statuses() if each.name == job]
        if not named:
            raise
        raise UserError(
            f"{job!r} is the name of a job; option 'job' takes the id: {listed(named)}"
        ) from error


def _output(job: Job, options: SourceOptions) -> CatalogEntry:
    outputs = {entry.name: entry for entry in job.catalog if entry.type == "output"}
    entry = outputs.get(str(options.task))
    if entry is None:
        hint = nearest(str(options.task), outputs) or f"its outputs are {listed(list(outputs))}"
        raise UserError(f"job {options.job} has no output {options.task!r}: {hint}")
    readable(str(entry.plugin), f"task {entry.name} of job {options.job}")
    return entry
