"""What a task with state keeps: its windows, states by key, a processor, or two streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.flow.groups.keys import shard_of
from onyx.joins.streams.part import Keep
from onyx.keystate.buckets import Holder
from onyx.keystate.groups import Shards
from onyx.program.keyed.states import KeyedStates
from onyx.program.streams.state import JoinedStreams
from onyx.state.local.mapped import mapped
from onyx.task.channels.wiring import Wiring
from onyx.task.parts.runtime import Runtime
from onyx.task.stateful.processor import processor_of
from onyx.windows.running import Make
from onyx.windows.stateful import Stateful
from onyx.windows.task_windows import TaskWindows


def held_by(
    runtime: Runtime,
    wiring: Wiring,
    shards: Shards,
    own: Sequence[int],
    states: Holder,
    elsewhere: Make | None,
) -> Stateful:
    """What the task keeps, with nothing in it yet."""
    program, clock = runtime.program, runtime.services.clock
    page_max = runtime.services.settings.state.firings_page_max
    if program.keyed is not None:
        params = program.event["params"]
        return KeyedStates(runtime.task, program.keyed, params, shards, states, clock)
    if program.processing is not None:
        return processor_of(runtime, program.processing, wiring, own, states)
    if program.streams is not None:
        return JoinedStreams(program.streams, shards, page_max, *_kept(runtime))
    its = program.windowed
    assert its is not None, "windows, state by key, a processor or a join"
    of_group = only_shard if its.group_key is None else shard_of
    return TaskWindows(its.compiled, of_group, states, page_max, elsewhere)


def _kept(runtime: Runtime) -> tuple[Keep | None, int]:
    """What moves rows of a join to the local disk, and how many stay in memory."""
    state = runtime.services.settings.state
    rows_max = state.memory_extents_max
    return (mapped(state), rows_max) if rows_max else (None, 0)


def only_shard(_: Any) -> int:
    """The shard of what is not split."""
    return 0
