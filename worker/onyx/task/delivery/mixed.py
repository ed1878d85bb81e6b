"""A job that accounts for some of its segments only: both deliveries in each of its tasks.

What has roots is replayed, and what has none is kept over a change of the allocation, as under
at-most-once. State is as durable as where everything is accounted for.

Completions do not say when the last segment without roots has arrived, so the job ends by END
items. An input that is accounted for ends its channels when all its trees are complete: nothing of
it comes any more, not even again. To follow the other segments alone through the workflow was
rejected: every task that meets both would have two ends.
"""

from __future__ import annotations

from onyx.model.job import CatalogEntry, Job
from onyx.model.tracking import loses_track
from onyx.task.delivery.at_most_once import AtMostOnce
from onyx.task.delivery.end_of_input import EndOfInput
from onyx.task.delivery.policy import Delivery
from onyx.task.source.partition import Partition, UntrackedPartition
from onyx.task.source.source import Source


class Mixed(AtMostOnce):
    """Segments with roots and without."""

    durable = True

    def __init__(self, entry: CatalogEntry) -> None:
        super().__init__()
        untracked = entry.guarantee == "at-most-once"
        self.partition: type[Partition] = UntrackedPartition if untracked else Partition

    def leave(self, source: Source) -> None:
        """Save how far an input was read that is accounted for."""
        if self.partition.certain:
            source.give_away(source.known)

    def read_through(self, source: Source, ends: EndOfInput) -> bool:
        """When every output has everything of every input."""
        if source.all_complete():
            ends.pass_on()
        return ends.complete


def delivery_of(job: Job, entry: CatalogEntry) -> Delivery:
    """The delivery of a task of a job."""
    if job.guarantee == "at-most-once":
        return AtMostOnce()
    return Mixed(entry) if loses_track(job) else Delivery()
