"""What workers measure, as the pages show it: by job, and each figure as text; pure.

A figure that is not known is left out, and never shown as 0: of a worker that does not answer, of a
source that does not say how much it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from onyx.console.words import age, count, instant, rate, size, some, took
from onyx.reports.measures import (
    Durations,
    EdgeMeasures,
    InputMeasures,
    JobMeasures,
    Measures,
    PeerMeasures,
    RequestMeasures,
    StateMeasures,
    TaskMeasures,
    WorkerMeasures,
    of_jobs,
)

SHARE_HIGH = 0.8
"""From this share of its time on a peer is called busy."""
LATENCY_PART = 0.99
Strain = Literal["", "busy", "full"]


class Measured(msgspec.Struct, frozen=True):
    """What all workers measure, joined once for all pages."""

    workers: Mapping[str, WorkerMeasures] = msgspec.field(default_factory=dict)
    silent: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Workers that did not answer, and why."""
    jobs: Mapping[str, JobMeasures] = msgspec.field(default_factory=dict)
    tasks: Mapping[tuple[str, str], TaskMeasures] = msgspec.field(default_factory=dict)
    edges: Mapping[tuple[str, str, str], EdgeMeasures] = msgspec.field(default_factory=dict)
    peers: Mapping[str, PeerMeasures] = msgspec.field(default_factory=dict)


class JobFigures(msgspec.Struct, frozen=True):
    """A job in a line."""

    rate: str = ""
    behind: str = ""
    latency: str = ""
    retried: str = ""


class TaskFigures(msgspec.Struct, frozen=True):
    """A task in a line of the table, and in its box."""

    taken: str = ""
    given: str = ""
    busy: str = ""
    queue: str = ""
    behind: str = ""
    latency: str = ""
    state: str = ""
    strain: Strain = ""
    why: str = ""
    """What holds it up, or makes it the one that others wait for, in words."""


def measured_of(found: Measures) -> Measured:
    """The answers of workers, by what they are about."""
    tasks = {(each.job, each.task): each for each in found.tasks}
    edges = {(each.job, each.source, each.target): each for each in found.edges}
    jobs = of_jobs(tasks.values(), edges.values())
    workers = {each.group: each for each in found.workers}
    peers = {each.peer: each for each in found.peers}
    return Measured(workers, found.silent, jobs, tasks, edges, peers)


def job_figures(measured: Measured, job: str) -> JobFigures:
    """How fast a job is, and how far behind."""
    its = measured.jobs.get(job)
    if its is None:
        return JobFigures()
    behind = _behind(its.segments_behind, its.bytes_behind, its.seconds_behind)
    reads = "" if its.per_s is None else rate(its.per_s)
    latency = took(its.complete.quantile_s(LATENCY_PART))
    return JobFigures(reads, behind, latency, count(its.retried))


def task_figures(measured: Measured, job: str, task: str) -> TaskFigures:
    """How a task gets on."""
    its = measured.tasks.get((job, task))
    if its is None:
        return TaskFigures()
    taken = its.input
    strain, why = _strain(measured, its)
    return TaskFigures(
        taken=rate(its.in_per_s) if its.counted else "",
        given=rate(its.out_per_s) if its.counted else "",
        busy=_share(its.busy, its.peers),
        queue=count(its.queue_segments) if its.queue_max else "",
        behind="" if taken is None else input_behind(taken),
        latency="" if taken is None else took(taken.complete.quantile_s(LATENCY_PART)),
        state="" if its.state is None else state_text(its.state),
        strain=strain,
        why=why,
    )


Facts = tuple[tuple[str, str], ...]
"""What is known of something: each with its name."""


def task_facts(its: TaskMeasures) -> Facts:
    """All that is measured of a task, or of the part of it in one worker."""
    state, taken = its.state, its.input
    found = [
        ("Takes", rate(its.in_per_s) if its.counted else ""),
        ("Gives", rate(its.out_per_s) if its.counted else ""),
        ("Busy", _share(its.busy, its.peers)),
        ("Busiest peer", f"{its.busiest:.0%}" if its.peers > 1 else ""),
        ("Waits for room", _share(its.backpressured, its.peers)),
        ("In its inbox", f"{its.queue_segments:,} of {its.queue_max:,}" if its.queue_max else ""),
        ("Phases of peers", _phases(its.phase)),
        *((f"A batch: {stage}", durations_text(each)) for stage, each in its.stages.items()),
        ("Watermark", "" if its.watermark_ms is None else instant(its.watermark_ms)),
        *(() if taken is None else _input_facts(taken)),
        *(() if state is None else _state_facts(state)),
        *(() if its.requests is None else _request_facts(its.requests)),
    ]
    return tuple((name, text) for name, text in found if text)


