"""What the plugin of a task is given."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from onyx.plugins.context import context_of
from onyx.plugins.protocol import PluginContext
from onyx.task.parts.runtime import Runtime
from onyx.task.seal_progress import report, stage_ended
from onyx.task.source.frontier import stored_cursors


def plugin_context(runtime: Runtime) -> PluginContext:
    """What the plugin may know."""
    services, peer = runtime.services, runtime.assignment.peer
    replica = services.replica()
    context = context_of(
        runtime.program.job,
        runtime.program.entry,
        runtime.job_id,
        peer,
        replica.groups_reverse_index[peer],
        services.clock,
        services.resolve,
    )
    return replace(
        context,
        slot=replica.run(runtime.job_id).slots[runtime.task][peer],
        permitted=services.permitted,
        wanted=runtime.assignment.wanted,
        data_dir=services.settings.data_dir,
        spark_master=services.settings.spark_master,
        progress=partial(report, runtime.seal_progress, runtime.metrics),
        attempts_max=services.settings.task.seal_attempts_max,
        stage_ended=partial(stage_ended, runtime.seal_progress, runtime.metrics),
        cursors=partial(stored_cursors, services, runtime.job_id, runtime.task),
    )
