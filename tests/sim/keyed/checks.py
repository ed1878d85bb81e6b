"""The invariants of functions with state, beside those of event time, logs, ids and frontiers.

S1 the calls of a group are those of a plain loop over its segments and timers, and so is what they
leave; S2 each segment is applied once; S3 what a call returns comes out once; S4 a group loses its
states only when nobody has changed them for so long; T1 a timer fires once, when it was last set
for, and none is lost; T2 none fires before its time; T3 who has a timer or a period that ends will
look at it in time; N1 segments get what the table says; A1 and what another task keeps.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.sim.keyed.functions import SENT, STATE, STATE_OF_COLUMNS, Segment, name_of
from tests.sim.keyed.plain import PlainGroup
from tests.sim.windows.checks import Checks, difference, text_of
from tests.sim.windows.failing import number_of

from onyx.flow.groups.keys import shard_of
from onyx.keystate.buckets import InMemory
from onyx.keystate.groups import Shards
from onyx.keystate.records import TIMERS, TOUCHED, PutEntries, Record, SetStates
from onyx.operators.keyed.definition import KeyedFunction
from onyx.operators.keyed.operator import KeyedOperator
from onyx.operators.keyed.timers import CLOCKS, DueTimer
from onyx.state.recovery import RecoveredState
from onyx.task.state.keeper import StateKeeper
from onyx.task.task import Task

if TYPE_CHECKING:
    from tests.sim.keyed.world import KeyedWorld

Contents = dict[str, dict[str, tuple[Any, Any]]]
"""By the name of a state and the text of a group: the group and the state."""
MAPS = (TIMERS, "rests", "groups")


class KeyedChecks(Checks):
    def __init__(self, world: KeyedWorld) -> None:
        super().__init__(world)
        self._of = world
        self.stateful = ("gather", "again") if world.story.chained else ("gather",)

    # --- between two rounds ---------------------------------------------------------------------

    def _check_held(self, task: Task, keeper: StateKeeper, recovered: RecoveredState) -> None:
        shards = keeper.shards
        logged = self._restored(task, shards, recovered).freeze(shards)
        owned = keeper.operator.freeze(shards)
        found = {shard: (contents(logged(shard)), contents(owned(shard))) for shard in shards}
        for shard, (stored, mine) in found.items():
            assert stored == mine, (
                f"W5: {task.name}, shard {shard}: the log has {stored}, its owner {mine}"
            )
        if keeper.firing is None:
            self._check_dues(keeper.operator, [mine for _, mine in found.values()])

    def _restored(
        self, task: Task, shards: Sequence[int], recovered: RecoveredState
    ) -> KeyedOperator:
        its = task.runtime.program.operator
        assert isinstance(its, KeyedFunction), "it has state"
        found = KeyedOperator(its, (), Shards(shard_of), InMemory(), self._of.clock)
        for shard in shards:
            found.restore(shard, [])
            for records in recovered.shards[shard].records():
                found.restore(shard, records)
        found.restored()
        return found

    def _check_dues(self, held: KeyedOperator, owned: Sequence[Contents]) -> None:
        """T3."""
        due: dict[str, list[int]] = defaultdict(list)
        for mine in owned:
            for _, timers in mine.get(TIMERS, {}).values():
                for due_ms, clock in timers.values():
                    due[CLOCKS[clock]].append(due_ms)
            due[TOUCHED] += [due_ms for _, due_ms in mine.get(TOUCHED, {}).values()]
        looks: dict[str, int | None] = {}
        if held._timers is not None:
            looks = {clock: held._timers.earliest_ms(clock) for clock in CLOCKS}
        if held._expiry is not None:
            looks[TOUCHED] = held._expiry.earliest_ms()
        for what, times_ms in due.items():
            at_ms, first_ms = looks.get(what), min(times_ms, default=math.inf)
            assert (math.inf if at_ms is None else at_ms) <= first_ms, (
                f"T3: {what} is looked at at {at_ms}, and something is due at {first_ms}"
            )

    # --- at the end -----------------------------------------------------------------------------

    def at_end(self) -> None:
        self._check_replay()
        world, story = self._of, self._of.story
        returned = self._returned(self.stateful[-1])
        left = self._states_left("gather", STATE_OF_COLUMNS if story.columns else STATE)
        told = [each for states in left.values() for each in states.get("told", ())]
        made = list(world.places["write"].segments())
        written = Counter(map(text_of, self._without_asked(made, told) if story.asked else made))
        expected = Counter(map(text_of, returned))
        assert written == expected, f"S3: returned and written: {difference(expected, written)}"
        calls: dict[str, list[Segment]] = defaultdict(list)
        for record in [*self._returned("gather"), *told]:
            calls[record["g"]].append(record)
        for group, records in calls.items():
            self._check_group(group, records, left.pop(group, {}))
        assert not left, f"S1: states of groups that were never called: {left}"
        leaves = [each.get("leaf") for mine in calls.values() for each in mine]
        applied = Counter(leaf for leaf in leaves if leaf is not None)
        wanted = Counter(leaf for leaf in story.leaves if story.passes(leaf))
        assert applied == wanted, f"S2: applied: {difference(wanted, applied)}"
        if story.chained:
            self._check_second(self._returned("gather"), self._returned("again"))
        if "dead" in world.places:
            letters = Counter(map(number_of, world.places["dead"].segments()))
            bad = story.failing.letters()
            assert letters == bad, f"D1: bad {bad}, dead letters {letters}"

    def _without_asked(self, records: list[Segment], told: list[Segment]) -> list[Segment]:
        """A1: what was looked up of a group is at least what it was when the record was made."""
        ttl_ms = self._of.story.ttl_ms
        most = Counter(each["g"] for each in [*self._returned("gather"), *told])
        for record in records:
            asked, number = record["asked"], record["number"]
            low = number if ttl_ms is None else 0
            assert asked is not None or ttl_ms is not None, f"A1: nothing is found for {record}"
            assert asked is None or low <= asked, f"A1: {record} was {number} before"
            assert asked is None or asked <= most[record["g"]], f"A1: {record}, of so many calls"
        return [{k: v for k, v in each.items() if k != "asked"} for each in records]

    def _returned(self, task: str) -> list[Segment]:
        return [each["segment"] for each in self._of.storage.of(task).emitted.values()]

    def _states_left(self, name: str, states: Iterable[str]) -> dict[str, dict[str, Any]]:
        """By group, what the log of a task has in the end."""
        task = next(each for each in self._tasks() if each.name == name)
        recovered = self._recovered(name, task)
        held = self._restored(task, sorted(recovered.shards), recovered)
        found: dict[str, dict[str, Any]] = defaultdict(dict)
        for state in states:
            for each in held.query(f"{name}.{state}"):
                found[each.group][state] = each.state
        return found

    def _check_second(self, given: list[Segment], calls: list[Segment]) -> None:
        """S1 and S2 of the second function; W3: event time has not overtaken what it gets."""
        got = {name_of(each): each for each in given}
        of = Counter(each["of"] for each in calls)
        assert of == Counter(got.keys()), f"S2: again: {difference(Counter(got.keys()), of)}"
        groups: dict[str, Counter[str]] = defaultdict(Counter)
        for call in sorted(calls, key=lambda each: each["number"]):
            record, its = got[call["of"]], groups[call["h"]]
            its[record["g"]] += 1
            plain = [f"{group} {many}" for group, many in sorted(its.items())]
            assert call["groups"] == plain, f"S1: again: {call}, and a plain loop has {its}"
            at_ms, sent_ms = call.get("event_time"), record.get(SENT)
            ahead = at_ms is not None and sent_ms is not None and at_ms > sent_ms
            assert not ahead, f"W3: again is at {at_ms} and gets {record}"
        left = self._states_left("again", ("groups",))
        kept = {group: {"groups": dict(its)} for group, its in groups.items()}
        assert left == kept, f"S1: again has {left}, and a plain loop {kept}"

    def _check_group(self, key: str, records: list[Segment], left: Mapping[str, Any]) -> None:
        """S1, S2, S4, T1, T2 and N1 of one group."""
        plain, before_ms, ttl_ms = PlainGroup(key), 0, self._of.story.ttl_ms
        for record in sorted(records, key=lambda each: (each["at"], each["number"])):
            if ttl_ms is not None and record["number"] == 1 and plain.count is not None:
                lasted_ms = record["at"] - before_ms
                assert lasted_ms >= ttl_ms, f"S4: {key} loses its states after {lasted_ms} ms"
                plain.clear()
            self._repeat(plain, record)
            before_ms = record["at"]
        assert not plain.timers, f"T1: {key} has lost timers: {plain.timers}"
        kept, now_ms = plain.states(), self._of.clock.wall_ms()
        if left or ttl_ms is None or now_ms - before_ms < ttl_ms:
            assert left == kept, f"S1: {key} has {left}, and a plain loop {kept}"

    def _repeat(self, plain: PlainGroup, record: Segment) -> None:
        """The call of a record, by a plain loop."""
        story, calls = self._of.story, self._of.story.calls
        number = (plain.count or 0) + 1
        assert record["number"] == number, f"S1: call {number} of {plain.key} is {record}"
        plain.now_ms, plain.event_time_ms = record["at"], record.get("event_time")
        plain.ending = bool(record.get("ending"))
        if record.get("leaf") is None:
            made = calls.due(self._fired(plain, record), plain)
        else:
            leaf = story.leaves[record["leaf"]]
            name = story.name_of(leaf.number)
            assert record.get("name") == name, f"N1: {leaf} is called {record.get('name')}"
            segment = {"bits": 1 << leaf.number, "time": record.get("time"), "name": name}
            keep = calls.keep_row if story.columns else calls.keep
            made = keep(segment, plain)
        if made is None:
            made = plain.told[-1]
        expected = made[-1] if isinstance(made, list) else made
        one, other = ({**each, SENT: None} for each in (expected, record))
        assert text_of(one) == text_of(other), f"S1: {record}, and a plain loop: {expected}"

    def _fired(self, plain: PlainGroup, record: Segment) -> DueTimer:
        """The timer of a call; it is no more."""
        name, clock, due_ms = record["timer"], record["clock"], record["due"]
        its = plain.timers.pop(name, None)
        assert its == (clock, due_ms), f"T1: {plain.key}: {record}, and it was set for {its}"
        reached = record["at"] if clock == "processing-time" else record.get("event_time")
        if not plain.ending:
            early = reached is None or reached < due_ms
            assert not early, f"T2: {plain.key}: {record}"
        return DueTimer(plain.key, name, clock, due_ms)

    # --- trees ----------------------------------------------------------------------------------

    def _tree(self, partition: int, position: int) -> dict[str, int]:
        task, index = self._of_partition(partition)
        if task != "read":
            emission = self._of.storage.of(task).emitted.get((index, position))
            assert emission is not None, f"C5: emission {index}/{position} is in no log"
            return {"again" if self._of.story.chained and task == "gather" else "write": 1}
        segment = self.segment(index, position)
        if "bad" in segment:
            return {"dead": 1}
        leaves = [each["number"] for each in segment["leaves"]]
        return {"gather": sum(map(self._of.story.passes, leaves))}


def contents(records: Iterable[Record]) -> Contents:
    """What a snapshot says, in no order."""
    found: Contents = {}
    for record in records:
        if isinstance(record, PutEntries):
            entries = iter(record.entries)
            found[record.window][repr(record.group)][1].update(zip(entries, entries, strict=True))
            continue
        assert isinstance(record, SetStates), "a snapshot"
        its = found.setdefault(record.window, {})
        for group, state in zip(record.groups, record.states, strict=True):
            flat = iter(state) if record.window in MAPS else iter(())
            meant = dict(zip(flat, flat, strict=True)) if record.window in MAPS else state
            its[repr(group)] = (group, meant)
    return found
