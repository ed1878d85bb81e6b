"""What a job carries over from the job in whose place it comes: decided from the two manifests.

Tasks and windows of the same name are carried over. Where that cannot be, or where it would not be
exact, the manifest has to say what is wanted: state is never dropped silently, so it is a problem
until `resumePoint` says `initialize` (or, where only segments in flight are in doubt, `resume`).
What the new job no longer has is dropped, and the plan says so.

Renaming was rejected: ids of segments are made of names, so what is in flight could not be told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from onyx.errors import Problem
from onyx.model.job import Job, ResumePoint, Window
from onyx.upgrade.fitting import (
    GATHERING,
    Doubt,
    input_doubt,
    output_doubt,
    renamed_doubt,
    task_doubt,
    way_doubt,
    window_doubt,
    windowed,
)

Part = Literal["input", "output", "task", "window"]
Fate = Literal["carried over", "new", "initialized", "dropped"]


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of a task or window."""

    part: Part
    """`task`: what a task with windows has besides: emissions under way, keys seen."""
    name: str
    fate: Fate
    why: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Of all tasks and windows of both jobs."""

    steps: tuple[Step, ...]
    problems: tuple[Problem, ...]
    """Why it cannot be carried out, each with the path of the key that decides it."""

    def carries(self, part: Part, name: str) -> bool:
        return any(
            (step.part, step.name, step.fate) == (part, name, "carried over") for step in self.steps
        )


def in_place_of(job: Job, other: str) -> Job:
    """The same job, to come in the place of another one."""
    point = ResumePoint(other) if job.resume_point is None else replace(job.resume_point, job=other)
    return replace(job, resume_point=point)


def without_answers(job: Job) -> Job:
    """The same job, to begin by itself: answers about the job before it say nothing then."""
    point = job.resume_point
    return job if point is None or point.job is not None else replace(job, resume_point=None)


def plan(old: Job, new: Job, point: ResumePoint) -> Plan:
    """
    Args:
        old: the job that ends.
        new: the job that comes in its place.
        point: what is said about it.
    """
    return _Planning(old, new, point).plan()


class _Planning:
    def __init__(self, old: Job, new: Job, point: ResumePoint) -> None:
        self._old = old
        self._new = new
        self._point = point
        self._before = {entry.name: entry for entry in old.catalog}
        self._steps: list[Step] = []
        self._problems: list[Problem] = []

    def plan(self) -> Plan:
        for job, which in ((self._old, "the other job"), (self._new, "this job")):
            if job.guarantee == "at-most-once":
                message = f"{which} has guarantee at-most-once, for which no state is kept"
                hint = "submit without a resume point"
                self._problems.append(Problem("spec.resumePoint.job", message, hint))
        for entry in self._new.catalog:
            if entry.type in ("input", "output"):
                self._source_or_sink(entry.name)
        for task in windowed(self._new):
            self._task(task)
        self._gone()
        return Plan(tuple(self._steps), tuple(self._problems))

    def _source_or_sink(self, name: str) -> None:
        before, after = self._before.get(name), self._new.entry(name)
        part: Part = "input" if after.type == "input" else "output"
        if before is None or before.type != after.type:
            doubt = renamed_doubt(self._old, after)
            if doubt is None or self._mode(part, name) == "resume":
                self._new_part(part, name)
            else:
                self._decide(part, name, doubt)
        elif part == "input":
            self._decide(part, name, input_doubt(before, after))
        else:
            doubt = output_doubt(before, after) or way_doubt(self._old, self._new, name)
            self._decide(part, name, doubt)

    def _task(self, task: str) -> None:
        """A task with windows, then each of these."""
        old, new = self._old, self._new
        if task in windowed(old):
            doubt = task_doubt(old, new, task) or way_doubt(old, new, task)
            fate = self._decide("task", task, doubt)
        else:
            fate = self._new_part("task", task)
        before = {each.id: each for each in old.windows if each.task == task}
        for window in new.windows:
            if window.task == task and fate == "carried over":
                self._window(before.get(window.id), window)
            elif window.task == task:
                fate_here: Fate = fate if window.id in before else "new"
                self._steps.append(Step("window", window.id, fate_here, f"as its task {task}"))

    def _window(self, before: Window | None, after: Window) -> None:
        if before is None:
            self._new_part("window", after.id)
        else:
            self._decide("window", after.id, window_doubt(before, after))

    def _new_part(self, part: Part, name: str) -> Fate:
        """The other job does not have it."""
        self._steps.append(Step(part, name, "new"))
        if self._mode(part, name) == "resume":
            message = f"cannot be resumed: job {self._point.job} has nothing like it"
            self._problems.append(Problem(self._path(part, name), message))
        return "new"

    def _decide(self, part: Part, name: str, doubt: Doubt | None) -> Fate:
        """The other job has it, but there may be a doubt."""
        mode = self._mode(part, name)
        fate: Fate = "carried over"
        if mode == "initialize":
            fate = "initialized"
        elif doubt is not None and not (doubt.in_flight and mode == "resume"):
            fate = "dropped"
            hint = "give initialize to let it begin anew"
            hint += ", or resume to take that" if doubt.in_flight else ""
            message = f"has to be said: {doubt.why}"
            self._problems.append(Problem(self._path(part, name), message, hint))
        why = doubt.why if doubt is not None and fate != "initialized" else ""
        self._steps.append(Step(part, name, fate, why))
        return fate

    def _mode(self, part: Part, name: str) -> str | None:
        return (self._point.windows if part == "window" else self._point.tasks).get(name)

    def _path(self, part: Part, name: str) -> str:
        return f"spec.resumePoint.{'windows' if part == 'window' else 'tasks'}.{name}"

    def _gone(self) -> None:
        """What the new job does not have."""
        there = {(each.type, each.name) for each in self._new.catalog}
        for entry in self._old.catalog:
            if entry.type in ("input", "output") and (entry.type, entry.name) not in there:
                part: Part = "input" if entry.type == "input" else "output"
                why = "the new job has none"
                why += "; no stage reads its parts" if entry.plugin in GATHERING else ""
                self._steps.append(Step(part, entry.name, "dropped", why))
        kept = {(window.task, window.id) for window in self._new.windows}
        for window in self._old.windows:
            if (window.task, window.id) not in kept:
                why = f"task {window.task} of the new job has none"
                self._steps.append(Step("window", window.id, "dropped", why))
