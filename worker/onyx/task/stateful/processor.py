"""The processor of a task, made and begun on a peer. What it had saved comes to it afterwards."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onyx.ids import TaskName
from onyx.keystate.buckets import Holder
from onyx.processors import Context
from onyx.program.processing.calls import Calls
from onyx.program.processing.outboxes import outbox_of
from onyx.program.processing.snapshot import Snapshot
from onyx.program.processing.states import ProcessorStates
from onyx.program.processor import Processing
from onyx.task.channels.wiring import Wiring
from onyx.task.parts.runtime import Runtime


def processor_of(
    runtime: Runtime, its: Processing, wiring: Wiring, own: Sequence[int], states: Holder
) -> ProcessorStates:
    """
    Args:
        own: the shards of the peer.
        states: has what the processor saves.

    Raises:
        UserFunctionError: it cannot be made, or its `init` has raised.
    """
    program, clock = runtime.program, runtime.services.clock
    context = Context(
        job_id=runtime.job_id,
        task=runtime.task,
        index=wiring.rank,
        processors=wiring.task_peers,
        parents=tuple(each.task for each in its.parents),
    )

    def begin() -> Calls:
        outbox = outbox_of(program.entry.batch_format)
        calls = Calls(its.made(program.event["params"]), its.name, outbox, context, clock)
        calls.init()
        return calls

    def ended() -> Collection[TaskName]:
        # Where nothing is accounted for, a source has ended when it has read all. What it has sent
        # may still be on its way.
        if not runtime.delivery.durable:
            return ()
        return runtime.services.replica().run(runtime.job_id).exhausted_inputs

    snapshot = Snapshot(own, states)
    durable = runtime.delivery.durable
    return ProcessorStates(its, begin, snapshot, own, clock, ended, durable)
