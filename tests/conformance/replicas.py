"""Replicas, entries and reactions of the case files in our shape, and back. Translation only.

* Keys become field names; what we do not have (`messaging`, `task-metadata`, ledgers) is left out.
* A scheduler loses its namespace; null is the same as nothing; a set is a sorted list.
* The original's sites hold the `port` of its messenger besides, which we do not have.
* Reactions of a virtual peer are written by its group here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from tests.support.log.raw_entries import raw_command
from tests.support.log.submissions import job_spec, submit_job

from onyx.base.structs import fields
from onyx.ids import GroupId, JobId, Position
from onyx.replica import canonical, jobs, machine
from onyx.replica.command import Command, Entry
from onyx.replica.commands import SignalReady, SubmitJob
from onyx.replica.commands.signal_ready import signal
from onyx.replica.effects import StartTask
from onyx.replica.spec import JobSpec
from onyx.replica.state import Replica

INFINITY = "Infinity"
_SCHEDULERS = {"job_scheduler", "task_schedulers"}
_ORDERLESS = {"groups_index", "aborted", "left"}
_POSITIONED = {"left"}
_SITE_KEYS = {"aeron/external-addr": "address"}

_FIELDS = {field.name for field in fields(Replica)}


def replica(case: Mapping[str, Any]) -> Replica:
    """A replica as a case gives it."""
    plain = normal(case)
    for key in _POSITIONED & set(plain):
        plain[key] = dict.fromkeys(plain[key], 0)
    of_jobs = {key: plain.pop(key) for key in {*_OF_SPEC, *_OF_RUN} if key in plain}
    for key in _OF_TASKS & set(of_jobs):
        of_jobs[key] = {job: text(each) for job, each in of_jobs[key].items()}
    jobs = {job for values in of_jobs.values() for job in values}
    plain["records"] = {
        job: _record({key: of_jobs[key][job] for key in of_jobs if job in of_jobs[key]})
        for job in sorted({*jobs, *plain.get("jobs", ())})
    }
    return canonical.from_plain(plain)


def _record(given: Mapping[str, Any]) -> dict[str, Any]:
    """The plain data of one job's record. In a case any job may have what only a running one has
    here."""
    run = {_OF_RUN[key]: given[key] for key in _OF_RUN if key in given}
    for key in _SETS & set(run):
        run[key] = sorted(run[key])
    spec = _spec({key: given[key] for key in _OF_SPEC if key in given})
    return {"spec": msgspec.to_builtins(spec), "run": run}


def _spec(given: Mapping[str, Any]) -> JobSpec:
    named = {_OF_SPEC[key]: value for key, value in given.items() if value is not None}
    named.setdefault("tasks", ("t",))
    return job_spec(**named)


_OF_SPEC = {
    "tasks": "tasks",
    "input_tasks": "inputs",
    "output_tasks": "outputs",
    "exempt_tasks": "exempt_tasks",
    "acker_percentage": "acker_percentage",
    "acker_exclude_inputs": "acker_exclude_inputs",
    "acker_exclude_outputs": "acker_exclude_outputs",
    "task_schedulers": "task_scheduler",
    "percentages": "percentage",
    "task_percentages": "task_percentages",
    "saturation": "saturation",
    "task_saturation": "task_saturation",
    "min_required_peers": "min_required_peers",
    "flux_policies": "flux_policies",
    "required_tags": "required_tags",
}
"""Keys of the original by job, and our argument of `job_spec`."""
_OF_RUN = {
    "allocations": "allocation",
    "task_slot_ids": "slots",
    "ackers": "ackers",
    "exhausted_inputs": "exhausted_inputs",
    "sealed_outputs": "sealed_outputs",
}
"""Keys of the original by job, and our field of `JobRun`."""
_SETS = {"exhausted_inputs", "sealed_outputs"}
_OF_TASKS = {"task_percentages", "task_saturation", "min_required_peers", "flux_policies"}


def _told_records(ours: Replica) -> dict[str, Any]:
    """The keys of the original that our records hold."""
    found: dict[str, dict[str, Any]] = {key: {} for key in (*_OF_SPEC, *_OF_RUN)}
    for job, record in canonical.to_plain(ours)["records"].items():
        for key, name in _OF_RUN.items():
            found[key][job] = record.get("run", {}).get(name)
    for job, record in ours.records.items():
        spec, tasks = record.spec, record.spec.by_name
        for key, value in (
            ("tasks", list(tasks)),
            ("input_tasks", list(spec.inputs)),
            ("output_tasks", list(spec.outputs)),
            ("exempt_tasks", [name for name in tasks if tasks[name].acker_exempt]),
            ("acker_percentage", spec.acker_percentage),
            ("acker_exclude_inputs", spec.acker_exclude_inputs),
            ("acker_exclude_outputs", spec.acker_exclude_outputs),
            ("task_schedulers", spec.task_scheduler),
            ("percentages", spec.percentage),
            ("task_percentages", {n: t.percentage for n, t in tasks.items()}),
            ("saturation", _limit(spec.max_peers)),
            ("task_saturation", {n: _limit(t.max_peers) for n, t in tasks.items()}),
            ("min_required_peers", {n: t.min_peers for n, t in tasks.items()}),
            ("flux_policies", {n: t.flux_policy for n, t in tasks.items()}),
            ("required_tags", {n: list(t.required_tags) for n, t in tasks.items()}),
        ):
            found[key][job] = value
    return found


def _limit(peers: int | None) -> int | str:
    return INFINITY if peers is None else peers


def normal(case: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a replica that a case speaks of and that hold something."""
    found = {}
    for key, value in case.items():
        name = key.replace("-", "_")
        plain = _plain(name, value)
        if (name in _FIELDS or name in _OF_SPEC or name in _OF_RUN) and not _is_empty(plain):
            found[name] = plain
    return found


