"""The functions with state of a simulated job. Each call leaves one record of what it has found.

A record has the number of its call in its group. So all records of a group, in this order, say
which plain loop over segments and timers they must be the same as.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from tests.sim.keyed.plain import PlainGroup
from tests.sim.windows.columns import over_columns

from onyx.flow.leaves import ROW

Segment = dict[str, Any]
Fails = Callable[[Segment], Any]
"""Raises, or says what a function gives back of a segment that has failed; the segment itself, if
it has not."""
SENT = "sent"
"""Key of a record: how far event time was when it was returned."""
LAST = "last"
"""A timer that every segment may move."""
STATE = {
    "count": "value[int]", "bits": "value[int]", "note": "value", "seen": "list[int]",
    "told": "list", "rests": "map[int, int]",
}  # fmt: skip
STATE_OF_COLUMNS = {"count": "value[int]", "bits": "value[int]", "note": "value[str]"}
STATE_OF_SECOND = {"count": "value[int]", "groups": "map[str, int]"}
RESTS = 5
LAPS = 3
"""So often go leaves round a loop, at most."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the call for one leaf does, beside counting it."""

    own: tuple[str, int] | None = None
    """A clock, and how long from now on it sets a timer of its own."""
    last: tuple[str, int] | None = None
    """Likewise, for the timer that all leaves of the group share."""
    deletes: bool = False
    """The shared timer is deleted."""
    clears: bool = False
    reverses: bool = False
    """The list is changed in its middle."""
    silent: bool = False
    """Nothing is returned: the record is kept, and returned by a later call."""


@dataclass
class Calls:
    """What functions with state do in one job."""

    plans: Sequence[Plan] = ()
    named: bool = False
    """Whether the function looks up names in a table itself."""
    wall_ms: Callable[[], int] = field(default=lambda: 0)
    """The clock, for the function over columns."""

    def functions(self, fails: Fails | None = None) -> Mapping[str, Callable[..., Any]]:
        """By their names in the job.

        Args:
            fails: of some segments; what is changed before must be gone then.
        """
        check = fails or _never

        def keep(*given: Any) -> Any:
            *tables, segment, state = given
            made = self.keep(self._with_name(segment, *tables), state)
            failed = check(segment)
            return made if failed is segment else failed

        def keep_columns(*given: Any) -> pa.RecordBatch | None:
            *tables, batch, state = given
            rows = [self._with_name(row, *tables) for row in batch.to_pylist()]
            made = self._over_columns(rows, state)
            for row in rows:
                if check(row) is not row:
                    raise AssertionError("over columns a segment fails by raising")
            return pa.RecordBatch.from_pylist(made)

        def due(*given: Any) -> Any:
            *_, timer, state = given
            return self.due(timer, state)

        names = {"m:gather": keep, "m:gather_columns": keep_columns, "m:due": due}
        turns = {"m:turn": turn, "m:turn_columns": over_columns(turn)}
        return {**names, **turns, "m:again": self.again}

    def _with_name(self, segment: Segment, names: Any = None) -> Segment:
        """A segment with its name, if this function looks it up."""
        if not self.named:
            return segment
        row = names.get(segment["bits"])
        return {**segment, "name": None if row is None else row["name"]}

    # --- over segments --------------------------------------------------------------------------

    def keep(self, segment: Segment, state: Any) -> Any:
        """The call for a leaf."""
        leaf = number_of(segment)
        time, name = segment["time"], segment.get("name")
        plan, record = self.plans[leaf], _record(state, leaf=leaf, time=time, name=name)
        state.bits = (state.bits or 0) + segment["bits"]
        state.note = {"of": [leaf]} if leaf % 3 else None
        state.seen.append(leaf)
        if plan.reverses:
            state.seen.reverse()
        rest = leaf % RESTS
        state.rests[rest] = state.rests.get(rest, 0) + 1
        state.rests.pop((rest + 2) % RESTS, None)
        if plan.clears:
            count, told = state.count, list(state.told)
            state.clear()
            state.count, state.told = count, told
        if plan.deletes:
            state.delete_timer(LAST)
        for timer, wanted in ((f"own {leaf}", plan.own), (LAST, plan.last)):
            if wanted is not None:
                clock, in_ms = wanted
                now_ms = time if clock == "event-time" else state.now_ms
                state.set_timer(timer, now_ms + in_ms, clock)
        time + 0  # what has no time fails here
        if plan.silent and not plan.clears:
            state.told.append(record)
            return None
        return _told(state, record)

    def due(self, timer: Any, state: Any) -> Any:
        """The call for a timer. The first one of each leaf sets another, of the same name."""
        record = _record(state, timer=timer.name, due=timer.due_ms, clock=timer.clock)
        if timer.name == LAST:
            state.seen = list(state.seen)[-3:]
            state.bits = None
        elif (state.count or 0) % 4 == 0:
            state.set_timer(timer.name, timer.due_ms + 1_000, timer.clock)
        return _told(state, record)

    def again(self, record: Segment, state: Any) -> Segment:
        """The call of the second function with state for a record of the first one."""
        state.count = (state.count or 0) + 1
        state.groups[record["g"]] = state.groups.get(record["g"], 0) + 1
        return {
            "kind": "again",
            "h": state.key,
            "number": state.count,
            "of": name_of(record),
            "event_time": state.event_time_ms,
            "groups": [f"{group} {many}" for group, many in sorted(state.groups.items())],
        }

    # --- over columns ---------------------------------------------------------------------------

    def keep_row(self, row: Segment, group: Any) -> Segment:
        """The record of one row; `group` has what its group has."""
        leaf = number_of(row)
        group.count = (group.count or 0) + 1
        record = {
            "kind": "call", "leaf": leaf, "name": row.get("name"), "g": group.key,
            "h": _second_group(group.count), "number": group.count, "at": group.now_ms,
            "bits": group.bits or 0, "note": group.note,
        }  # fmt: skip
        group.bits = (group.bits or 0) + row["bits"]
        group.note = f"of {leaf}" if leaf % 3 else None
        return record

    def _over_columns(self, rows: list[Segment], state: Any) -> list[Segment]:
        groups = [PlainGroup(key) for key in state.keys]
        columns = [getattr(state, name).to_pylist() for name in STATE_OF_COLUMNS]
        for group, count, bits, note in zip(groups, *columns, strict=True):
            group.now_ms, group.count, group.bits, group.note = self.wall_ms(), count, bits, note
        made = [
            {**self.keep_row(row, groups[at]), ROW: row[ROW]}
            for row, at in zip(rows, state.groups.to_pylist(), strict=True)
        ]
        for name in STATE_OF_COLUMNS:
            setattr(state, name, [getattr(group, name) for group in groups])
        return made


