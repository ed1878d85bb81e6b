"""The windows of a task do what the reference interpreter says, however the work is cut up.

One script of batches, watermarks and ticks is given to the interpreter segment by segment, and to
`TaskWindows` in batches, one by one, spread over owners of shards, and with owners that die after
every step and are restored elsewhere from what they had written. All of it also with hardly a
state in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.windows.model import FUNCTIONS, Fired, WindowModel
from tests.support.windows.strategies import (
    GROUPS,
    TASK,
    Add,
    Advance,
    Complete,
    Script,
    Step,
    Tick,
    scripts,
)

from onyx.keystate.buckets import Holder, InMemory
from onyx.keystate.groups import hashable_keys
from onyx.state.local.spilled import Spill
from onyx.windows.compile import compile_windows
from onyx.windows.compiled import FIRINGS_PAGE_MAX
from onyx.windows.firing import Firing, FiringPages
from onyx.windows.task_windows import Record, TaskWindows

SHARDS = 2
Outcome = tuple[Counter[str], tuple[int, ...]]
"""Firings of a step, and the segments that were late."""


def shard_of(group: Any) -> int:
    return GROUPS.index(tuple(group) if isinstance(group, list) else group) % SHARDS


def resolve(name: str) -> Any:
    return FUNCTIONS[name]


def plain(value: Any, ordered: bool = True) -> Any:
    """A value to compare: tuples as lists; what has no order, sorted."""
    if isinstance(value, dict):
        return sorted((repr(key), plain(each, ordered=False)) for key, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(each) for each in value]
        return items if ordered else sorted(items, key=repr)
    return value


def shown(window: str, trigger: str | None, event: str, *rest: Any, ordered: bool) -> str:
    group, lower, upper, state = rest
    return repr((window, trigger, event, plain(group), lower, upper, plain(state, ordered)))


class Reference:
    """The interpreter, for all windows of a script."""

    def __init__(self, script: Script) -> None:
        self.grouped = script.grouped
        self.models = [
            WindowModel(each, script.triggers, script.assigned, self._shard_of)
            for each in script.windows
        ]

    def _shard_of(self, group: Any) -> int:
        return shard_of(group) if self.grouped else 0

    def take(self, step: Step) -> Outcome:
        match step:
            case Add():
                return self._add(step)
            case Tick(now_ms):
                fired = [each for model in self.models for each in model.tick(now_ms)]
            case Advance(watermark):
                fired = [each for model in self.models for each in model.advance(watermark)]
            case Complete():
                fired = [each for model in self.models for each in model.complete()]
        return self._shown(fired), ()

    def _add(self, step: Add) -> Outcome:
        fired, late = [], []
        for index, segment in enumerate(step.segments):
            group = step.groups[index] if self.grouped else None
            each = [model.add(segment, group, step.now_ms) for model in self.models]
            fired += [one for firings, _ in each for one in firings]
            late += [index] if all(is_late for _, is_late in each) else []
        return self._shown(fired), tuple(late)

    def _shown(self, fired: Iterable[Fired]) -> Counter[str]:
        sessions = {each.window.id for each in self.models if each.window.type == "session"}
        return Counter(
            shown(one.window, one.trigger.id, *one[2:], ordered=one.window not in sessions)
            for one in fired
        )

    def extents(self) -> Counter[str]:
        return Counter(
            shown(model.window.id, "", "", *each, ordered=model.window.type != "session")
            for model in self.models
            for each in model.extents()
        )


class Owners:
    """`TaskWindows` that own the shards between them, and what each shard has written."""

    def __init__(
        self,
        script: Script,
        count: int = 1,
        holder: Callable[[], Holder] = InMemory,
        page_max: int = FIRINGS_PAGE_MAX,
        between_runs: Callable[[], None] | None = None,
    ) -> None:
        """`between_runs` is called after each run of firings, and may replace the owners."""
        self.script = script
        self.holder = holder
        self.page_max = page_max
        self.between_runs = between_runs
        self.fires_groups = any(each.type == "session" for each in script.windows) or any(
            each.type == "app:every_third" for each in script.triggers
        )
        """All extents of a group at once, be they more than a run."""
        self.compiled = compile_windows(script.job(), TASK, resolve)
        assert self.compiled is not None
        shards = range(SHARDS) if script.grouped else range(1)
        self.written: dict[int, list[Record]] = {shard: [] for shard in shards}
        self.owners = self._fresh(count)
        self._restore()

    def _fresh(self, count: int) -> list[TaskWindows]:
        assert self.compiled is not None
        return [
            TaskWindows(self.compiled, shard_of, self.holder(), self.page_max) for _ in range(count)
        ]

    def _restore(self) -> None:
        for shard, records in self.written.items():
            self.owners[self.owner(shard)].restore(shard, records)

    def owner(self, shard: int) -> int:
        return shard % len(self.owners)

    def take(self, step: Step) -> Outcome:
        late: tuple[int, ...] = ()
        match step:
            case Add():
                firings, late = self._add(step)
            case Tick(now_ms):
                firings = self._fired(lambda rank: self.owners[rank].tick(now_ms))
            case Advance(watermark):
                firings = self._fired(lambda rank: self.owners[rank].advance(watermark))
            case Complete(now_ms):
                firings = self._fired(
                    lambda rank: self.owners[rank].complete(self._shards(rank), now_ms)
                )
        self._write()
        return Counter(self._shown(one) for one in firings), late

    def _fired(self, fire: Callable[[int], FiringPages]) -> list[Firing]:
        """What fires, run by run: owners that come between two runs are asked for the rest."""
        fired: list[Firing] = []
        rank = 0
        while rank < len(self.owners):
            before = self.owners
            for run in fire(rank):
                assert 0 < len(run) <= self.page_max or self.fires_groups
                fired += run
                if self.between_runs is not None:
                    self._write()
                    self.between_runs()
                    if self.owners is not before:
                        break
            rank = 0 if self.owners is not before else rank + 1
        return fired

    def _shards(self, rank: int) -> list[int]:
        return [shard for shard in self.written if self.owner(shard) == rank]

    def _add(self, step: Add) -> tuple[list[Firing], tuple[int, ...]]:
        if not self.script.grouped:
            added = self.owners[0].add(list(step.segments), None, step.now_ms)
            return added.firings, tuple(added.late)
        firings, late = [], []
        for rank, owner in enumerate(self.owners):
            mine = [i for i, each in enumerate(step.groups) if self.owner(shard_of(each)) == rank]
            segments = [step.segments[index] for index in mine]
            keys = hashable_keys([step.groups[index] for index in mine])
            added = owner.add(segments, keys, step.now_ms)
            firings += added.firings
            late += [mine[index] for index in added.late]
        return firings, tuple(sorted(late))

    def _write(self) -> None:
        for owner in self.owners:
            for shard, records in owner.take_changes().items():
                self.written[shard] += records

    def _shown(self, one: Firing) -> str:
        assert one.grouped == self.script.grouped
        assert one.shard == (shard_of(one.group) if one.grouped else 0)
        rest = one.event_type, one.group, one.lower, one.upper, one.state
        return shown(one.window.id, one.trigger.id, *rest, ordered=one.window.type != "session")

    def restart(self, count: int, by_snapshot: bool) -> None:
        """All owners die; `count` others go on from snapshots, or from all that was written."""
        if by_snapshot:
            for rank, owner in enumerate(self.owners):
                shards = self._shards(rank)
                frozen = owner.freeze(shards)
                list(owner.complete(shards, 0))  # shows nowhere in what was frozen before
                self.written |= {shard: list(frozen(shard)) for shard in shards}
        self.owners = self._fresh(count)
        self._restore()

    def move(self) -> None:
        """Another owner joins: shards go over to it by snapshots, and are dropped by the old."""
        old = [self.owner(shard) for shard in range(SHARDS)]
        self.owners += self._fresh(1)
        for shard in sorted(self.written):
            if self.owner(shard) != old[shard]:
                before = self.owners[old[shard]]
                self.owners[self.owner(shard)].restore(shard, before.snapshot(shard))
                before.drop([shard])

    def extents(self) -> Counter[str]:
        return Counter(
            shown(window.id, "", "", each.group, each.lower, each.upper, each.state,
                 ordered=window.type != "session")
            for owner in self.owners
            for window in self.script.windows
            for each in owner.query(window.id)
        )  # fmt: skip


def assert_agree(modelled: Sequence[Step], script: Script, owners: Owners, between: Any) -> None:
    reference = Reference(script)
    for number, step in enumerate(modelled):
        wanted, late = reference.take(step)
        got, got_late = owners.take(step)
        assert got == wanted, f"step {number}: {step}"
        assert got_late == late, f"step {number}: {step}"
        assert owners.extents() == reference.extents(), f"after step {number}: {step}"
        between(number)


def nothing(number: int) -> None:
    """Between steps."""


@given(scripts())
@settings(max_examples=examples(80))
def test_batches_do_what_the_interpreter_says(script: Script) -> None:
    assert_agree(script.steps, script, Owners(script), nothing)


@given(scripts())
@settings(max_examples=examples(40))
def test_segments_one_by_one_do_what_the_interpreter_says(script: Script) -> None:
    single = script.one_by_one()
    assert_agree(single.steps, single, Owners(single), nothing)


@given(scripts(passing=True), st.booleans())
@settings(max_examples=examples(60))
def test_extents_fire_again_when_they_have_changed(script: Script, by_snapshot: bool) -> None:
    owners = Owners(script)
    assert_agree(script.steps, script, owners, lambda number: owners.restart(1, by_snapshot))


@given(scripts(), st.integers(2, 4))
@settings(max_examples=examples(40))
def test_it_does_not_matter_how_many_owners_share_the_shards(script: Script, count: int) -> None:
    assert_agree(script.steps, script, Owners(script, count), nothing)


@pytest.mark.parametrize("by_snapshot", [False, True], ids=["changes", "snapshots"])
@given(scripts(), st.lists(st.integers(1, 3), min_size=1, max_size=4))
@settings(max_examples=examples(40))
def test_owners_may_die_after_every_step(
    by_snapshot: bool, script: Script, counts: list[int]
) -> None:
    owners = Owners(script, counts[0])

    def between(number: int) -> None:
        owners.restart(counts[number % len(counts)], by_snapshot)

    assert_agree(script.steps, script, owners, between)


@given(scripts(), st.lists(st.booleans(), min_size=1, max_size=5))
@settings(max_examples=examples(40))
def test_snapshots_followed_by_changes_restore_what_there_was(
    script: Script, snapshots: list[bool]
) -> None:
    owners = Owners(script)

    def between(number: int) -> None:
        owners.restart(1, by_snapshot=snapshots[number % len(snapshots)])

    assert_agree(script.one_by_one().steps, script, owners, between)


@given(scripts(), st.integers(0, 8))
@settings(max_examples=examples(40))
def test_shards_may_move_to_an_owner_that_joins(script: Script, when: int) -> None:
    owners = Owners(script)
    if not script.grouped:
        return

    def between(number: int) -> None:
        if number == when:
            owners.move()

    assert_agree(script.steps, script, owners, between)


@pytest.fixture(scope="module", params=[0, 2], ids=["none-in-memory", "two-in-memory"])
def new_spill(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Spill]]:
    """Of each example another, which would count what owners of the one before had in memory. With
    pages so small that most things take several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onyx.state.local.spilled.PAGE", 2)
        patch.setattr("onyx.state.local.spilled.PAGE", 2)
        yield partial(Spill, tmp_path_factory.mktemp("scratch"), extents_max=request.param)


