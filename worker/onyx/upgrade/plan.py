"""What a job carries over from the old job that it upgrades: decided from the two manifests.

Tasks and windows of the same name are carried over. Where their state does not fit, or would not
be exact, the plan reports a problem until `spec.upgrade` answers it: `initialize` begins anew, and
`carry-over` accepts that in-flight segments may count twice. So state is never dropped silently.
Tasks and windows that the new job does not have are dropped, and the plan says so.

Renaming was rejected: ids of segments are made of names, so a task under another name could not
recognize the in-flight segments.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from onyx.errors import Problem
from onyx.model.job import Job, Upgrade, Window
from onyx.model.plugins import makes_one_result
from onyx.model.workflow import is_unbounded
from onyx.upgrade.compatibility import (
    Doubt,
    input_doubt,
    output_doubt,
    path_doubt,
    renamed_doubt,
    task_doubt,
    window_doubt,
    windowed,
)

Part = Literal["input", "output", "task", "window", "state"]
Fate = Literal["carried over", "new", "initialized", "dropped"]


class Step(msgspec.Struct, frozen=True):
    """What happens to the state of one task or window."""

    part: Part
    """`task`: what a task with windows or state has beside these: unacknowledged emissions, keys
    seen. `state`: a state of a function, named `task.state`."""
    name: str
    fate: Fate
    why: str = ""


class UpgradePlan(msgspec.Struct, frozen=True):
    """What happens to the state of all tasks and windows of both jobs."""

    steps: tuple[Step, ...]
    problems: tuple[Problem, ...]
    """Why the job cannot upgrade the old one, each with the path of the key that decides it."""
    pauses: str = ""
    """The old job, if that is to come to rest before: its inputs are paused, and what is in flight
    arrives. Empty if it need not, or rests. What is in flight no manifest says: `compare` leaves this
    empty, and `submission.upgrades` fills it in."""

    def carries(self, part: Part, name: str) -> bool:
        """Whether the state of a task or window is carried over."""
        return any(
            (step.part, step.name, step.fate) == (part, name, "carried over") for step in self.steps
        )


def upgrading(job: Job, old: str) -> Job:
    """The job `job` as the one that upgrades the job with the id `old`."""
    section = Upgrade() if job.upgrade is None else job.upgrade
    return replace(job, upgrade=replace(section, from_job=old))


def drop_unused_upgrade(job: Job) -> Job:
    """The job `job` without a `spec.upgrade` that names no old job: it upgrades none."""
    unused = job.upgrade is not None and job.upgrade.from_job is None
    return replace(job, upgrade=None) if unused else job


def compare(old: Job, new: Job, upgrade: Upgrade) -> UpgradePlan:
    """What a job carries over, by the two manifests.

    Args:
        old: the old job, which ends.
        new: the new job, which upgrades it.
        upgrade: `spec.upgrade` of the new job, with the old job's id.
    """
    return _Planning(old, new, upgrade).plan()


class _Planning:
    def __init__(self, old: Job, new: Job, upgrade: Upgrade) -> None:
        self._old = old
        self._new = new
        self._upgrade = upgrade
        self._before = {entry.name: entry for entry in old.catalog}
        self._steps: list[Step] = []
        self._problems: list[Problem] = []

    def plan(self) -> UpgradePlan:
        for job, which in ((self._old, "the old job"), (self._new, "the new job")):
            if job.guarantee == "at-most-once":
                message = f"{which} has guarantee at-most-once, which keeps no state"
                hint = "submit it without an upgrade"
                self._problems.append(Problem("spec.upgrade.from", message, hint))
        self._engines()
        for entry in self._old.catalog:
            if entry.stage is not None:
                what = f"the old job has the Spark stage {entry.name}, whose bundles stay with it"
                hint = "let it complete (onyx drain), and submit this job without an upgrade"
                self._problems.append(Problem("spec.upgrade.from", what, hint))
        for entry in self._new.catalog:
            if entry.type in ("input", "output"):
                self._source_or_sink(entry.name)
        for task in windowed(self._new):
            self._task(task)
        self._gone()
        return UpgradePlan(tuple(self._steps), tuple(self._problems))

    def _engines(self) -> None:
        if self._old.engine == "spark" and not is_unbounded(self._old):
            what = "the old job is one query on Spark, which holds nothing before its end"
            hint = "submit it without an upgrade"
            self._problems.append(Problem("spec.upgrade.from", what, hint))

    def _source_or_sink(self, name: str) -> None:
        before, after = self._before.get(name), self._new.entry(name)
        part: Part = "input" if after.type == "input" else "output"
        if before is None or before.type != after.type:
            doubt = renamed_doubt(self._old, after)
            if doubt is None or self._mode(part, name) == "carry-over":
                self._new_part(part, name)
            else:
                self._decide(part, name, doubt)
        elif part == "input":
            self._decide(part, name, input_doubt(before, after))
        else:
            doubt = output_doubt(before, after) or path_doubt(self._old, self._new, name)
            self._decide(part, name, doubt)

    def _task(self, task: str) -> None:
        """A task with windows, then each of these."""
        old, new = self._old, self._new
        if task in windowed(old):
            doubt = task_doubt(old, new, task) or path_doubt(old, new, task)
            fate = self._decide("task", task, doubt)
        else:
            fate = self._new_part("task", task)
        before = {each.id: _kept(old, each) for each in old.windows if each.task == task}
        for window in new.windows:
            if window.task == task and fate == "carried over":
                self._window(before.get(window.id), _kept(new, window))
            elif window.task == task:
                fate_here: Fate = fate if window.id in before else "new"
                self._steps.append(Step("window", window.id, fate_here, f"like its task {task}"))
        self._states(task, fate)

    def _states(self, task: str, fate: Fate) -> None:
        """The states of a function; of the same name they fit, or the task would not."""
        before = self._before.get(task)
        known = {} if before is None or before.state is None else before.state
        for name in self._new.entry(task).state or ():
            its: Fate = fate if name in known else "new"
            why = "" if its in ("new", "carried over") else f"like its task {task}"
            self._steps.append(Step("state", f"{task}.{name}", its, why))

    def _window(self, before: Window | None, after: Window) -> None:
        if before is None:
            self._new_part("window", after.id)
        else:
            self._decide("window", after.id, window_doubt(before, after))

    def _new_part(self, part: Part, name: str) -> Fate:
        """The old job has no such task or window."""
        self._steps.append(Step(part, name, "new"))
        if self._mode(part, name) == "carry-over":
            message = f"cannot be carried over: job {self._upgrade.from_job} has no such state"
            self._problems.append(Problem(self._path(part, name), message))
        return "new"

    def _decide(self, part: Part, name: str, doubt: Doubt | None) -> Fate:
        """The old job has it; `doubt` says why its state may not fit."""
        mode = self._mode(part, name)
        fate: Fate = "carried over"
        if mode == "initialize":
            fate = "initialized"
        elif doubt is not None and not (doubt.in_flight and mode == "carry-over"):
            fate = "dropped"
            hint = "give initialize to begin anew"
            hint += ", or carry-over to accept that" if doubt.in_flight else ""
            message = f"needs an answer: {doubt.why}"
            self._problems.append(Problem(self._path(part, name), message, hint))
        why = doubt.why if doubt is not None and fate != "initialized" else ""
        self._steps.append(Step(part, name, fate, why))
        return fate

    def _mode(self, part: Part, name: str) -> str | None:
        return (self._upgrade.windows if part == "window" else self._upgrade.tasks).get(name)

    def _path(self, part: Part, name: str) -> str:
        return f"spec.upgrade.{'windows' if part == 'window' else 'tasks'}.{name}"

    def _gone(self) -> None:
        """Tasks and windows that the new job does not have."""
        there = {(each.type, each.name) for each in self._new.catalog}
        for entry in self._old.catalog:
            if entry.type in ("input", "output") and (entry.type, entry.name) not in there:
                part: Part = "input" if entry.type == "input" else "output"
                why = "the new job has none"
                if makes_one_result(entry.type, entry.plugin):
                    why += "; no stage reads its parts"
                self._steps.append(Step(part, entry.name, "dropped", why))
        kept = {(window.task, window.id) for window in self._new.windows}
        for window in self._old.windows:
            if (window.task, window.id) not in kept:
                why = f"task {window.task} of the new job has none"
                self._steps.append(Step("window", window.id, "dropped", why))
        self._gone_states()

    def _gone_states(self) -> None:
        """States of functions that the new job does not have, and timers that nobody waits for."""
        after = {entry.name: entry for entry in self._new.catalog}
        for entry in self._old.catalog:
            there = after.get(entry.name)
            kept = {} if there is None or there.state is None else there.state
            for name in entry.state or ():
                if name not in kept:
                    why = f"task {entry.name} of the new job has none"
                    self._steps.append(Step("state", f"{entry.name}.{name}", "dropped", why))
            if kept and entry.on_timer is not None and there is not None and not there.on_timer:
                why = f"task {entry.name} of the new job has no onTimer"
                self._steps.append(Step("state", f"{entry.name} (timers)", "dropped", why))


def _kept(job: Job, window: Window) -> Window:
    """The window with the engine that keeps it: in a job on Spark its own has no effect."""
    return replace(window, engine="peers") if job.engine == "spark" else window
