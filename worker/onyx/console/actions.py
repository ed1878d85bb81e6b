"""What is done to jobs from the console, where whoever runs it lets that be (`--actions`).

Each action has a page that says what will happen, and what speaks against it; the form on it does
it, by the function of the client that the command calls, under the name of who looks. An action
that would not last is refused: what an OnyxJob declares the operator brings about again. What the
log says afterwards counts: a job that had ended when the entry came was not changed, and that is
said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from onyx.client.client import Client
from onyx.client.manifests import check_runs
from onyx.console.board import Manifests, Past, change_at
from onyx.errors import ManifestError, Problem, UserError
from onyx.ids import JobId, Position
from onyx.model.canonical import to_mapping
from onyx.model.changing import KEYS, with_options
from onyx.model.job import Job
from onyx.model.parsing.options import read_options, value_of
from onyx.replica.job_events import JobEvent
from onyx.replica.state import Replica

SHOWN_S, LOOK_S = 5.0, 0.02
"""How long it is waited until the log shows an entry, and how often it is looked."""


class JobAction(msgspec.Struct, frozen=True):
    """Something that can be done to a job."""

    verb: str
    done: str
    says: tuple[str, ...]
    """What will happen."""
    declared: str = ""
    """What an OnyxJob says instead, where the operator would undo it."""
    beside: str = ""
    """What it means for an OnyxJob, where the operator lets it be."""


ACTIONS: Mapping[str, JobAction] = {
    "suspend": JobAction(
        "Suspend",
        "suspended",
        (
            "Its peers go to other jobs until it is resumed.",
            "What it has done stays. Segments in flight are read again then.",
        ),
        "desiredState: Suspended",
    ),
    "resume": JobAction(
        "Resume",
        "resumed",
        (
            "It asks for peers again, and goes on from where its inputs were complete.",
            "One that is paused for an upgrade reads on, and the upgrade is given up.",
        ),
        "desiredState: Running",
    ),
    "drain": JobAction(
        "Drain",
        "drained",
        (
            "It reads nothing new, completes what is pending, seals its outputs and completes.",
            "There is no way back. One that is suspended does this when it is resumed.",
        ),
        beside="It stays as it is until its restartNonce is another number.",
    ),
    "set": JobAction(
        "Change",
        "changed",
        ("All peers of the task follow from their next batch on; nothing is allocated anew.",),
        beside="It holds until the next edit of the OnyxJob, which sets all that its spec says.",
    ),
    "kill": JobAction(
        "Kill",
        "killed",
        (
            "It stops for ever, wherever it is: what is in flight does not arrive, and its outputs "
            "are not sealed.",
            "Its state stays until it is forgotten: another job may upgrade it.",
        ),
        beside="It stays killed until its restartNonce is another number.",
    ),
}


class ChangeableKey(msgspec.Struct, frozen=True):
    """A key of a task that may change while its job runs."""

    key: str
    now: str
    new: str = ""


class ActionPage(msgspec.Struct, frozen=True):
    """What the page of an action shows."""

    kind: str
    action: JobAction
    id: str
    name: str
    refused: str = ""
    """Why it cannot be done."""
    owner: str = ""
    problems: tuple[Problem, ...] = ()
    tasks: tuple[str, ...] = ()
    """That a value can be set of, in place of a task."""
    task: str = ""
    options: tuple[ChangeableKey, ...] = ()
    fields: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What the form sends besides; empty where something is to be chosen first."""
    seal: str = ""
    who: str = ""
    """What is done is recorded under this name."""

    @property
    def is_ready(self) -> bool:
        """Whether it can be done as it stands here."""
        chosen = self.kind != "set" or any(each.new for each in self.options)
        return chosen and not self.refused and not self.problems


