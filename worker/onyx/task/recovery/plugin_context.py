"""What the plugin of a task is given."""

from __future__ import annotations

from onyx.plugins.options import own_options
from onyx.plugins.protocol import PluginContext
from onyx.task.task import Task


def plugin_context(task: Task) -> PluginContext:
    """What the plugin may know."""
    services, static = task.services, task.static
    replica = services.replica()
    slot = replica.task_slot_ids[task.job_id][task.name][task.peer]
    return PluginContext(
        job=task.job_id,
        job_name=static.job.name,
        task=task.name,
        peer=task.peer,
        slot=slot,
        incarnation=replica.groups_reverse_index[task.peer],
        options=own_options(static.entry),
        batch_size=static.entry.batch_size,
        clock=services.clock,
        resolve=services.resolve,
        permitted=services.permitted,
        wanted=lambda: task.wanted,
        data_dir=services.settings.data_dir,
    )
