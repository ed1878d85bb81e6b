"""The pages of a task, of a peer and of a worker: what runs there at this moment, how far inputs
are, what is kept, how much memory there is; pure.

A worker says what its peers do when it is asked, and nobody else knows: what a silent one does not
say is left out, and the page names it. What the log and reports say of its peers stands. What it
has logged is shown of a bundle, which has it; a worker that is asked gives it with all its metrics,
which is too much for each tick of a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from onyx.base.structs import UNREADABLE
from onyx.client.statuses import JobStatus
from onyx.console.board import Board
from onyx.console.entries import called
from onyx.console.job_page import does, kind_of, stack_lines
from onyx.console.measured import Facts, durations_text, task_facts
from onyx.console.words import count, instant, listed, size, took
from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.model.job import Job
from onyx.replica.authors import escaped
from onyx.reports import codes
from onyx.reports.measures import (
    PartitionMeasures,
    PeerMeasures,
    TaskMeasures,
    WorkerDiagnostics,
    WorkerMeasures,
)
from onyx.reports.stalls import StackFrame, Stall, seconds

PEERS_MAX = 200
LINES_MAX, LINE_CHARACTERS_MAX = 400, 4_000
METRICS_CHARACTERS_MAX = 1_000_000
"""A bundle comes from strangers: what workers give at most is all that a page shows."""
IDLE = "has no task"
SILENT = "its worker does not answer"


class PeerRow(msgspec.Struct, frozen=True):
    """A peer, and what it does."""

    id: str
    worker: str
    job: str
    job_name: str
    task: str
    does: str
    """Its phase, or why nobody knows."""
    lasts: str
    """How long it has been in its present step."""
    stall: str
    """Why it does not advance."""
    stalled_for: str
    stack: tuple[str, ...]
    """Where the user's code is."""


class PartRow(msgspec.Struct, frozen=True):
    """A worker's part of a task."""

    worker: str
    peers: int
    facts: Facts


class TaskPage(msgspec.Struct, frozen=True):
    """All that the page shows of a task."""

    job: str
    job_name: str
    name: str
    kind: str
    does: str
    facts: Facts
    partitions: tuple[tuple[str, str, str, str, str], ...]
    """Name, position, in flight, behind, newest event time."""
    more_partitions: int
    parts: tuple[PartRow, ...]
    peers: tuple[PeerRow, ...]
    more_peers: int
    silent: tuple[str, ...]


class WorkerPage(msgspec.Struct, frozen=True):
    """All that the page shows of a worker, or of one of its peers."""

    id: str
    peer: str
    """The peer that is meant; empty: the worker."""
    facts: Facts
    part: PartRow | None
    """What the worker measures of the task of the peer."""
    peers: tuple[PeerRow, ...]
    more_peers: int
    silent: str
    lines: tuple[str, ...] = ()
    """What it has logged last, if that is known."""
    metrics: str = ""


def task_page(board: Board, status: JobStatus, manifest: Job, name: str) -> TaskPage | None:
    """The page of a task; None: the job has none that is called so."""
    entry = next((each for each in manifest.catalog if each.name == name), None)
    if entry is None:
        return None
    replica, measured, job = board.replica, board.measured, status.id
    its = measured.tasks.get((job, name))
    peers = replica.run(job).allocation.get(TaskName(name), ())
    groups = list(dict.fromkeys(replica.groups_reverse_index[peer] for peer in peers))
    taken = None if its is None else its.input
    partitions = () if taken is None else taken.slowest
    return TaskPage(
        job,
        status.name,
        name,
        kind_of(entry),
        does(entry),
        () if its is None else task_facts(its),
        tuple(map(_partition, partitions)),
        0 if taken is None else max(0, taken.partitions - len(partitions)),
        tuple(_parts(board, job, name)),
        tuple(_rows(board, peers[:PEERS_MAX])),
        max(0, len(peers) - PEERS_MAX),
        tuple(f"{each}: {measured.silent[each]}" for each in groups if each in measured.silent),
    )


def peer_page(board: Board, peer: str) -> WorkerPage | None:
    """The page of a peer, with its worker; None: there is no such peer."""
    group = board.replica.groups_reverse_index.get(PeerId(peer))
    return None if group is None else _worker(board, group, PeerId(peer))


def worker_page(
    board: Board, group: str, said: WorkerDiagnostics | None = None
) -> WorkerPage | None:
    """The page of a worker, with what it has said of itself; None: there is no such worker."""
    if group not in board.replica.groups:
        return None
    page, its = _worker(board, GroupId(group)), said or WorkerDiagnostics()
    lines = tuple(map(_logged, its.lines[-LINES_MAX:]))
    return msgspec.structs.replace(page, lines=lines, metrics=its.metrics[:METRICS_CHARACTERS_MAX])


def _logged(text: str) -> str:
    """A log line, which is JSON, in the order in which people read it."""
    try:
        found = _line.decode(text[:LINE_CHARACTERS_MAX])
        words = [str(found.pop(name)) for name in LINE_BEGINS if name in found]
        words += (f"{name}={value}" for name, value in found.items())
    except UNREADABLE:
        words = [text]
    return escaped("  ".join(words), LINE_CHARACTERS_MAX)


