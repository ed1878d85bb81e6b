"""What the plugin of a task is given."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.context import context_of
from onyx.plugins.protocol import PluginContext
from onyx.rights import rights_of
from onyx.task.other_jobs import journal_of, output_of
from onyx.task.parts.runtime import Runtime
from onyx.task.seal_progress import report, stage_ended
from onyx.task.services import Services
from onyx.task.source.frontier import stored_cursors


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
        upgrades=replica.upgrades(job_id),
        slot=replica.run(job_id).slots[runtime.task][peer],
        wanted=runtime.assignment.wanted,
        wake=runtime.assignment.wake,
        progress=partial(report, runtime.seal_progress, runtime.metrics),
        attempts_max=services.settings.task.seal_attempts_max,
        stage_ended=partial(stage_ended, runtime.seal_progress, runtime.metrics),
        metrics=runtime.metrics,
        retry_delay=runtime.assignment.retry_delay,
        cursors=partial(stored_cursors, services, job_id, runtime.task),
    )