@given(scripts(), st.integers(1, 2), st.booleans())
@settings(max_examples=examples(50))
def test_states_may_be_on_disk(
    new_spill: Callable[[], Spill], script: Script, count: int, single: bool
) -> None:
    script = script.one_by_one() if single else script
    spill = new_spill()
    owners = Owners(script, count, lambda: spill)
    assert_agree(script.steps, script, owners, nothing)


@given(scripts(), st.lists(st.booleans(), min_size=1, max_size=5))
@settings(max_examples=examples(50))
def test_states_on_disk_are_restored(
    new_spill: Callable[[], Spill], script: Script, snapshots: list[bool]
) -> None:
    spill = new_spill()
    owners = Owners(script, 2, lambda: spill)

    def between(number: int) -> None:
        owners.restart(1 + number % 2, by_snapshot=snapshots[number % len(snapshots)])

    assert_agree(script.steps, script, owners, between)


@given(scripts(), st.integers(0, 8))
@settings(max_examples=examples(25))
def test_shards_on_disk_may_move(new_spill: Callable[[], Spill], script: Script, when: int) -> None:
    spill = new_spill()
    owners = Owners(script, 1, lambda: spill)
    if not script.grouped:
        return

    def between(number: int) -> None:
        if number == when:
            owners.move()

    assert_agree(script.steps, script, owners, between)


