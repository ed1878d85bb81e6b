"""The source partitions of an input or windowed task get their numbers. The first entry wins.

Every peer of the task may write it (each lists the source by itself); those whose list lost use the
one that won. The names are in the chunk store under `digest`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from onyx.ids import Position
from onyx.replica.command import Command
from onyx.replica.jobs import exhaust
from onyx.replica.spec import Digest, Job, Task
from onyx.replica.state import Partitions, Replica

PARTITIONS_MAX = 65_535
"""The partitions of a job: numbers have 16 bits, and the last one is the end of input."""


class RegisterPartitions(Command, frozen=True):
    """Number the partitions of a source within its job."""

    job: Job
    task: Task
    count: Annotated[int, Meta(ge=0, le=PARTITIONS_MAX)]
    digest: Digest | None = None
    """None for a windowed task, whose partitions are shards and have no names."""

    @property
    def chunks(self) -> tuple[str, ...]:
        """The names of the partitions."""
        return (self.digest,) if self.digest else ()

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change when the source is registered, or the job would have too many partitions."""
        job, task = self.job, self.task
        if job not in replica.jobs or task not in replica.spec(job).sources:
            return replica
        registered = replica.partitions(job)
        first = sum(each.count for each in registered.values())
        if task in registered or first + self.count > PARTITIONS_MAX:
            return replica
        registered = registered.set(task, Partitions(first, self.count, self.digest or ""))
        record = replace(replica.records[job], partitions=registered)
        replica = replace(replica, records=replica.records.set(job, record))
        return replica if self.count else exhaust(replica, job, task)