def durations_text(its: Durations) -> str:
    """How long something took of late."""
    if not its.count:
        return ""
    half, most = took(its.quantile_s(0.5)), took(its.quantile_s(LATENCY_PART))
    return f"half within {half}, 99 % within {most}"


def _share(peers: float, of: int) -> str:
    return f"{peers / of:.0%}" if of else ""


def _phases(phases: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {many:,}" for name, many in sorted(phases.items()))


def _input_facts(its: InputMeasures) -> Facts:
    return (
        ("Partitions open", count(its.partitions)),
        ("Behind", input_behind(its)),
        ("Arriving", "" if its.arriving_per_s is None else rate(its.arriving_per_s)),
        ("Waiting to be read", "" if its.waiting is None else count(its.waiting)),
        ("In flight", count(its.in_flight)),
        ("Complete", rate(its.completed_per_s)),
        ("From reading to complete", durations_text(its.complete)),
        ("Oldest in flight for", took(its.oldest_open_s)),
        ("Read again in a minute", count(its.retried)),
    )


def _state_facts(its: StateMeasures) -> Facts:
    return (
        ("State", size(its.bytes)),
        ("Groups", "" if its.groups is None else count(its.groups)),
        ("Timers", "" if its.timers is None else count(its.timers)),
        ("Next timer", "" if its.next_timer_ms is None else instant(its.next_timer_ms)),
        *((f"Rows of {side}", count(rows)) for side, rows in its.sides.items()),
    )


def _request_facts(its: RequestMeasures) -> Facts:
    return (
        ("Requests of a minute", _phases(its.answers)),
        ("Taken", durations_text(its.seconds)),
    )


def edge_text(measured: Measured, job: str, source: str, target: str) -> tuple[str, str]:
    """What passes along an edge: shortly, and in words."""
    its = measured.edges.get((job, source, target))
    if its is None:
        return "", ""
    found = [f"{rate(its.per_s)}"]
    if its.queue_segments:
        found.append(f"{some(its.queue_segments, 'segment')} wait for {target}")
    if its.held > 0.01:
        found.append(f"{its.held:.1f} of the peers of {source} wait for room, as a mean")
    return rate(its.per_s), ", ".join(found)


def input_behind(its: InputMeasures) -> str:
    """How far an input is behind; why that is not known, if so."""
    found = _behind(its.segments_behind, its.bytes_behind, its.seconds_behind)
    return found or its.unknown


def state_text(its: StateMeasures) -> str:
    """What a task keeps."""
    found = [size(its.bytes)]
    if its.groups is not None:
        found.append(some(its.groups, "group"))
    if its.timers:
        found.append(some(its.timers, "timer"))
    found += [f"{side} {rows:,}" for side, rows in its.sides.items()]
    return ", ".join(found)


def _behind(segments: int | None, bytes_: int | None, seconds: float | None) -> str:
    if segments == 0 or (segments is None and bytes_ == 0):
        return "none"
    found = []
    if segments is not None:
        found.append(count(segments))
    elif bytes_ is not None:
        found.append(size(bytes_))
    if seconds:
        found.append(age(seconds * 1000))
    return ", ".join(found)


def _strain(measured: Measured, its: TaskMeasures) -> tuple[Strain, str]:
    """Whether others wait for a task, or it is about to be so."""
    into = [
        each
        for each in measured.edges.values()
        if (each.job, each.target) == (its.job, its.task) and each.held > 0.01
    ]
    if into:
        who = ", ".join(sorted(each.source for each in into))
        return (
            "full",
            f"{who} waits for room here; its busiest peer works {its.busiest:.0%} of its time",
        )
    if its.busiest >= SHARE_HIGH:
        return "busy", f"its busiest peer works {its.busiest:.0%} of its time"
    return "", ""