_line = msgspec.json.Decoder(dict[str, Any])
LINE_BEGINS = ("time", "level", "logger", "event")


def _worker(board: Board, group: GroupId, peer: PeerId | None = None) -> WorkerPage:
    replica, measured = board.replica, board.measured
    peers = sorted(replica.groups_index.get(group, ()))
    shown = peers if peer is None else [peer]
    its = measured.workers.get(group)
    rows = tuple(_rows(board, shown[:PEERS_MAX]))
    part = None
    if peer is not None and rows and rows[0].task:
        parts = _parts(board, rows[0].job, rows[0].task)
        part = next((each for each in parts if each.worker == group), None)
    return WorkerPage(
        group,
        peer or "",
        (*_announced(board, group, peers), *(() if its is None else _worker_facts(its))),
        part,
        rows,
        max(0, len(shown) - PEERS_MAX),
        measured.silent.get(group, ""),
    )


def _announced(board: Board, group: GroupId, peers: list[PeerId]) -> Iterator[tuple[str, str]]:
    """What the log says of a worker."""
    replica = board.replica
    sites = [replica.peer_sites[each] for each in peers if each in replica.peer_sites]
    tags = sorted({tag for each in peers for tag in replica.peer_tags.get(each, ())})
    code = sorted({codes.shown(each.get(codes.CODE)) for each in sites})
    for name, text in (
        ("Address", listed(sorted({str(each.get("address", "")) for each in sites}), 2)),
        ("Peers", count(len(peers))),
        ("Tags", listed(tags)),
        ("Code", listed([each for each in code if each != codes.NO_CODE], 2)),
        ("Watches", replica.pairs.get(group, "")),
    ):
        if text:
            yield name, text


def _worker_facts(its: WorkerMeasures) -> Iterator[tuple[str, str]]:
    """What a worker says of its process."""
    if its.memory_bytes is not None:
        yield "Memory of the process", size(its.memory_bytes)
    if its.container_bytes is not None:
        most = its.container_bytes_max
        limit = "no limit" if most is None else f"{its.container_bytes / most:.0%} of {size(most)}"
        yield "Memory of its container", f"{size(its.container_bytes)}, {limit}"
    zookeeper = its.zookeeper
    yield "Newest entry applied", count(zookeeper.log_position)
    if zookeeper.requests.count:
        yield "The log answers", durations_text(zookeeper.requests)
        yield "From the log", size(zookeeper.received_bytes)
        yield "Watches in the log", count(zookeeper.watches)


def _parts(board: Board, job: str, task: str) -> Iterator[PartRow]:
    """What each worker measures of a task."""
    for group, worker in board.measured.workers.items():
        for each in worker.tasks:
            if (each.job, each.task) == (job, task):
                yield PartRow(group, each.peers, _brief(each))


def _brief(its: TaskMeasures) -> Facts:
    """The part of a task in one worker, in fewer words than the whole."""
    left_out = ("Busiest peer", "Arriving", "Complete")
    return tuple(each for each in task_facts(its) if each[0] not in left_out)


def _partition(its: PartitionMeasures) -> tuple[str, str, str, str, str]:
    behind = ""
    if its.segments_behind is not None:
        behind = count(its.segments_behind)
    elif its.bytes_behind is not None:
        behind = size(its.bytes_behind)
    newest = "" if its.event_time_ms is None else instant(its.event_time_ms)
    return its.name, count(its.position), count(its.in_flight), behind, newest


def _rows(board: Board, peers: Iterable[PeerId]) -> Iterator[PeerRow]:
    replica, measured = board.replica, board.measured
    works = {
        peer: (job, task)
        for job in replica.jobs
        for task, its in replica.run(job).allocation.items()
        for peer in its
    }
    stalls = {(each.peer, each.task): each for status in board.jobs for each in status.stalls}
    names = {str(each.id): each.name for each in board.jobs}
    for peer in peers:
        job, task = works.get(peer, (JobId(""), TaskName("")))
        group = replica.groups_reverse_index[peer]
        its = measured.peers.get(peer)
        if its is not None and (its.job, its.task) != (job, task):
            its = None  # it has got another task since it was asked
        stall = stalls.get((peer, task))
        yield PeerRow(
            peer,
            group,
            job,
            called(job, names) if job else "",
            task,
            _does(its, task, group in measured.silent),
            "" if its is None else took(its.step_s),
            "" if stall is None else stall.why,
            "" if stall is None else seconds(stall.since_ms, board.now_ms),
            stack_lines(_stack(its, stall)),
        )


def _does(its: PeerMeasures | None, task: str, silent: bool) -> str:
    if not task:
        return IDLE
    if its is None:
        return SILENT if silent else ""
    return its.phase


def _stack(its: PeerMeasures | None, stall: Stall | None) -> tuple[StackFrame, ...]:
    """Where the user's code is: as the peer says, or else as was reported of it."""
    if its is not None:
        return its.stack
    return () if stall is None else stall.stack
