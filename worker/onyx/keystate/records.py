"""Records: the one format of what a state log says about a shard.

Operators make records of what has changed and take them back in (`TaskWindows.take_changes` and
`restore`), the state log stores them (`codec/values`), upgrades leave out those of windows and
triggers that are not carried over. Every record names its window; those about a trigger name that
as well. What belongs to all groups of a task, beside its windows and states, has a name that no job
can give (`TIMERS` and its like).

Records of a shard are applied in order. A record about many groups has parallel columns: a group
and its state have the same index. Group keys are as the user gave them (`groups.dump_key`), states
and updates as `Aggregation.dump` and `create` made them.

On disk a record is an array that begins with its tag, followed by its fields in order: no tag may
ever get another meaning, and no field another number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from onyx.keystate.extents import Number

EventType = Literal["new-segment", "timer-tick", "watermark", "job-completed"]
"""What made a trigger look."""
TIMERS = ".timers"
"""The timers of a function."""
TOUCHED = ".touched"
"""When the states of a group have changed last."""
MADE = ".made"
"""What a function in a loop has made of segments that may come again."""
JOINED = ".join"
"""The rows of a join of two streams."""
SNAPSHOT = "snapshot"
"""The entries of snapshots of a processor."""
UNFINISHED = ".unfinished"
"""An item of a processor of which not all that it makes has been sent."""
LEFT = ".left"
"""What a processor has left in its inbox, between micro-batches."""
ENDS = ".ends"
"""What has ended, as far as a processor knows."""


class Record(msgspec.Struct, array_like=True, frozen=True):
    """Any record."""


class WindowRecord(Record, frozen=True):
    """A record about a window."""

    window: str


class TriggerRecord(WindowRecord, frozen=True):
    """A record about a trigger of a window, by the name that its state is stored under."""

    trigger: str


class SetStates(WindowRecord, frozen=True, tag="set"):
    """States of groups in an extent replace those before, the last one of a group too."""

    extent: int
    groups: Sequence[Any]
    states: Sequence[Any]


class SetArrays(WindowRecord, frozen=True, tag="arrays"):
    """States of groups in an extent, in arrays (`windows/arrays`), replace those before."""

    extent: int
    keys: str
    """How the groups are stored (`KeyTable.packed`)."""
    groups: Sequence[Any]
    types: Sequence[str]
    """The types of the columns of states, as NumPy names them."""
    states: Sequence[bytes]
    """The columns of states (`Aggregation.array_form`)."""


class AddUpdates(WindowRecord, frozen=True, tag="add"):
    """Updates are applied, in order, to the state of a group in an extent."""

    extent: int
    group: Any
    updates: Sequence[Any]


class PutEntries(WindowRecord, frozen=True, tag="entries"):
    """The map that a group has in an extent gets more entries, because one record does not hold
    all."""

    extent: int
    group: Any
    entries: Sequence[Any]
    """Keys and values in turn."""


class DeleteGroups(WindowRecord, frozen=True, tag="delete"):
    """An extent loses groups."""

    extent: int
    groups: Sequence[Any]


class ClearExtent(WindowRecord, frozen=True, tag="clear"):
    """An extent loses all groups of the shard."""

    extent: int


class SetSessions(WindowRecord, frozen=True, tag="sessions"):
    """All sessions of some groups and session keys, each time in order of their coordinates; none:
    the key is gone. The i-th of each column is about the same."""

    groups: Sequence[Any]
    session_keys: Sequence[Any]
    lowers: Sequence[Sequence[Number]]
    uppers: Sequence[Sequence[Number]]
    states: Sequence[Sequence[Any]]
    fired: Sequence[Sequence[Sequence[str]]]
    """Names of the triggers that have fired since the last segment of each session, of those of
    which that is noted."""


class SetSessionArrays(WindowRecord, frozen=True, tag="session-arrays"):
    """All sessions of some groups, in arrays, replace those before. Without session keys."""

    keys: str
    """How the groups are stored (`KeyTable.packed`)."""
    groups: Sequence[Any]
    counts: bytes
    """How many sessions each group has, four bytes each; none: the group is gone."""
    bounds: Sequence[bytes]
    """The first and the last coordinates of sessions: those of a group together and in order."""
    types: Sequence[str]
    states: Sequence[bytes]
    """Types and columns of the states, as `SetArrays` has them."""
    fired: Mapping[str, bytes]
    """For each watermark trigger that has seen the last segment of some session, a byte a session:
    whether it has."""


class AddToSessions(WindowRecord, frozen=True, tag="session-add"):
    """Updates are applied, in order, to the sessions of their coordinates, which merge as they
    did."""

    group: Any
    session_key: Any
    coordinates: Sequence[Number]
    updates: Sequence[Any]


class Fired(TriggerRecord, frozen=True, tag="fired"):
    """A trigger has fired for all groups of an extent but those that wait again."""

    extent: int
    waiting: Sequence[Any]


class FiredGroups(TriggerRecord, frozen=True, tag="fired-groups"):
    """A trigger has fired for these groups of an extent, and they have got no segments since."""

    extent: int
    groups: Sequence[Any]


class FiringProgress(TriggerRecord, frozen=True, tag="progress"):
    """How far a shard has come that fires page by page: extents before `extent`, and these groups
    of it, have fired. Records of the same extent add up."""

    event_type: EventType
    extent: int | None
    """None: a group fires with all its extents at once."""
    groups: Sequence[Any] | None
    """None: the whole shard has fired, for the last time."""


class SetTriggerStates(TriggerRecord, frozen=True, tag="trigger-states"):
    """States of a trigger by group replace those before."""

    groups: Sequence[Any]
    states: Sequence[Any]


class DeleteTriggerStates(TriggerRecord, frozen=True, tag="no-trigger-states"):
    """A trigger forgets its states of groups."""

    groups: Sequence[Any]


class TimerDue(TriggerRecord, frozen=True, tag="timer"):
    """When the timer of a trigger is due for the shard."""

    due_ms: int


class WatermarkReached(WindowRecord, frozen=True, tag="watermark"):
    """How far event time has come for the shard."""

    watermark: Number


class SpooledPart(WindowRecord, frozen=True, tag="spooled"):
    """A file of a window by Spark is a part of the state of some extents: rows, or what a firing
    has made of older parts."""

    name: str
    extents: Sequence[int]
    columns: Sequence[str]
    """The columns that it has of the columns that may be missing."""
    rows: int
    seq: int
    """Rows that come later have higher numbers."""
    partial: bool
    """Whether it is the result of a firing."""
    emptied: bool
    """Whether only the groups of a result count, which begin anew."""
    settled: bool
    """Whether no group of a result waits for a watermark."""
    unfired: bool
    """Whether only those sessions of a result count that have not fired."""
    due: Number | None
    """The watermark before which no session fires; None: none waits for one."""


class SpooledFired(TriggerRecord, frozen=True, tag="spooled-fired"):
    """A trigger of a window by Spark has fired, and its result is complete: these extents lose the
    parts that they had. What is in the result is emitted from now on."""

    name: str
    event_type: EventType
    extents: Sequence[int]
    watermark: Number | None


class SpooledEmitted(TriggerRecord, frozen=True, tag="spooled-emitted"):
    """How far the result of a firing is emitted."""

    name: str
    file: int
    """Index among its files; -1: all is emitted."""
    row: int
    """The next one of this file."""


class JoinSchema(WindowRecord, frozen=True, tag="join-schema"):
    """The rows that a side of a join of two streams gets from now on have this schema, as Arrow
    writes it."""

    side: int
    schema: bytes


class JoinRows(WindowRecord, frozen=True, tag="join-piece"):
    """A side of a join of two streams gets rows, of its schema (`codec.pieces`). When the watermark
    takes them away follows from their times."""

    side: int
    count: int
    piece: Sequence[bytes]


class StagedOutput(Record, frozen=True, tag="staged"):
    """The token with which an output under exactly-once publishes the part that it staged last; the
    ids of the segments in that part are in the same chunk."""

    token: Mapping[str, Any]


StatesRecord = SetStates | SetArrays
"""States of groups of an extent, in either form."""
AnyRecord = (
    SetStates | SetArrays | AddUpdates | PutEntries | DeleteGroups | ClearExtent
    | SetSessions | SetSessionArrays | AddToSessions
    | Fired | FiredGroups | FiringProgress | SetTriggerStates | DeleteTriggerStates | TimerDue
    | WatermarkReached
    | SpooledPart | SpooledFired | SpooledEmitted
    | JoinSchema | JoinRows
    | StagedOutput
)  # fmt: skip
"""What a state log may hold; decoders tell the types apart by their tags."""

Records = dict[int, list[Record]]
"""Records by shard, in order."""


class StateFiles(Protocol):
    """Files that records of one chunk of the state log name."""

    def write(self) -> None:
        """Make new ones durable, before the chunk is written. Blocks; to be repeated when it fails
        with Unavailable."""
        ...

    def remove(self) -> None:
        """Remove those that nobody needs any more, when the chunk is durable. Blocks."""
        ...


def of_window(records: Sequence[Record], name: str) -> list[Record]:
    """The records about one window."""
    return [each for each in records if isinstance(each, WindowRecord) and each.window == name]


def append(records: Records, shard: int, record: Record) -> None:
    """Add a record to those of a shard."""
    if shard in records:
        records[shard].append(record)
    else:
        records[shard] = [record]
