"""Bugs planted on purpose in windowed tasks: the simulator must find each.

B7 segments are acked before they are durable; B9 state is taken over without a fence; B13 the
watermark of a task is the maximum of its channels; B14 sessions that meet keep both extents; B19
ids are forgotten as soon as their trees are complete, though whoever takes over begins further
back; B20 emissions are sent before they are durable; B21 acks count in every allocation version;
B22 what failed or is retried counts as applied; B23 what rests before a retry is forgotten when the
job is re-allocated; B24 what a task has read again is acked all the same; B25 an output counts what
it has read again as written. Of a source that reads all again after a failure, in order: B26 it
reads only what has failed again; B27 it goes on while that rests; B28 completions of older attempts
count. B29 the name of a part is taken before the part is open, so one that cannot be opened at the
first try is left out; B30 what is to be read again is forgotten before it was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from tests.sim.planting import FoundBy, Plants, planted_of
from tests.sim.windows.process import Process

from onyx.base.runs import Numbers, taken
from onyx.base.seams import Clock
from onyx.errors import Unavailable
from onyx.flow.batch import Batch
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Routed
from onyx.ids import AllocationVersion, JobId, PeerId
from onyx.ledger.hop import Hop
from onyx.ledger.pending import OrderedPositions, PendingPositions, Range
from onyx.plugins.job.input import PATH, PartsReader
from onyx.plugins.protocol import START, Input
from onyx.storage.fenced_log import FencedLogs, Listed
from onyx.task.parts import Allocation
from onyx.task.phases import send
from onyx.task.phases.send import ask_for_retries
from onyx.task.source.partition import Partition
from onyx.task.source.source import Source
from onyx.task.state.chunks import Columns
from onyx.task.state.keeper import StateKeeper
from onyx.windows import watermarks
from onyx.windows.types.session import Session, SessionExtents
from onyx.windows.watermarks import IDLE, Mark, Quiet

_cut = StateKeeper.cut
_fresh = StateKeeper.fresh
_join = SessionExtents._join
_take_durable = StateKeeper.take_durable
_retry = Partition.retry


def _ack_early(keeper: StateKeeper) -> list[Columns]:
    """B7: what is to be acked when the next chunk is durable is acked now."""
    early, keeper._values = keeper._values, []
    return _take_durable(keeper) + early


def no_fence(logs: FencedLogs[Any, Any], key: Any, log: Listed, replaced: bool = False) -> int:
    """B9: where a log ends now."""
    return log.last + 1


def _greatest(marks: Iterable[Mark]) -> Mark:
    """B13."""
    return max((mark for mark in marks if not isinstance(mark, Quiet)), default=IDLE)


def _keep_both(window: SessionExtents, owner: Any, place: Any) -> Session:
    """B14."""
    merged = window._near(owner, place)[1:]
    states = [each.state for each in merged]
    session = _join(window, owner, place)
    for each, state in zip(merged, states, strict=True):
        each.state = state
    held = window._sessions(owner)
    held += merged
    held.sort(key=attrgetter("lower"))
    return session


def _complete_frontiers(source: Source) -> dict[int, int]:
    """B19: how far partitions are complete, not how far that is stored."""
    return {number: each.pending.frontier for number, each in source.partitions.items()}


def _send_early(keeper: StateKeeper, idle: bool) -> bool:
    """B20."""
    began = _cut(keeper, idle)
    appending = keeper.writer.current
    if began and appending is not None:
        keeper.emissions.release(appending.emitted)
        appending.emitted = {}
    return began


def _any_version(
    process: Process,
    job: JobId,
    version: AllocationVersion,
    acker: PeerId,
    roots: Numbers,
    values: Numbers,
) -> None:
    """B21."""
    for found in process.ackers.values():
        found.post(roots, values)


def _count_as_applied(
    keeper: StateKeeper, batch: Batch, withdrawn: Sequence[int]
) -> list[bool] | None:
    """B22."""
    if withdrawn and batch.roots is not None and batch.ids is not None:
        chosen = list(withdrawn)
        assert keeper.state.applied is not None
        keeper.state.applied.apply(batch.roots[chosen], batch.ids[chosen])
    return _fresh(keeper, batch, withdrawn)


def _forget_resting(window: PendingPositions) -> list[Range]:
    """B23."""
    window._resting.clear()
    window._make_due(window._positions(np.uint8(1)))
    return window.due()


def ack_all(
    allocation: Allocation, roots: Numbers, made: Hop, routed: Routed
) -> tuple[Numbers, Numbers]:
    """B24."""
    if routed.retries:
        ask_for_retries(allocation, roots, routed)
    rows = np.arange(len(roots)) if made.reported is None else made.reported
    return taken(roots, rows), taken(made.values, np.arange(len(rows)))


def _count_as_written(batch: Batch, leaves: Leaves, retries: Sequence[int]) -> tuple[Batch, Leaves]:
    """B25."""
    return batch, leaves


def only_what_failed(window: OrderedPositions, first: int, state: np.uint8) -> list[Range]:
    """B26."""
    window.any_retried = True
    window._state[first & window._mask] = state
    return [Range(first, first + 1)]


def _take_before_open(reader: PartsReader) -> bool:
    """B29."""
    named, reader._named = reader._named, None
    if named is None and not (found := reader._parts.read(1)):
        return False
    elif named is None:
        named = str(found[0][PATH])
    reader._reader = reader._open_part(named, reader._from)
    reader._from = START
    return True


def _forget_before_read(partition: Partition, plugin: Input, clock: Clock) -> list[Batch]:
    """B30."""
    first = partition.to_retry[0]
    try:
        return _retry(partition, plugin, clock)
    except Unavailable:
        if partition.to_retry and partition.to_retry[0] == first:
            partition.to_retry.popleft()
        raise


PLANTS: Plants = {
    "B7": (StateKeeper, "take_durable", _ack_early),
    "B9": (FencedLogs, "fence", no_fence),
    "B13": (watermarks, "least", _greatest),
    "B14": (SessionExtents, "_join", _keep_both),
    "B19": (Source, "frontiers", _complete_frontiers),
    "B20": (StateKeeper, "cut", _send_early),
    "B21": (Process, "on_acks", _any_version),
    "B22": (StateKeeper, "fresh", _count_as_applied),
    "B23": (PendingPositions, "replay_all", _forget_resting),
    "B24": (send, "acked", ack_all),
    "B25": (send, "without", _count_as_written),
    "B26": (OrderedPositions, "_from", only_what_failed),
    "B27": (OrderedPositions, "waits", False),
    "B28": (OrderedPositions, "complete", PendingPositions.complete),
    "B29": (PartsReader, "_open_next", _take_before_open),
    "B30": (Partition, "retry", _forget_before_read),
}
FOUND_BY: FoundBy = {
    "B7": {"C5"},
    "B9": {"F2"},
    "B13": {"W3"},
    "B14": {"W4"},
    "B19": {"C5"},
    "B20": {"C5"},
    "B21": {"C5"},
    "B22": {"W1"},
    "B23": {"V3"},
    "B24": {"C5"},
    "B25": {"W2"},
    "B26": {"O1"},
    "B27": {"O1"},
    "B28": {"O1"},
    "B29": {"W1"},
    "B30": {"V3"},
}
planted = partial(planted_of, PLANTS)
