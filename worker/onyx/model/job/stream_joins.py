"""Parts of a task of type `join`: which two streams meet, by what, and how near in time."""

from __future__ import annotations

from typing import Annotated

import msgspec

from onyx.model.job.types import TaskName
from onyx.model.keys.compound import OneOrMore
from onyx.model.keys.durations import Duration
from onyx.model.keys.key import Key
from onyx.model.keys.kinds import Text
from onyx.model.limits import STATE_TTL_MS_MAX


class JoinSide(msgspec.Struct, frozen=True):
    """One of the two streams of a join."""

    task: Annotated[TaskName, Key(restriction="A parent of the join; not that of the other side.")]
    """Task whose segments these are."""
    key: Annotated[
        str | tuple[str, ...],
        OneOrMore(Text()),
        Key(restriction="As many as the other side has."),
    ]
    """Key of a segment, or several keys, whose values are equal in two segments that meet. Null
    equals nothing. A segment without one of the keys fails."""
    at: str
    """Key of a segment that holds its event time, as the watermark has it: milliseconds since 1970,
    or a date, a timestamp or ISO 8601 text."""
    prefix: Annotated[str, Text(empty=True)] = ""
    """What a result has before the names of the values of this side."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, of which there may be one."""
        return (self.key,) if isinstance(self.key, str) else self.key


class Within(msgspec.Struct, frozen=True):
    """How far the times of two segments may be apart that meet."""

    before: Annotated[int, Duration(0, STATE_TTL_MS_MAX)] = 0
    """How much earlier than that of the left side the time of the right side may be."""
    after: Annotated[int, Duration(0, STATE_TTL_MS_MAX), Key(restriction="Not with how: asof.")] = 0
    """How much later it may be."""
