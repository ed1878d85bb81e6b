"""The plugin of a task, and what reads or writes with it."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from onyx.model.plugins import STAGE
from onyx.program.reading.event_times import SourceTimes
from onyx.task.channels.event_time import needs
from onyx.task.parts.runtime import Runtime
from onyx.task.plugin_context import plugin_context
from onyx.task.recovery.upgraded import initialized_journal
from onyx.task.sink.sink import Sink
from onyx.task.source.source import Source
from onyx.task.table import Kind


def build_plugin(runtime: Runtime) -> tuple[Source | None, Sink | None, bool]:
    """The source of an input, the sink of an output, or both of a stage, which reads columns; and
    whether steps never block."""
    entry, services, kind = runtime.program.entry, runtime.services, runtime.assignment.kind
    plugin, source, sink, cooperative = entry.plugin, None, None, True
    if kind is Kind.STAGE:
        plugin, entry = STAGE, replace(entry, batch_format="arrow")
    operator = runtime.program.operator
    if kind is Kind.FUNCTION and operator is not None and operator.is_cooperative is not None:
        cooperative = operator.is_cooperative
    if kind is not Kind.FUNCTION:
        assert plugin is not None, "validated: inputs and outputs name a plugin"
        context = plugin_context(runtime)
        if kind is not Kind.OUTPUT:
            context = replace(
                context,
                batch_format=entry.batch_format,
                begins_after=partial(initialized_journal, runtime),
            )
            reads, times = services.build_input(plugin, context), _source_times(runtime)
            partition, retry_delay = runtime.delivery.partition, runtime.assignment.retry_delay
            source = Source(
                reads, entry, runtime.sizing, services.clock, partition, times, retry_delay
            )
            cooperative = reads.cooperative
        if kind is not Kind.INPUT:
            writes = services.build_output(plugin, context)
            sink, cooperative = Sink(writes, plugin), writes.cooperative
    return source, sink, cooperative if entry.cooperative is None else entry.cooperative


def _source_times(runtime: Runtime) -> SourceTimes | None:
    """None if nobody needs them, or the input assigns none."""
    entry, services = runtime.program.entry, runtime.services
    assigns = entry.watermark_key is not None or entry.assign_watermark_fn is not None
    if not assigns or needs(runtime.program.job, runtime.task) is None:
        return None
    return SourceTimes(entry, services.resolve, services.clock)
