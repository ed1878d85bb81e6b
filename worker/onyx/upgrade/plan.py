"""What a job carries over from the old job that it upgrades: decided from the two manifests.

Tasks and windows of the same name are carried over. Where their state does not fit, or would not
be exact, the plan reports a problem until `spec.upgrade` answers it: `initialize` begins anew, and
`carry-over` accepts that in-flight segments may count twice. So state is never dropped silently.
Tasks and windows that the new job does not have are dropped, and the plan says so.

Renaming was rejected: ids of segments are made of names, so a task under another name could not
recognize the in-flight segments.

Whether the state of one task or window fits is a `Doubt` about it, at the end of this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from onyx.errors import Problem
from onyx.model.job import CatalogEntry, Job, Trigger, Upgrade, Window, Within
from onyx.model.plugins import (
    deals_parts,
    journals_of,
    keeps_journal,
    makes_one_result,
    takes_requests,
)
from onyx.model.state_types import parse_state_type
from onyx.model.workflow import (
    ancestors,
    children,
    is_unbounded,
    loop_of,
    ordered_parents,
    stateful_tasks,
)
from onyx.windows.units import standard

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
    arrives. Empty if it need not, or rests. What is in flight no manifest says: `compare` leaves
    this empty, and `submission.upgrades` fills it in."""

    def carries(self, part: Part, name: str) -> bool:
        """Whether the state of a task or window is carried over."""
        return any(
            (step.part, step.name, step.fate) == (part, name, "carried over") for step in self.steps
        )


def upgrading(job: Job, old: str) -> Job:
    """The job `job` as the one that upgrades the job with the id `old`."""
    section = Upgrade() if job.upgrade is None else job.upgrade
    return replace(job, upgrade=replace(section, from_job=old, savepoint=None))


def unbegun(job: Job) -> Job:
    """The job `job` whatever it begins with: without answers and savepoint, unless it names an old
    job."""
    section = job.upgrade
    return job if section is None or section.from_job else replace(job, upgrade=None)


def beginning_with(job: Job, savepoint: str) -> Job:
    """The job `job` as one that begins with a savepoint."""
    section = Upgrade() if job.upgrade is None else job.upgrade
    return replace(job, upgrade=replace(section, from_job=None, savepoint=savepoint))


def drop_unused_upgrade(job: Job) -> Job:
    """The job `job` without a `spec.upgrade` that names no old job and no savepoint: it upgrades
    none."""
    section = job.upgrade
    unused = section is not None and section.from_job is None and section.savepoint is None
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
        carried = any(step.fate == "carried over" for step in self._steps)
        if self._upgrade.savepoint is not None and not carried and not self._problems:
            what = "the job takes over nothing of the saved one"
            hint = "give its tasks the names that they have there, or use another savepoint"
            self._problems.append(Problem("spec.upgrade.savepoint", what, hint))
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
            if self._upgrade.savepoint is not None and makes_one_result(after.type, after.plugin):
                doubt = Doubt(_GATHERED)
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
            old = self._upgrade.from_job or "of the savepoint"
            message = f"cannot be carried over: job {old} has no such state"
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


class Doubt(NamedTuple):
    """Why the state does not fit."""

    why: str
    in_flight: bool = False
    """The state fits, but in-flight segments may count twice: a user may accept that."""


_GATHERED = (
    "its result is made of parts that are in no savepoint, and the saved job may have added to them"
)
_SHAPE = ("engine", "type", "aggregation", "window_key", "min_value", "session_key", "init")
_AMOUNTS = ("range", "slide", "timeout_gap")
_YAML = {
    "window_key": "windowKey", "min_value": "minValue", "session_key": "sessionKey",
    "timeout_gap": "timeoutGap", "uniqueness_key": "uniquenessKey",
}  # fmt: skip


def windowed(job: Job) -> tuple[str, ...]:
    """Tasks with windows or with state by key, in the order of the catalog."""
    tasks = stateful_tasks(job)
    return tuple(entry.name for entry in job.catalog if entry.name in tasks)


