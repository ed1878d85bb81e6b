"""What the plugin of a task is given."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from onyx.plugins.context import context_of
from onyx.plugins.protocol import PluginContext
from onyx.task.parts import Program
from onyx.task.seal_progress import report, stage_ended
from onyx.task.source.frontier import stored_cursors


def plugin_context(program: Program) -> PluginContext:
    """What the plugin may know."""
    services, peer = program.services, program.assignment.peer
    replica = services.replica()
    context = context_of(
        program.job,
        program.entry,
        program.job_id,
        peer,
        replica.groups_reverse_index[peer],
        services.clock,
        services.resolve,
    )
    return replace(
        context,
        slot=replica.run(program.job_id).slots[program.task][peer],
        permitted=services.permitted,
        wanted=program.assignment.wanted,
        data_dir=services.settings.data_dir,
        spark_master=services.settings.spark_master,
        progress=partial(report, program.seal_progress, program.metrics),
        attempts_max=services.settings.task.seal_attempts_max,
        stage_ended=partial(stage_ended, program.seal_progress, program.metrics),
        cursors=partial(stored_cursors, services, program.job_id, program.task),
    )
