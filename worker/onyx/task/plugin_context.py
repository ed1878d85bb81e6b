"""What the plugin of a task is given."""

from __future__ import annotations

from onyx.plugins.options import own_options
from onyx.plugins.protocol import PluginContext
from onyx.task.parts import Assignment, Program


def plugin_context(assignment: Assignment, program: Program) -> PluginContext:
    """What the plugin may know."""
    services = assignment.services
    replica = services.replica()
    slot = replica.task_slot_ids[assignment.job_id][assignment.task][assignment.peer]
    return PluginContext(
        job=assignment.job_id,
        job_name=program.job.name,
        task=assignment.task,
        peer=assignment.peer,
        slot=slot,
        incarnation=replica.groups_reverse_index[assignment.peer],
        options=own_options(program.entry),
        batch_size=program.entry.batch_size,
        clock=services.clock,
        resolve=services.resolve,
        permitted=services.permitted,
        wanted=assignment.wanted,
        data_dir=services.settings.data_dir,
    )
