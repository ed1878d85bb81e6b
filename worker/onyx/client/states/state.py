"""What a state is to those who ask for it, whatever its kind.

A kind says how its states are called, what may be asked of them, and in which key groups of its
task the answer is. So it is known which peers to ask, and which parts of a state log to read where
no peer works. A kind that is in a state log can be restored from its records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from onyx.flow.predicates import Resolve
from onyx.keystate.extents import Extent
from onyx.keystate.records import Record
from onyx.keystate.selection import Selection
from onyx.spark.windows.spool import Spool

Files = Callable[[], Spool]


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
