"""States of functions: each group has one extent, without bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from onyx.client.states.checks import require_log, require_no_times, require_states
from onyx.client.states.shards import by_group
from onyx.client.states.state import Files
from onyx.flow.groups.keys import shard_of
from onyx.flow.predicates import Resolve
from onyx.keystate.groups import Shards
from onyx.keystate.selection import Selection
from onyx.model.job import CatalogEntry, Job
from onyx.model.state_types import parse_state_type
from onyx.operators.keyed.store import OneState


class FunctionState(msgspec.Struct, frozen=True):
    """A state of a function. Implements `State`."""

    job: Job
    entry: CatalogEntry
    state: str
    declared: str
    """Its type."""

    by_files = False
    in_time = False
    by_session_key = False
    grouped = True
    kind = "state of a function"

    @property
    def name(self) -> str:
        """With that of the task."""
        return f"{self.task}.{self.state}"

    asked_as = name

    @property
    def task(self) -> str:
        """The task that has it."""
        return self.entry.name

    @property
    def in_store(self) -> bool:
        """Whether Spark runs the job, and has committed the state."""
        return self.job.engine == "spark"

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: there are no times, or it is not here."""
        require_states(self.job)
        require_log(self.job, durable)
        require_no_times(select, f"state {self.name} of a function")

    def shards(self, key: Any) -> Sequence[int]:
        """The key group of a group, or all."""
        return by_group(key)

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], OneState]:
        """The state alone."""
        return partial(OneState, self.state, parse_state_type(self.declared), Shards(shard_of))


def function_states_of(job: Job) -> Iterator[FunctionState]:
    """The states of all functions of a job."""
    for entry in job.catalog:
        for name, declared in (entry.state or {}).items():
            yield FunctionState(job, entry, name, declared)
