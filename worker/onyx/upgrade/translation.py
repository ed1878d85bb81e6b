"""The state of a task in the terms of another job: without what that does not have."""

from __future__ import annotations

from collections.abc import Iterable

from onyx.keystate.records import (
    JOINED,
    LEFT,
    SNAPSHOT,
    TIMERS,
    TOUCHED,
    UNFINISHED,
    FiringProgress,
    Record,
    TriggerRecord,
    WindowRecord,
)
from onyx.model.job import Job, Trigger
from onyx.upgrade.plan import UpgradePlan, same_trigger


class Translation:
    """The translation of records of one task."""

    def __init__(self, old: Job, new: Job, task: str, plan: UpgradePlan) -> None:
        self._triggers = {
            window.id: _kept(old, new, window.id)
            for window in new.windows
            if window.task == task and plan.carries("window", window.id)
        }
        self._states = _kept_states(old, new, task, plan)

    def records(self, records: Iterable[Record]) -> list[Record]:
        """The records of windows, triggers and states that are carried over."""
        return [each for each in records if self._is_kept(each)]

    def _is_kept(self, record: Record) -> bool:
        if not isinstance(record, WindowRecord):
            return False
        if record.window in self._states:
            return True
        triggers = self._triggers.get(record.window)
        if triggers is None:
            return False
        return not isinstance(record, TriggerRecord) or record.trigger in triggers


def _kept_states(old: Job, new: Job, task: str, plan: UpgradePlan) -> frozenset[str]:
    """The names in records of states that go on, and of what belongs to all of them."""
    after = new.entry(task)
    found = {name for name in after.state or () if plan.carries("state", f"{task}.{name}")}
    if plan.carries("task", task) and after.state is not None:
        before = old.entry(task)
        if before.on_timer is not None and after.on_timer is not None:
            found.add(TIMERS)
        if before.state_ttl is not None and after.state_ttl is not None:
            found.add(TOUCHED)
    if plan.carries("task", task) and after.processor is not None:
        found |= {SNAPSHOT, UNFINISHED, LEFT}
    if plan.carries("task", task) and after.type == "join":
        found.add(JOINED)
    return frozenset(found)


def is_of_the_end(record: Record) -> bool:
    """Whether it says what has fired for the last time, which it has not if more comes."""
    return isinstance(record, FiringProgress) and record.event_type == "job-completed"


def _kept(old: Job, new: Job, window: str) -> frozenset[str]:
    """Names of triggers whose states and timers go on."""
    before, after = _triggers(old, window), _triggers(new, window)
    return frozenset(
        name
        for name, trigger in after.items()
        if name in before and same_trigger(before[name], trigger)
    )


def _triggers(job: Job, window: str) -> dict[str, Trigger]:
    """By the names that they have in records."""
    mine = [trigger for trigger in job.triggers if trigger.window_id == window]
    return {trigger.id or str(index): trigger for index, trigger in enumerate(mine)}