def input_doubt(old: CatalogEntry, new: CatalogEntry) -> Doubt | None:
    """Positions belong to a plugin; those of inputs that take requests belong to their journals,
    whichever way requests come. Partitions are matched by name, so options may change, but for
    those that say what is dealt to the partitions; and a journal is carried over whole."""
    if all(takes_requests(each.type, each.plugin) for each in (old, new)):
        return _option_differs(old, new, ("partitions", "partitionKey"))
    changed = _differs("plugin", old.plugin, new.plugin)
    if changed is None and deals_parts(new.type, new.plugin):
        return _option_differs(old, new, ("job", "task", "partitions"))
    return changed or _journal_doubt(old, new)


def _option_differs(old: CatalogEntry, new: CatalogEntry, names: Sequence[str]) -> Doubt | None:
    found = (_differs(name, old.options.get(name), new.options.get(name)) for name in names)
    return next((each for each in found if each is not None), None)


def _journal_doubt(old: CatalogEntry, new: CatalogEntry) -> Doubt | None:
    """What is in a journal and not processed is only there."""
    before, after = (keeps_journal(each.type, each.plugin, each.options) for each in (old, new))
    if before != after:
        return _differs("mode", *("journal" if each else "native" for each in (before, after)))
    if not before:
        return None
    counts = [journals_of(each.options) for each in (old, new)]
    if counts[1] >= counts[0]:
        return None
    why = f"it had {counts[0]} partitions and has {counts[1]}"
    return Doubt(f"{why}, so what the journals of the others hold would be lost")


def output_doubt(old: CatalogEntry, new: CatalogEntry) -> Doubt | None:
    """Only a gathering output reads again what the old job has written."""
    if not any(makes_one_result(each.type, each.plugin) for each in (old, new)):
        return None
    changed = _differs("plugin", old.plugin, new.plugin)
    if changed is None and result_path(old) != result_path(new):
        changed = _differs("path", old.options.get("path"), new.options.get("path"))
    if changed is None:
        changed = _differs("frame", old.options.get("frame"), new.options.get("frame"))
    return changed and Doubt(f"{changed.why}, so the result lacks what the old job has written")


def renamed_doubt(old: Job, new: CatalogEntry) -> Doubt | None:
    """About an output whose name the old job does not have."""
    if not makes_one_result(new.type, new.plugin):
        return None
    for entry in old.catalog:
        if (
            entry.plugin == new.plugin
            and entry.type == new.type
            and result_path(entry) == result_path(new)
            and entry.options.get("frame") == new.options.get("frame")
        ):
            why = f"its path is that of output {entry.name} of the old job, whose parts the"
            return Doubt(f"{why} result lacks, because outputs are matched by name")
    return None


def task_doubt(old: Job, new: Job, task: str) -> Doubt | None:
    """State is split by group key, so the grouping must be the same; so must what it is."""
    before, after = old.entry(task), new.entry(task)
    return (
        _differs("grouping", _grouping(before), _grouping(after))
        or _differs("what it keeps", _kept_in(before), _kept_in(after))
        or _differs("processor", before.processor, after.processor)
        or _ordinals_differ(old, new, task)
        or _state_doubt(before.state or {}, after.state or {})
        or _join_doubt(before, after)
        or _loop_doubt(old, new, task)
    )


def _kept_in(entry: CatalogEntry) -> str:
    if entry.type == "join":
        return "two streams"
    if entry.processor is not None:
        return "what a processor has saved"
    return "windows" if entry.state is None else "state"


def _ordinals_differ(old: Job, new: Job, task: str) -> Doubt | None:
    """A processor knows the tasks upstream by their numbers."""
    if new.entry(task).processor is None:
        return None
    before, after = (ordered_parents(each.workflow, task) for each in (old, new))
    return _differs("order of the tasks upstream", before, after)


def _loop_doubt(old: Job, new: Job, task: str) -> Doubt | None:
    """In a loop what was made of a segment waits for that to come again, under numbers of the old
    job."""
    if any(loop_of(each, task) for each in (old, new)):
        return Doubt("it is in a loop, and what goes round there belongs to one job")
    return None


