"""Sessions, and how they are stored: of an owner all as columns, of a group all by session key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from onyx.keystate.buckets import Form
from onyx.keystate.extents import Number
from onyx.keystate.groups import dump_key, load_key
from onyx.keystate.records import SetSessions
from onyx.windows.aggregations.aggregation import Aggregation

Owner = tuple[Any, Any]
"""A group and a session key."""


class Session:
    """One session; `fired` names the triggers that have fired since its last segment, of those of
    which that is noted."""

    __slots__ = ("fired", "lower", "owner", "state", "upper")

    def __init__(self, owner: Owner, lower: Number, upper: Number, state: Any) -> None:
        self.owner = owner
        self.lower = lower
        self.upper = upper
        self.state = state
        self.fired: list[str] = []


class SessionColumns(NamedTuple):
    """Sessions as plain data: the columns of `SetSessions`."""

    lowers: list[Number]
    uppers: list[Number]
    states: list[Any]
    fired: list[list[str]]


def dumped(aggregation: Aggregation, sessions: Sequence[Session]) -> SessionColumns:
    return SessionColumns(
        [each.lower for each in sessions],
        [each.upper for each in sessions],
        [aggregation.dump(each.state) for each in sessions],
        [each.fired for each in sessions],
    )


def recorded(window: str, owners: Sequence[Sequence[Any]]) -> SetSessions:
    """The record of some owners: of each the group, the session key, and `SessionColumns`."""
    return SetSessions(window, *map(list, zip(*owners, strict=True)))


def loaded(
    aggregation: Aggregation,
    owner: Owner,
    lowers: Sequence[Number],
    uppers: Sequence[Number],
    states: Sequence[Any],
    fired: Sequence[Sequence[str]],
) -> list[Session]:
    found = []
    for lower, upper, state, names in zip(lowers, uppers, states, fired, strict=True):
        session = Session(owner, lower, upper, aggregation.load(state))
        session.fired = list(names)
        found.append(session)
    return found


def form(aggregation: Aggregation) -> Form:
    """The form of the sessions of a group: for each session key its sessions."""

    def dump(held: dict[Any, list[Session]]) -> list[Any]:
        return [[dump_key(key), *dumped(aggregation, each)] for key, each in held.items()]

    def load(group: Any, data: list[Any]) -> dict[Any, list[Session]]:
        owners = [((group, load_key(key)), columns) for key, *columns in data]
        return {owner[1]: loaded(aggregation, owner, *columns) for owner, columns in owners}

    return Form(dict, dump, load)