def turn(segment: Segment) -> Segment:
    """How often a leaf is still to go round a loop."""
    left = segment.get("laps")
    return {**segment, "laps": number_of(segment) % (LAPS + 1) if left is None else left - 1}


def name_of(record: Segment) -> str:
    """Of a call: nobody else's. After a period that has ended a group counts from 1 again."""
    return f"{record['g']} {record['at']} {record['number']}"


def number_of(segment: Segment) -> int:
    """Of a leaf: which bit it has."""
    return int(segment["bits"]).bit_length() - 1


def _record(state: Any, **what: Any) -> Segment:
    """What a call finds; it counts from now on."""
    state.count = (state.count or 0) + 1
    return {
        "kind": "call",
        "g": state.key,
        "h": _second_group(state.count),
        "number": state.count,
        "at": state.now_ms,
        "event_time": state.event_time_ms,
        "ending": state.ending,
        "bits": state.bits or 0,
        "note": repr(state.note),
        "seen": list(state.seen),
        "rests": [list(each) for each in sorted(state.rests.items())],
        "last": state.timer(LAST),
        **what,
    }


def _told(state: Any, record: Segment) -> Any:
    """What is returned: the record, behind those that were kept; with the event time of now."""
    if not len(state.told):
        return {**record, SENT: state.event_time_ms}
    made = [{**each, SENT: state.event_time_ms} for each in (*state.told, record)]
    state.told.clear()
    return made


def _second_group(number: int) -> str:
    """The group in which the second function counts a record."""
    return "xyz"[number % 3]


def _never(segment: Segment) -> Segment:
    return segment
