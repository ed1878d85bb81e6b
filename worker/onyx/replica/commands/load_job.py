"""A job comes out of a savepoint, as one that was killed: the job that was submitted with it
upgrades that one. So nothing else in the cluster has to know of savepoints.

The first entry makes the record, and what lies beside the log follows: what has no record might be
collected meanwhile. A second one says that all of it is there, until which nobody upgrades the job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated

import msgspec
from immutables import Map
from msgspec import Meta, Struct
from msgspec.structs import replace

from onyx.ids import NO_POSITION, JobId, Position
from onyx.model.keys.kinds import TEXT_CHARACTERS_MAX
from onyx.replica import jobs
from onyx.replica.command import Command
from onyx.replica.commands.register_partitions import PARTITIONS_MAX
from onyx.replica.spec import Digest, Job, JobSpec, Task
from onyx.replica.state import JobRecord, Loaded, Partitions, Replica

_Number = Annotated[int, Meta(ge=0, le=PARTITIONS_MAX)]


class LoadedPartitions(Struct, frozen=True, array_like=True):
    """`Partitions` of a task."""

    first: _Number
    count: _Number
    digest: Digest


class LoadJob(Command, frozen=True):
    """Take a job out of a savepoint."""

    id: Job
    spec: JobSpec
    place: Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]
    origin: Job
    publishes: bool = False
    partitions: Mapping[Task, LoadedPartitions] = msgspec.field(default_factory=dict)
    ready_version: Annotated[int, Meta(ge=NO_POSITION)] = NO_POSITION
    """The newest version in which the saved job was ready: all its logs of that version are
    there."""
    whole: bool = False
    """Whether all that lies beside the log is there by now."""

    @property
    def chunks(self) -> tuple[str, ...]:
        """The saved job, and the names of its partitions."""
        found = (self.spec.digest, *(each.digest for each in self.partitions.values()))
        return tuple(each for each in found if each)

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change when the id is taken; the second entry changes only what the first has made."""
        if jobs.is_known(replica, self.id):
            return self._completed(replica) if self.whole else replica
        partitions = {
            task: Partitions(each.first, each.count, each.digest)
            for task, each in self.partitions.items()
        }
        assert self.id not in replica.jobs, "what runs is known"
        assert self.id not in replica.killed_jobs, "what was killed is known"
        record = JobRecord(
            replace(self.spec, upgrades=None, owner=""),
            partitions=Map(partitions),
            ready_version=self.ready_version,
            ended=position,
            loaded=Loaded(self.place, self.origin, self.publishes),
        )
        return replace(
            replica,
            records=replica.records.set(self.id, record),
            killed_jobs=(*replica.killed_jobs, self.id),
        )

    def _completed(self, replica: Replica) -> Replica:
        loaded = replica.loaded(self.id)
        if loaded is None or loaded.whole or loaded.place != self.place:
            return replica
        assert self.id not in replica.jobs, "what was loaded does not run"
        assert replica.records[self.id].spec.upgrades is None, "it has all of its state"
        record = replace(replica.records[self.id], loaded=replace(loaded, whole=True))
        return replace(replica, records=replica.records.set(self.id, record))


def loaded_for(job: JobId) -> JobId:
    """The id under which the savepoint is loaded with which a job begins: the same for whoever
    loads it, and another one for each job."""
    return JobId(f"savepoint-{hashlib.sha256(job.encode()).hexdigest()[:24]}")
