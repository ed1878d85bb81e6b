"""Where partitions are read from: their own frontiers, or at first those of the old job. If that
ran on Spark, they are the positions behind its last micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from onyx.plugins.protocol import Cursor
from onyx.spark.driver.request import Position
from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.old_job import old_job
from onyx.task.recovery.old_query import publish_committed
from onyx.task.source.frontier import BEGIN, Frontier, FrontierStore


def load_frontiers(
    runtime: Runtime, stores: Mapping[int, FrontierStore], start: Callable[[int], Frontier]
) -> dict[int, Frontier]:
    """Where to begin to read partitions, by their numbers. Blocks. Each partition without a
    document gets one if there is an old job, which is not needed any more then, and if it begins
    where its input says, which may be elsewhere later.

    Args:
        start: where a partition begins of which neither this job nor the old one knows anything.

    Raises:
        UserError: `onyx gc` has forgotten the old job.
    """
    found = {number: store.load() for number, store in stores.items()}
    missing = [number for number, store in stores.items() if not store.stored]
    if not missing:
        return found
    upgrades = runtime.services.replica().upgrades(runtime.job_id) is not None
    # Only when all peers are ready, and so all logs of the old job fenced. A frontier that was
    # read before could still move, and the old job forgets the ids behind it: segments from
    # there on would be taken for new ones.
    old = _of_old_job(runtime, missing) if upgrades else {}
    for number in missing:
        found[number] = old[number] if number in old else start(number)
        if upgrades or found[number] != BEGIN:
            stores[number].begin(found[number])
    return found


def _of_old_job(runtime: Runtime, numbers: Collection[int]) -> dict[int, Frontier]:
    """What the old job has stored of these partitions, by the numbers that they have here."""
    old, found = old_job(runtime.assignment, runtime.program.job), dict[int, Frontier]()
    if old.query is not None:
        publish_committed(runtime.assignment, old, old.query)
        positions = old.query.read
        return {
            here: _frontier(positions[there])
            for there, here in old.numbers.items()
            if here in numbers
        }
    for there, here in old.numbers.items():
        if here in numbers:
            store = FrontierStore(runtime.services, old.id, there)
            frontier = store.load()
            if store.stored:
                found[here] = frontier
    return found


def _frontier(at: Position) -> Frontier:
    """Nothing behind a position was sent, and all before it is complete."""
    cursor, reserved = Cursor(at.cursor, at.state), at.position
    return Frontier(at.position, cursor, at.exhausted, reserved, newest_ms=at.newest_ms)