@pytest.mark.parametrize("page_max", [1, 2, 7])
@given(scripts())
@settings(max_examples=examples(40))
def test_it_does_not_matter_how_much_fires_at_once(page_max: int, script: Script) -> None:
    assert_agree(script.steps, script, Owners(script, page_max=page_max), nothing)


def assert_survives(owners: Owners, restarts: Sequence[int]) -> None:
    """Owners die between two runs of firings, by some order of counts of those who take over, and
    0 for those who live on."""
    runs = count()

    def between() -> None:
        number = next(runs)
        there = restarts[number % len(restarts)]
        if there:
            owners.restart(there, by_snapshot=bool(number // len(restarts) % 2))

    owners.between_runs = between
    assert_agree(owners.script.steps, owners.script, owners, nothing)


RESTARTS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


@pytest.mark.parametrize("page_max", [1, 2, 7])
@given(scripts(), RESTARTS)
@settings(max_examples=examples(60))
def test_who_takes_over_between_two_runs_fires_the_rest(
    page_max: int, script: Script, restarts: list[int]
) -> None:
    assert_survives(Owners(script, page_max=page_max), restarts)


@pytest.mark.parametrize("page_max", [1, 2])
@given(scripts(passing=True), RESTARTS)
@settings(max_examples=examples(60))
def test_what_the_watermark_has_passed_fires_once_however_often_owners_change(
    page_max: int, script: Script, restarts: list[int]
) -> None:
    assert_survives(Owners(script, page_max=page_max), restarts)


@pytest.mark.parametrize("page_max", [1, 2])
@given(scripts(), RESTARTS)
@settings(max_examples=examples(40))
def test_states_on_disk_fire_in_runs_too(
    new_spill: Callable[[], Spill], page_max: int, script: Script, restarts: list[int]
) -> None:
    spill = new_spill()
    assert_survives(Owners(script, 1, lambda: spill, page_max), restarts)
