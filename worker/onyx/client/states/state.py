"""What a state is to those who ask for it, whatever its kind.

A kind says how its states are called, what may be asked of them, and in which key groups of its
task the answer is. So it is known which peers to ask, and which parts of a state log to read where
no peer works. A kind that is in a state log can be restored from its records. What several kinds
refuse is here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from onyx.errors import UserError
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.flow.predicates import Resolve
from onyx.keystate.extents import ALL, Extent
from onyx.keystate.records import Record
from onyx.keystate.selection import Selection
from onyx.model.job import Job
from onyx.model.workflow import is_unbounded
from onyx.spark.windows.spool import Spool

Files = Callable[[], Spool]
EVERYWHERE: Sequence[int] = range(SHARDS)


class Restored(Protocol):
    """A state that is restored from records, to be asked. Nothing fires."""

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records of the task, in order, to a shard; those of other states mean nothing."""
        ...

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """The extents that are asked for, the first in order."""
        ...


class State(Protocol):
    """A state of a job."""

    @property
    def name(self) -> str:
        """What questions call it."""
        ...

    @property
    def asked_as(self) -> str:
        """What its peers know it by."""
        ...

    @property
    def task(self) -> str:
        """The task whose peers have it."""
        ...

    @property
    def kind(self) -> str:
        """What it is, in words."""
        ...

    @property
    def grouped(self) -> bool:
        """Whether it can be asked for by key."""
        ...

    @property
    def in_time(self) -> bool:
        """Whether bounds of extents are times."""
        ...

    @property
    def by_session_key(self) -> bool:
        """Whether extents have session keys."""
        ...

    @property
    def in_store(self) -> bool:
        """Whether it is read where it is kept even if there are peers, who have not all of it."""
        ...

    @property
    def by_files(self) -> bool:
        """Whether its records name files, each with what is in many key groups. So all key groups
        are restored together, and otherwise one by one."""
        ...

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError when this cannot be asked of it."""
        ...

    def shards(self, key: Any) -> Sequence[int]:
        """The key groups of the task that have what is asked for; `key` may be ALL."""
        ...

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], Restored]:
        """What makes it with nothing in it, to be restored.

        Args:
            files: gives the files that its records may name.

        Raises:
            UserError: it is in no state log, or a function of the user's is not there.
        """
        ...


def by_group(key: Any) -> Sequence[int]:
    """Where states are split by group: that of a group, or all."""
    return EVERYWHERE if key is ALL else [shard_of(key)]


def require_peers(job: Job) -> None:
    """Raises UserError when no peer has tables of the job."""
    if job.engine == "spark":
        raise UserError(
            f"job {job.name} runs on Spark, where no peer has tables: emit what you want to see"
        )


def require_states(job: Job) -> None:
    """Raises UserError when Spark runs the job and keeps nothing."""
    if job.engine == "spark" and not is_unbounded(job):
        raise UserError(
            f"job {job.name} is one query of Spark, because all its inputs have an end, and such a "
            "query keeps no state: emit what you want to see"
        )


def require_log(job: Job, durable: bool) -> None:
    """Raises UserError when only what is durable is wanted, and nothing is."""
    # What Spark has committed is durable, whatever the guarantee.
    if durable and job.guarantee == "at-most-once" and job.engine != "spark":
        raise UserError(
            f"job {job.name} is at most once and keeps its state in the memory of workers: "
            "nothing of it is durable"
        )


def require_parts(select: Selection, names: Sequence[str], what: str) -> None:
    """Raises UserError when a key is asked for that has not all parts; `what` has keys of these."""
    key = select.key
    if key is ALL or len(names) == 1:
        return
    if type(key) is not dict or set(key) != set(names):
        raise UserError(f"a key of {what} is an object with {', '.join(names)}")


def require_no_times(select: Selection, what: str) -> None:
    """Raises UserError when times are asked for; `what` has none."""
    if (select.time_from, select.time_to) != (None, None):
        raise UserError(f"{what} has no times: leave them out")
