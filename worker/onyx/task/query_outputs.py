"""The outputs of a job on Spark, as a worker publishes what its query has staged."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from onyx.ids import JobId
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.protocol import Output, PluginContext
from onyx.spark.driver.outputs import Outputs
from onyx.task.parts.assignment import Assignment
from onyx.task.plugin_context import context_in_process


def outputs_of(assignment: Assignment, job_id: JobId, job: Job) -> Outputs:
    """The outputs of a job, which is that of the assignment or the one that it upgrades."""
    makers = {
        entry.name: partial(_made, assignment, job_id, job, entry)
        for entry in job.catalog
        if entry.type == "output"
    }
    return Outputs(makers, assignment.wanted)


def context_of_driver(
    assignment: Assignment, job_id: JobId, job: Job, entry: CatalogEntry, writer: str = ""
) -> PluginContext:
    """What a plugin may know of which the worker makes one beside the query."""
    services, peer = assignment.services, assignment.peer
    incarnation = services.replica().groups_reverse_index[peer]
    context = context_in_process(services, job, entry, job_id, peer, incarnation)
    return replace(context, wanted=assignment.wanted, writer=writer)


def _made(
    assignment: Assignment, job_id: JobId, job: Job, entry: CatalogEntry, writer: str
) -> Output:
    """A plugin with which what the query has staged for an output is published."""
    assert entry.plugin is not None, "validated: outputs name a plugin"
    context = context_of_driver(assignment, job_id, job, entry, writer)
    return assignment.services.build_output(entry.plugin, context)