class Actions:
    """Does what is asked for. For any thread."""

    def __init__(self, client: Client, past: Past, manifests: Manifests) -> None:
        self._client, self._past, self._manifests = client, past, manifests

    def page(self, kind: str, job: JobId, fields: Mapping[str, str]) -> ActionPage:
        """What would happen. Raises OnyxError when a manifest cannot be read."""
        replica, action = self._past.replica, ACTIONS[kind]
        digest = replica.digest_of(job)
        name = self._manifests.name(digest, job)[0] if digest else ""
        owner = owner_of(replica, job)
        refused = why_not(kind, replica, job)
        view = ActionPage(kind, action, job, name, refused, owner)
        if kind != "set" or refused or digest is None:
            return view
        run, manifest = replica.run(job), self._manifests.job(digest, job)
        return _choice(view, with_options(manifest, run.options, bool(run.declared)), fields)

    def do(self, kind: str, job: JobId, fields: Mapping[str, str], who: str) -> Position:
        """Do it; where it stands in the log.

        Raises:
            UserError: it cannot be done, or the job had ended before.
            Unavailable: ZooKeeper does not answer. It may have been done.
        """
        if refused := why_not(kind, self._past.replica, job):
            raise UserError(refused)
        if kind == "set":
            task, given = _given(fields)
            position = self._client.set_options(job, task, given, who)
        else:
            function: Callable[..., Position] = getattr(self._client, kind)
            position = function(job, by=who)
        self._check_came_in_time(kind, job, position)
        return position

    def _check_came_in_time(self, kind: str, job: JobId, position: Position) -> None:
        ends_s = time.monotonic() + SHOWN_S
        while self._past.replica.version < position and time.monotonic() < ends_s:
            time.sleep(LOOK_S)
        change = change_at(self._past, self._client, position)
        if change is not None and job not in change.old.jobs:
            check_runs(change.old, job, ACTIONS[kind].done)


class JobActions(msgspec.Struct, frozen=True):
    """What the page of a job leads to, and what was done from there."""

    id: str
    actions: Mapping[str, JobAction]
    done: JobEvent | None


def actions_of(replica: Replica, job: JobId, history: Sequence[JobEvent], done: str) -> JobActions:
    """The actions that would change something. `done`: the entry of one, from the address."""
    kinds = [kind for kind in ACTIONS if job in replica.jobs and not _idle(kind, replica, job)]
    found = next((each for each in history if str(each.position) == done), None)
    return JobActions(job, {kind: ACTIONS[kind] for kind in kinds}, found)


def why_not(kind: str, replica: Replica, job: JobId) -> str:
    """Why an action cannot be done; empty: it can."""
    action = ACTIONS[kind]
    try:
        check_runs(replica, job, action.done)
    except UserError as error:
        return str(error)
    owner = owner_of(replica, job)
    if owner and action.declared:
        return (
            f"{owner} declares this job, and the operator would undo it: give its spec "
            f"{action.declared}"
        )
    return _idle(kind, replica, job)


def owner_of(replica: Replica, job: JobId) -> str:
    """The OnyxJob that declares a job (`onyx_operator.owners`), in words; empty: nothing does."""
    owner = replica.spec(job).owner if job in replica.records else ""
    kind, *parts = owner.split("/")
    return f"{kind} {parts[1]}/{parts[2]}" if len(parts) == 4 else owner


def _idle(kind: str, replica: Replica, job: JobId) -> str:
    """Why an action would change nothing."""
    run = replica.run(job)
    if kind == "suspend" and run.suspended:
        return "the job is suspended already"
    if kind == "resume" and not (run.suspended or run.is_paused):
        return "the job is neither suspended nor paused"
    return "the job drains already" if kind == "drain" and run.draining else ""


def _given(fields: Mapping[str, str]) -> tuple[str, dict[str, int | str]]:
    """The task and the values of a form."""
    given = {key: value_of(fields[key].strip()) for key in KEYS if fields.get(key, "").strip()}
    return fields.get("task", ""), given


def _choice(view: ActionPage, job: Job, fields: Mapping[str, str]) -> ActionPage:
    """The page of `set`: the tasks; the keys of one; or values, which are checked."""
    names = tuple(entry.name for entry in job.catalog)
    task, given = _given(fields)
    if job.engine == "spark":
        why = "Spark runs it: nothing of such a job changes while it runs"
        return msgspec.structs.replace(view, refused=why)
    if task not in names:
        return msgspec.structs.replace(view, tasks=names)
    problems: Sequence[Problem] = ()
    if given:
        try:
            read_options(job, task, given)
        except ManifestError as error:
            problems = error.problems
    options = tuple(_options(job, task, given))
    sent = {"task": task, **{key: str(value) for key, value in given.items()}}
    return msgspec.structs.replace(
        view, task=task, options=options, problems=tuple(problems), fields=sent
    )


def _options(job: Job, task: str, given: Mapping[str, Any]) -> Iterator[ChangeableKey]:
    entries = to_mapping(job)["spec"]["catalog"]
    now = next(each for each in entries if each["name"] == task)
    for key in KEYS:
        yield ChangeableKey(key, str(now.get(key, "default")), str(given.get(key, "")))
