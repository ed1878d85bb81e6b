"""What a function with state runs besides, worked out once from its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onyx.base.on_demand import OnDemand
from onyx.flow.groups.getters import key_getter
from onyx.flow.predicates import Resolve
from onyx.model.job import Job
from onyx.model.requests import asked_for
from onyx.model.state_types import StateType, parse_state_type
from onyx.model.workflow import loop_of, sources_above
from onyx.program.program import Definition, Needs


class KeyedFunction(Definition, frozen=True, kw_only=True):
    """What a function with state runs besides."""

    states: Mapping[str, StateType]
    ttl_ms: int | None
    """After this time without a change a group loses its states."""
    on_timer: Callable[..., Any] | None
    on_timer_name: str = ""
    tells_apart: bool = False
    """Whether it is noted what was made of which segment: in a loop, and where what becomes of it
    further on is of use to the request that has brought the segment."""

    words = "state"
    made_by = OnDemand("onyx.operators.keyed.operator:keyed_operator")


def keyed_function(job: Job, task: str, resolve: Resolve) -> KeyedFunction:
    """The state of a task.

    Raises:
        UserError: a function is not registered.
    """
    entry = job.entry(task)
    assert entry.state is not None, "the table looks before"
    group_key = key_getter(entry, resolve)
    assert group_key is not None, "the rules ask for groups"
    in_loop = bool(loop_of(job, task))
    return KeyedFunction(
        task=task,
        states={name: parse_state_type(each) for name, each in entry.state.items()},
        ttl_ms=entry.state_ttl,
        group_key=group_key,
        unique_key=entry.uniqueness_key if entry.deduplicate else None,
        fed_by=frozenset(sources_above(job, task)),
        on_timer=None if entry.on_timer is None else resolve(entry.on_timer),
        on_timer_name=entry.on_timer or "",
        tells_apart=in_loop or task in asked_for(job),
        needs=Needs(in_trees=in_loop),
    )
