"""Where partitions are read from: their own frontiers, or at first those of the old job."""

from __future__ import annotations

from collections.abc import Mapping

from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.old_job import old_job
from onyx.task.source.frontier import Frontier, FrontierStore


def load_frontiers(runtime: Runtime, stores: Mapping[int, FrontierStore]) -> dict[int, Frontier]:
    """Where to begin to read partitions, by their numbers. Blocks. Each partition without a
    document gets one, so that the old job is not needed any more.

    Raises:
        UserError: `onyx gc` has forgotten the old job.
    """
    found = {number: store.load() for number, store in stores.items()}
    missing = [number for number, store in stores.items() if not store.stored]
    if missing and runtime.services.replica().upgrades(runtime.job_id) is not None:
        old = old_job(runtime)
        theirs = {here: there for there, here in old.numbers.items()}
        # Only when all peers are ready, and so all logs of the old job fenced. A frontier that was
        # read before could still move, and the old job forgets the ids behind it: segments from
        # there on would be taken for new ones.
        for number in missing:
            if number in theirs:
                found[number] = FrontierStore(runtime.services, old.id, theirs[number]).load()
            stores[number].begin(found[number])
    return found
