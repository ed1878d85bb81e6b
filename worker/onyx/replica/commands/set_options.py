"""Keys of tasks get other values while their job runs, which all its peers follow.

A person sets some of them, and what he does not name stays. Whoever declares jobs gives all that
its manifest has, by which everything else that was set goes: so it never has to know what was set
before, and each of its entries may be repeated. The last entry counts.

The values go with the running half of the job. A job that upgrades it begins with its own manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from immutables import Map
from msgspec import UNSET, Meta, Struct, UnsetType, convert, structs
from msgspec.structs import replace

from onyx.base.structs import prepared
from onyx.ids import Position, TaskName
from onyx.model.limits import (
    BATCH_SEGMENTS_MAX,
    PENDING_MAX,
    SEGMENTS_PER_SECOND_MAX,
    TIMEOUT_MS_MAX,
)
from onyx.replica.command import Command
from onyx.replica.spec import TASKS_MAX, Fingerprint, Job, Task
from onyx.replica.state import NOTHING, Replica

_Pending = Annotated[int, Meta(ge=0, le=PENDING_MAX)]
_Timeout = Annotated[int, Meta(ge=0, le=TIMEOUT_MS_MAX)]


@prepared
class TaskOptions(
    Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Values of one task; 0 for the default."""

    batch_size: Annotated[int, Meta(ge=0, le=BATCH_SEGMENTS_MAX)] | UnsetType = UNSET
    batch_timeout: _Timeout | UnsetType = UNSET
    max_pending: _Pending | UnsetType = UNSET
    pending_timeout: _Timeout | UnsetType = UNSET
    checkpoint_segments: _Pending | UnsetType = UNSET
    segments_per_second_max: Annotated[int, Meta(ge=0, le=SEGMENTS_PER_SECOND_MAX)] | UnsetType = (
        UNSET
    )

    @staticmethod
    def of(values: Mapping[str, int]) -> TaskOptions:
        """These values, by their keys in a manifest."""
        return convert(values, TaskOptions)

    def given(self) -> dict[str, int]:
        """The values that are there, by their keys in a manifest."""
        values = ((each.encode_name, getattr(self, each.name)) for each in structs.fields(self))
        return {key: value for key, value in values if value is not UNSET}


class SetOptions(Command, frozen=True):
    """Change how tasks of a job work."""

    job: Job
    tasks: Annotated[dict[Task, TaskOptions], Meta(max_length=TASKS_MAX)]
    declares: Fingerprint = ""
    """The fingerprint of the manifest that gives all these values; empty: they are set beside what
    it gives."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a job that does not run, for tasks that it does not have, and when the same
        manifest was declared last."""
        if self.job not in replica.jobs:
            return replica
        run = replica.run(self.job)
        declared = run.declared or replica.spec(self.job).options
        if self.declares and self.declares == declared:
            return replica
        found = replace(
            run,
            options=self._over(replica, NOTHING if self.declares else run.options),
            declared=self.declares or run.declared,
        )
        return replica if found == run else replica.with_run(self.job, found)

    def _over(
        self, replica: Replica, options: Map[TaskName, Map[str, int]]
    ) -> Map[TaskName, Map[str, int]]:
        known = replica.spec(self.job).by_name
        for task, its in sorted(self.tasks.items()):
            if task in known and (given := its.given()):
                options = options.set(task, options.get(task, Map()).update(given))
        return options
