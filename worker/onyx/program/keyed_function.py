"""What a function with state runs besides, worked out once from its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onyx.flow.groups.getters import KeyGetter, key_getter
from onyx.flow.predicates import Resolve
from onyx.keystate.coded import GroupKeys
from onyx.model.job import Job
from onyx.model.requests import asked_for
from onyx.model.state_types import StateType, parse_state_type
from onyx.model.workflow import sources_above


class KeyedFunction(msgspec.Struct, frozen=True):
    """What a function with state runs besides."""

    states: Mapping[str, StateType]
    ttl_ms: int | None
    """After this time without a change a group loses its states."""
    group_key: KeyGetter
    unique_key: str | None
    """The key by which segments are recognized that the source itself repeats."""
    fed_by: frozenset[str]
    """Tasks upstream that begin trees: when they have ended, this one ends."""
    on_timer: Callable[..., Any] | None
    on_timer_name: str = ""
    group_keys: GroupKeys = msgspec.field(default_factory=GroupKeys)
    """The group keys of columns."""
    is_split: bool = True
    """The state is split by group."""
    tells_apart: bool = False
    """Whether it is noted what was made of which segment: what becomes of it further on is of use
    to the request that has brought the segment."""


def keyed_function(job: Job, task: str, resolve: Resolve) -> KeyedFunction | None:
    """The state of a task; None when it has none.

    Raises:
        UserError: a function is not registered.
    """
    entry = job.entry(task)
    if entry.state is None:
        return None
    group_key = key_getter(entry, resolve)
    assert group_key is not None, "the rules ask for groups"
    return KeyedFunction(
        states={name: parse_state_type(each) for name, each in entry.state.items()},
        ttl_ms=entry.state_ttl,
        group_key=group_key,
        unique_key=entry.uniqueness_key if entry.deduplicate else None,
        fed_by=frozenset(sources_above(job, task)),
        on_timer=None if entry.on_timer is None else resolve(entry.on_timer),
        on_timer_name=entry.on_timer or "",
        tells_apart=task in asked_for(job),
    )
