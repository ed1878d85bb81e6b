"""Processors: what each has saved last, by key.

An entry may be at any peer of its task (`operators/processor/snapshot`), so all of them are asked
whatever the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from onyx.client.states.checks import require_log, require_no_times, require_states
from onyx.client.states.shards import EVERYWHERE
from onyx.client.states.state import Files
from onyx.flow.predicates import Resolve
from onyx.keystate.buckets import InMemory
from onyx.keystate.extents import Extent
from onyx.keystate.records import SNAPSHOT, Record, WindowRecord
from onyx.keystate.selection import Selection
from onyx.model.job import CatalogEntry, Job
from onyx.operators.processor.snapshot import ProcessorSnapshot


class ProcessorState(msgspec.Struct, frozen=True):
    """What the processors of a task have saved. Implements `State`."""

    job: Job
    entry: CatalogEntry

    by_files = False
    in_time = False
    by_session_key = False
    grouped = True
    kind = "snapshot of a processor"

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.entry.name

    asked_as = task = name

    @property
    def in_store(self) -> bool:
        """Whether Spark runs the job, and has committed the state."""
        return self.job.engine == "spark"

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: there are no times, or it is not here."""
        require_states(self.job)
        require_log(self.job, durable)
        require_no_times(select, f"the snapshot of processor {self.name}")

    def shards(self, key: Any) -> Sequence[int]:
        """All: an entry may be in any."""
        return EVERYWHERE

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], OneSnapshot]:
        """The entries alone, so no class of the user is needed."""
        return OneSnapshot


class OneSnapshot:
    """What processors have saved, restored to be asked. Not thread-safe. Implements `Restored`."""

    def __init__(self) -> None:
        self._snapshot = ProcessorSnapshot(EVERYWHERE, InMemory())

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records to a shard."""
        entries = [each for each in records if isinstance(each, WindowRecord)]
        self._snapshot.restore(shard, [each for each in entries if each.window == SNAPSHOT])

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """The entries that are asked for, the first in order."""
        return self._snapshot.query(asked, extents_max)


def processors_of(job: Job) -> Iterator[ProcessorState]:
    """The tasks of a job that have processors."""
    for entry in job.catalog:
        if entry.processor is not None:
            yield ProcessorState(job, entry)