def _join_doubt(old: CatalogEntry, new: CatalogEntry) -> Doubt | None:
    """Rows of both sides wait for what would have met them. They have no names of their own, so
    the tasks may be called otherwise, and so may what is made."""
    if old.type != "join":
        return None
    for name, before, after in zip(("left", "right"), old.sides, new.sides, strict=True):
        changed = _differs(f"{name}.key", before.keys, after.keys)
        if doubt := changed or _differs(f"{name}.at", before.at, after.at):
            return doubt
    for name in ("how", "within", "range"):
        if doubt := _differs(name, getattr(old, name), getattr(new, name)):
            return doubt
    return None


def _state_doubt(old: Mapping[str, str], new: Mapping[str, str]) -> Doubt | None:
    """States of the same name hold the same, or now more."""
    for name in sorted(old.keys() & new.keys()):
        if not parse_state_type(old[name]).fits(parse_state_type(new[name])):
            return _differs(f"state {name}", old[name], new[name])
    return None


def window_doubt(old: Window, new: Window) -> Doubt | None:
    """States and extents must mean the same. Triggers may differ."""
    for name in _SHAPE:
        if doubt := _differs(_YAML.get(name, name), getattr(old, name), getattr(new, name)):
            return doubt
    for name in _AMOUNTS if new.type != "global" else ():
        before, after = getattr(old, name), getattr(new, name)
        if _size(before) != _size(after):
            return _differs(_YAML.get(name, name), before, after)
    return _differs("storageStrategy", _ordered(old), _ordered(new))


def path_doubt(old: Job, new: Job, task: str) -> Doubt | None:
    """Replayed segments are recognized by ids, and an id is made of the path that a segment takes
    from the input to the task. On another path replayed segments get new ids. Where one of the jobs
    is on Spark nothing is in flight."""
    if new.guarantee != "exactly-once" or "spark" in (old.engine, new.engine):
        return None
    if old.guarantee != "exactly-once":
        why = f"the old job is {old.guarantee}, so in-flight segments may count twice"
        return Doubt(why, in_flight=True)
    before, after = _path(old, task), _path(new, task)
    known = {each.name for each in old.catalog}
    # Nothing that is in flight has come from an input that is new, and no other path changes by it.
    began = {name for name in after if name not in known and new.entry(name).type == "input"}
    names = {*before, *after} - began
    changed = sorted(name for name in names if before.get(name) != after.get(name))
    if not changed:
        return None
    what = f"the path of segments to it has changed ({', '.join(changed)})"
    return Doubt(f"{what}, so in-flight segments may count twice", in_flight=True)


def same_trigger(old: Trigger, new: Trigger) -> bool:
    """Whether a trigger's counts and timers keep their meaning."""
    names = ("type", "threshold", "period", "pred", "fire_all_extents", "watermark_percentage")
    return all(getattr(old, name) == getattr(new, name) for name in names)


def _path(job: Job, task: str) -> dict[str, Any]:
    """What decides the ids of a task's segments: for each task on the path its type, whether it
    has windows, its children, its flow conditions, and whether it gives something back."""
    below = children(job.workflow)
    return {
        name: (
            job.entry(name).type,
            name in windowed(job),
            below[name],
            [each for each in job.flow_conditions if {name, "all"}.intersection(each.from_tasks)],
            bool(job.ack_returns),
        )
        for name in ancestors(job.workflow, task)
    }


def result_path(entry: CatalogEntry) -> PurePosixPath:
    """Where an output that makes one result puts its result."""
    return PurePosixPath(str(entry.options.get("path", "")).removeprefix("file://"))


def _grouping(entry: CatalogEntry) -> Any:
    return entry.group_by_key or entry.group_by_fn


def _ordered(window: Window) -> bool:
    strategy = window.storage_strategy
    return "ordered-log" in strategy and "incremental" not in strategy


def _size(amount: tuple[int, str] | None) -> tuple[bool, int] | None:
    return None if amount is None else (amount[1].startswith("element"), standard(amount))


def _differs(what: str, old: Any, new: Any) -> Doubt | None:
    return None if old == new else Doubt(f"{what} was {_text(old)} and is {_text(new)}")


def _text(value: Any) -> str:
    if isinstance(value, Within):
        return f"{value.before} ms before to {value.after} ms after"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return "not given" if value is None else str(value)
