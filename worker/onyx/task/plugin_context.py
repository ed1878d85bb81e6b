"""What the plugin of a task is given."""

from __future__ import annotations

from functools import partial

from onyx.flow.schemas import arrow_schema
from onyx.model.workflow import parents
from onyx.plugins.options import alike, own_options
from onyx.plugins.protocol import PluginContext
from onyx.task.parts import Program
from onyx.task.seal_progress import report, stage_ended


def plugin_context(program: Program) -> PluginContext:
    """What the plugin may know."""
    services = program.services
    replica = services.replica()
    slot = replica.run(program.job_id).slots[program.task][program.assignment.peer]
    return PluginContext(
        job=program.job_id,
        job_name=program.job.name,
        task=program.task,
        peer=program.assignment.peer,
        slot=slot,
        incarnation=replica.groups_reverse_index[program.assignment.peer],
        options=own_options(program.entry),
        batch_size=program.entry.batch_size,
        batch_format=program.entry.batch_format,
        schema=arrow_schema(program.entry),
        clock=services.clock,
        resolve=services.resolve,
        permitted=services.permitted,
        wanted=program.assignment.wanted,
        data_dir=services.settings.data_dir,
        spark_master=services.settings.spark_master,
        progress=partial(report, program.seal_progress, program.metrics),
        upstream=parents(program.job.workflow)[program.task],
        spark_stage=program.entry.spark_stage,
        attempts_max=services.settings.task.seal_attempts_max,
        stage_ended=partial(stage_ended, program.metrics),
        alike=alike(program.job, program.entry),
    )