def reported(ours: Replica) -> dict[str, Any]:
    """Our replica in the same normal form."""
    plain = {**canonical.to_plain(ours), **_told_records(ours)}
    del plain["records"], plain["completed_before"], plain["killed_before"]
    plain = {name: _plain(name, value) for name, value in plain.items()}
    return {name: value for name, value in plain.items() if not _is_empty(value)}


def entry(case: Mapping[str, Any], replica: Replica, position: int | None = None) -> Entry:
    """An entry as a client would have written it: no writer, so every repeat counts.

    `replica` is the one that it is applied to.
    """
    at = case.get("message-id", 0) if position is None else position
    return Entry(Position(at), command(case, replica))


def command(case: Mapping[str, Any], replica: Replica) -> Command:
    """A command as a reader of the log gets it. The original's signal names a peer alone and
    speaks of the present allocation, ours also the job and the version."""
    args = {
        key: _scheduler(key, text(value))
        for key, value in case["args"].items()
        if value is not None
    }
    if case["fn"] == SignalReady.NAME:
        place = jobs.assignment(replica, args["id"])
        job = JobId("none") if place is None else place[0]
        version = replica.run(job).allocation_version
        return signal(job, version, args["id"])
    if case["fn"] != SubmitJob.NAME:
        return raw_command(case["fn"], args)
    return submit_job(**{key.replace("-", "_"): value for key, value in args.items()})


Written = dict[str, list[Command]]


def reactions(of: Entry, old: Replica, new: Replica, groups: Iterable[str]) -> Written:
    """What each group writes in return, without those who write nothing."""
    return _by_group({group: machine.reactions(of, old, new, GroupId(group)) for group in groups})


def reactions_and_signals(of: Entry, old: Replica, new: Replica, groups: Iterable[str]) -> Written:
    """The same in a log where every peer that is given a task says at once that it is ready."""
    return _by_group(
        {
            group: machine.reactions(of, old, new, GroupId(group))
            + tuple(
                signal(effect.job, effect.version, effect.peer)
                for effect in machine.effects(of, old, new, GroupId(group))
                if isinstance(effect, StartTask)
            )
            for group in groups
        }
    )


def expected_reactions(
    listed: Iterable[tuple[str, Iterable[Mapping[str, Any]] | None]], old: Replica, new: Replica
) -> Written:
    """The same from pairs of an actor, group or virtual peer, and its entries."""
    found: dict[str, list[Command]] = {}
    for actor, entries in listed:
        group = old.groups_reverse_index.get(actor) or new.groups_reverse_index.get(actor) or actor
        found.setdefault(group, []).extend(command(each, new) for each in entries or ())
    return _by_group(found)


def counts(ours: Replica) -> dict[str, Any]:
    """Peers of each task; jobs and tasks without any are left out."""
    return counts_of(
        {
            job: {task: len(peers) for task, peers in ours.run(job).allocation.items()}
            for job in ours.records
        }
    )


def counts_of(numbers: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Counts without jobs and tasks that have no peers."""
    found = {
        job: {task: n for task, n in sorted(tasks.items()) if n}
        for job, tasks in sorted(numbers.items())
    }
    return {job: tasks for job, tasks in found.items() if tasks}


def short(name: str) -> str:
    """A scheduler without its namespace."""
    return name.rpartition("/")[2]


def _plain(name: str, value: Any) -> Any:
    value = text(value)
    if name in _SCHEDULERS:
        return _scheduler(name, value)
    if name == "peer_sites":
        value = {
            peer: {_SITE_KEYS.get(k, k): v for k, v in site.items() if k != "port"}
            for peer, site in value.items()
        }
    if name in _ORDERLESS and isinstance(value, dict):
        if name in _POSITIONED:
            return sorted(value)
        return {key: sorted(each) for key, each in value.items() if each}
    return _without_nothing(_without_default(name, value))


_DEFAULTS: Mapping[str, Any] = {
    "acker_exclude_inputs": False,
    "acker_exclude_outputs": False,
    "min_required_peers": 1,
    "task_saturation": INFINITY,
}


def _without_default(name: str, value: Any) -> Any:
    """Without what we do not write because it is what is meant anyway."""
    if name not in _DEFAULTS:
        return value
    if isinstance(value, dict):
        return {key: _without_default(name, each) for key, each in value.items()}
    return None if value == _DEFAULTS[name] else value


def _scheduler(key: str, value: Any) -> Any:
    if "scheduler" not in key:
        return value
    if isinstance(value, dict):
        return {job: short(each) for job, each in value.items()}
    return short(value)


def text(value: Any) -> Any:
    """Tagged values as plain ones."""
    if isinstance(value, list):
        return [text(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "$set" in value:
        return sorted(text(each) for each in value["$set"])
    if "$num" in value:
        return INFINITY if value["$num"] == INFINITY else float(value["$num"])
    return {key: text(each) for key, each in value.items()}


def _without_nothing(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = {key: _without_nothing(each) for key, each in value.items()}
    return {key: each for key, each in found.items() if not _is_empty(each)}


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, dict | list | tuple) and not value)


def _by_group(written: Mapping[str, Iterable[Command]]) -> Written:
    found = {group: sorted(commands, key=repr) for group, commands in sorted(written.items())}
    return {group: commands for group, commands in found.items() if commands}
