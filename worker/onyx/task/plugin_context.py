"""What plugins that are made in a worker are given: that of a task, and those with which a worker
publishes what the query of a job on Spark has staged.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onyx.base.on_demand import OnDemand
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.context import context_of
from onyx.plugins.protocol import Output, PluginContext
from onyx.rights import rights_of
from onyx.task.other_jobs import journal_of, output_of
from onyx.task.parts import Assignment, Runtime
from onyx.task.seal_progress import count_stage_run, report_seal
from onyx.task.services import Services
from onyx.task.source.frontier import stored_cursors

if TYPE_CHECKING:
    from onyx.spark.driver.outputs import Outputs

_OUTPUTS: OnDemand[type[Outputs]] = OnDemand("onyx.spark.driver.outputs:Outputs")


def context_in_process(
    services: Services,
    job: Job,
    entry: CatalogEntry,
    job_id: JobId,
    peer: PeerId,
    incarnation: GroupId,
) -> PluginContext:
    """What any plugin that is made in a worker process may know."""
    context = context_of(job, entry, job_id, peer, incarnation, services.clock, services.resolve)
    return replace(
        context,
        permitted=services.permitted,
        rights=rights_of(services.settings),
        data_dir=services.settings.data_dir,
        spark_master=services.settings.spark_master,
        tracked="at-most-once" not in (job.guarantee, entry.guarantee),
        mailboxes=services.mailboxes,
        durable_store=partial(services.state_store, durable=True),
        output_of=partial(output_of, services),
        journal_of=partial(journal_of, services),
    )


def plugin_context(runtime: Runtime) -> PluginContext:
    """What the plugin of a peer's task may know."""
    services, peer, program = runtime.services, runtime.assignment.peer, runtime.program
    replica, job_id = services.replica(), runtime.job_id
    incarnation = replica.groups_reverse_index[peer]
    return replace(
        context_in_process(services, program.job, program.entry, job_id, peer, incarnation),
        slot=replica.run(job_id).slots[runtime.task][peer],
        wanted=runtime.assignment.wanted,
        wake=runtime.assignment.wake,
        progress=partial(report_seal, runtime.seal_progress, runtime.metrics),
        attempts_max=services.settings.task.seal_attempts_max,
        stage_ended=partial(count_stage_run, runtime.seal_progress, runtime.metrics),
        metrics=runtime.metrics,
        retry_delay=runtime.assignment.retry_delay,
        cursors=partial(stored_cursors, services, job_id, runtime.task),
    )


# --- a job on Spark -----------------------------------------------------------------------------


def outputs_of(assignment: Assignment, job_id: JobId, job: Job) -> Outputs:
    """The outputs of a job, which is that of the assignment or the one that it upgrades."""
    makers = {
        entry.name: partial(_made, assignment, job_id, job, entry)
        for entry in job.catalog
        if entry.type == "output"
    }
    return _OUTPUTS.load()(makers, assignment.wanted)


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
