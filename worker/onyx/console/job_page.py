"""The page of one job: its graph, what holds it up, what failed, who works on it, what it was made
of; pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml
from msgspec.structs import asdict

from onyx.base.structs import stored
from onyx.client import failure_text
from onyx.client.statuses import JobStatus, besides, why
from onyx.console.board import Beginning, Board
from onyx.console.graph import Drawing, DrawnEdge, Mark, Node, drawn
from onyx.console.jobs_page import Tone, word_of
from onyx.console.measured import (
    JobFigures,
    Measured,
    TaskFigures,
    edge_text,
    job_figures,
    task_figures,
)
from onyx.console.words import age, count, instant, listed, short, size, some
from onyx.ids import JobId, TaskName
from onyx.model.job import CatalogEntry, FlowCondition, Job
from onyx.replica.job_events import JobEvent
from onyx.replica.state import Replica
from onyx.reports.measures import StateMeasures
from onyx.reports.stalls import StackFrame, Stall, seconds

HELD_MIN = 0.01
"""Peers that wait for room, as a mean: below this it is noise."""
DIFFERENCE_LINES_MAX = 2_000
COMPARED_MAX = 1_000_000
"""Lines of one manifest by those of the other. Authors could choose them so that `difflib` takes
minutes for some thousand."""
MANIFEST_CHARACTERS_MAX = 400_000


class HeldTask(msgspec.Struct, frozen=True):
    """A task on a peer that does not advance."""

    task: str
    peer: str
    since: str
    why: str
    stack: tuple[str, ...]
    is_cause: bool


class TaskRow(msgspec.Struct, frozen=True):
    """A task in the table."""

    name: str
    kind: str
    does: str
    mark: Mark
    state: str
    peers: int
    where: str
    """The workers whose peers work on it."""
    partitions: int | None
    completed: int | None
    """Positions of its input that are complete."""
    figures: TaskFigures


class KeptRow(msgspec.Struct, frozen=True):
    """What a task keeps, and how far it is in event time."""

    task: str
    bytes: str
    groups: str
    sides: str
    timers: str
    next_timer: str
    watermark: str


class DifferenceLine(msgspec.Struct, frozen=True):
    """A line of a manifest compared with the version before."""

    kind: str
    """`same`, `more`, `less` or `where`."""
    text: str


class JobPage(msgspec.Struct, frozen=True):
    """All that the page shows."""

    id: str
    name: str
    word: str
    tone: Tone
    why: str
    remarks: tuple[str, ...]
    engine: str
    guarantee: str
    peers: int
    begun: Beginning | None
    age_ms: int | None
    upgrades: str
    """The job in whose place it came."""
    drawing: Drawing | None
    tasks: tuple[TaskRow, ...]
    held: tuple[HeldTask, ...]
    failure: tuple[str, ...]
    """Where the error was raised that killed it, and for which segment."""
    history: tuple[JobEvent, ...]
    """The newest first."""
    figures: JobFigures
    kept: tuple[KeptRow, ...]
    """The tasks that keep state, or follow event time."""
    silent: tuple[str, ...]
    """Workers that work on it and did not say what they measure."""
    unreadable: str = ""


def job_page(
    board: Board,
    status: JobStatus,
    manifest: Job | None,
    history: Sequence[JobEvent] = (),
    completed: Mapping[str, int] | None = None,
) -> JobPage:
    """The page of a job.

    Args:
        manifest: None if it cannot be read.
        completed: how many positions each input has completed.
    """
    replica, job = board.replica, status.id
    word, tone = word_of(status)
    begun = board.beginnings.get(job)
    marks = _marks(status, replica, manifest)
    record = replica.records.get(job)
    return JobPage(
        id=job,
        name=status.name,
        word=word,
        tone=tone,
        why=why(status),
        remarks=tuple(each for each in besides(status) if each),
        engine=status.engine,
        guarantee="" if manifest is None else manifest.guarantee,
        peers=status.peers,
        begun=begun,
        age_ms=board.now_ms - begun.at_ms if begun is not None and begun.at_ms else None,
        upgrades="" if record is None or record.spec.upgrades is None else record.spec.upgrades,
        drawing=None
        if manifest is None
        else graph_of(replica, job, manifest, marks, board.measured),
        tasks=()
        if manifest is None
        else tuple(_rows(board, job, manifest, marks, completed or {})),
        held=tuple(_held(status, board.now_ms)),
        failure=tuple(failure_text.details(status.exception or {})),
        history=tuple(history),
        figures=job_figures(board.measured, job),
        kept=() if manifest is None else tuple(_kept(board, job, manifest)),
        silent=tuple(_silent(board, job)),
    )


def _silent(board: Board, job: JobId) -> Iterator[str]:
    replica, silent = board.replica, board.measured.silent
    peers = [peer for its in replica.run(job).allocation.values() for peer in its]
    for group in dict.fromkeys(replica.groups_reverse_index[peer] for peer in peers):
        if group in silent:
            yield f"{short(group)}: {silent[group]}"


def graph_of(
    replica: Replica,
    job: JobId,
    manifest: Job,
    marks: Mapping[str, tuple[Mark, str]],
    measured: Measured,
) -> Drawing:
    """The drawing of the graph of a job."""
    run = replica.run(job)
    nodes = [
        Node(
            entry.name,
            kind_of(entry),
            _peers(run.allocation.get(TaskName(entry.name), ())),
            task_figures(measured, job, entry.name).busy,
            *_strained(marks[entry.name], task_figures(measured, job, entry.name)),
        )
        for entry in _in_order(manifest)
    ]
    edges = [_edge(manifest, source, target, measured, job) for source, target in manifest.workflow]
    edges += [
        DrawnEdge(
            entry.name,
            entry.loop_to,
            "again",
            why=f"{entry.name} sends back to {entry.loop_to}",
            kind="back",
        )
        for entry in manifest.catalog
        if entry.loop_to is not None
    ]
    return drawn(nodes, edges)


def kind_of(entry: CatalogEntry) -> str:
    """What a task is: `input kafka`, `function`."""
    return f"{entry.type} {entry.plugin}" if entry.plugin else entry.type


def does(entry: CatalogEntry) -> str:
    """What a task does, by the names in its manifest."""
    if entry.stage is not None:
        return f"Spark stage {entry.stage}"
    return entry.maker or ""


def _peers(peers: Sequence[str]) -> str:
    return some(len(peers), "peer") if peers else ""


def _strained(marked: tuple[Mark, str], its: TaskFigures) -> tuple[Mark, str]:
    """The mark of a task that runs, with what workers measure of it."""
    mark, why = marked
    if mark != "runs" or not its.strain:
        return marked
    return "waits" if its.strain == "busy" else "slow", its.why or why


def _in_order(manifest: Job) -> Iterator[CatalogEntry]:
    """The tasks as the workflow names them first."""
    names = dict.fromkeys(task for edge in manifest.workflow for task in edge)
    yield from (manifest.entry(name) for name in names)


def _edge(manifest: Job, source: str, target: str, measured: Measured, job: JobId) -> DrawnEdge:
    """An edge, with the conditions that lead along it and how its segments are dealt."""
    conditions = [each for each in manifest.flow_conditions if _leads(each, source, target)]
    entry = manifest.entry(target)
    key = entry.group_by_key
    by = listed(key, 3) if isinstance(key, tuple) else key or entry.group_by_fn
    names = [predicate_text(each.predicate) for each in conditions]
    sentences = [f"if {name}" for name in names]
    if by:
        sentences.append(f"grouped by {by}")
    dead = manifest.entry(source).dead_letter == target
    if dead:
        sentences.append("what fails for good")
    label = "dead letters" if dead else f"by {by}" if by else ""
    if conditions and not dead:
        label = f"if {listed([name.rpartition(':')[2] for name in names], 1)}"
    figure, passes = edge_text(measured, job, source, target)
    its = measured.edges.get((job, source, target))
    return DrawnEdge(
        source,
        target,
        label,
        figure,
        "; ".join(filter(None, (*sentences, passes))),
        its is not None and its.held > HELD_MIN,
        "condition" if conditions or dead else "flow",
    )


def predicate_text(predicate: str | tuple[Any, ...]) -> str:
    """The predicate of a flow condition, in words: `[">", "km", 50]` is `km > 50`."""
    if isinstance(predicate, str):
        return predicate
    head, *rest = predicate
    if head in _COMPARISONS and len(rest) == 2 and isinstance(rest[0], str):
        return f"{rest[0]} {head} {rest[1]}"
    if head == "sql" and len(rest) == 1:
        return str(rest[0])
    parts = [predicate_text(each) if isinstance(each, tuple) else str(each) for each in rest]
    if head in ("and", "or") and parts:
        return f" {head} ".join(parts)
    return f"{head} {' '.join(parts)}"


_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "in")


def _leads(condition: FlowCondition, source: str, target: str) -> bool:
    """Whether a condition may send what a task makes to a child. `to: none` leads nowhere."""
    leads = condition.from_task == "all" or source in _names(condition.from_task)
    return leads and (condition.to == "all" or target in _names(condition.to))


def _names(targets: str | tuple[str, ...]) -> tuple[str, ...]:
    return (targets,) if isinstance(targets, str) else targets


def _marks(
    status: JobStatus, replica: Replica, manifest: Job | None
) -> dict[str, tuple[Mark, str]]:
    """How each task is: what is worst of it."""
    if manifest is None:
        return {}
    run = replica.run(status.id)
    failed = str((status.exception or {}).get("task", ""))
    slow = {each.task: each for each in status.stalls if not each.in_time}
    found: dict[str, tuple[Mark, str]] = {}
    for entry in manifest.catalog:
        task = TaskName(entry.name)
        if entry.name == failed:
            found[task] = ("failed", "it killed the job")
        elif task in slow:
            found[task] = ("slow", slow[task].why)
        elif status.state == "completed" or task in run.exhausted_inputs:
            found[task] = ("ended", "has read and completed all")
        elif task in run.sealed_outputs:
            found[task] = ("ended", "sealed")
        elif status.engine == "spark" and status.state == "running":
            found[task] = ("runs", "Spark runs it")
        elif run.allocation.get(task):
            found[task] = ("runs", "") if run.is_ready else ("waits", "its peers are not all ready")
        elif status.state in ("waiting", "running"):
            found[task] = ("waits", "has no peers")
        else:
            found[task] = ("", status.state)
    return found


def _rows(
    board: Board,
    job: JobId,
    manifest: Job,
    marks: Mapping[str, tuple[Mark, str]],
    completed: Mapping[str, int],
) -> Iterator[TaskRow]:
    replica = board.replica
    run, partitions = replica.run(job), replica.partitions(job)
    for entry in _in_order(manifest):
        task = TaskName(entry.name)
        peers = run.allocation.get(task, ())
        groups = dict.fromkeys(replica.groups_reverse_index[p] for p in peers)
        figures = task_figures(board.measured, job, entry.name)
        mark, state = _strained(marks[entry.name], figures)
        yield TaskRow(
            entry.name,
            kind_of(entry),
            does(entry),
            mark,
            state,
            len(peers),
            listed([short(each) for each in groups], 4),
            partitions[task].count if task in partitions else None,
            completed.get(entry.name),
            figures,
        )


def _kept(board: Board, job: JobId, manifest: Job) -> Iterator[KeptRow]:
    for entry in _in_order(manifest):
        its = board.measured.tasks.get((job, entry.name))
        if its is None:
            continue
        state, read = its.state or StateMeasures(), its.input
        newest = its.watermark_ms if read is None else read.event_time_ms
        if its.state is None and newest is None:
            continue
        yield KeptRow(
            entry.name,
            size(state.bytes) if its.state else "",
            "" if state.groups is None else count(state.groups),
            ", ".join(f"{side} {rows:,}" for side, rows in state.sides.items()),
            "" if state.timers is None else count(state.timers),
            _due(state.next_timer_ms, board.now_ms),
            "" if newest is None else f"{instant(newest)}, {_ago(newest, board.now_ms)}",
        )


def _due(due_ms: int | None, now_ms: int) -> str:
    """When the next timer is due, which may be in event time."""
    if due_ms is None:
        return ""
    return f"{instant(due_ms)}, " + (f"in {age(due_ms - now_ms)}" if due_ms > now_ms else "past")


def _ago(then_ms: int, now_ms: int) -> str:
    behind_ms = now_ms - then_ms
    return f"{age(behind_ms)} ago" if behind_ms >= 0 else f"{age(-behind_ms)} ahead"


def _held(status: JobStatus, now_ms: int) -> Iterator[HeldTask]:
    """What does not advance, the cause first."""
    ordered: list[Stall] = sorted(status.stalls, key=lambda each: each.since_ms)
    for each in sorted(ordered, key=lambda its: its.why not in status.stalled):
        yield HeldTask(
            each.task,
            each.peer,
            seconds(each.since_ms, now_ms),
            each.why,
            stack_lines(each.stack),
            bool(status.stalled) and each.why in status.stalled,
        )


def stack_lines(frames: Sequence[StackFrame]) -> tuple[str, ...]:
    """Where the user's code is, a line for each frame, innermost last."""
    lines = (failure_text.frame_lines(asdict(each)) for each in frames)
    return tuple(line.strip() for each in lines for line in each)


def manifest_text(data: bytes, job: str) -> str:
    """A manifest as it was stored, as YAML.

    Raises:
        StateError: the bytes are none.
    """
    mapping = stored(data, dict[str, Any], f"the manifest of job {job}", "submit the job again")
    text = yaml_of(mapping)
    if len(text) > MANIFEST_CHARACTERS_MAX:
        text = f"{text[:MANIFEST_CHARACTERS_MAX]}\n... (it is longer: see `onyx log`)"
    return text


def yaml_of(mapping: Mapping[str, Any]) -> str:
    """A manifest as YAML."""
    return yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True, width=100)


def difference(before: str, now: str) -> tuple[DifferenceLine, ...]:
    """What is otherwise in a manifest than in the one before, with some lines around it; empty if
    nothing is."""
    old, new = before.splitlines(), now.splitlines()
    is_short = len(old) * len(new) <= COMPARED_MAX
    lines = difflib.unified_diff(old, new, n=3, lineterm="") if is_short else _one_hunk(old, new)
    kinds = {"+": "more", "-": "less", "@": "where"}
    found = []
    for number, line in enumerate(lines):
        if number >= 2:  # behind the names of both
            found.append(DifferenceLine(kinds.get(line[:1], "same"), line))
        if number > DIFFERENCE_LINES_MAX:
            found.append(DifferenceLine("where", "... and more"))
            break
    return tuple(found)


def _one_hunk(old: list[str], new: list[str]) -> Iterator[str]:
    """All from the first line that is otherwise to the last one, as `difflib` writes it."""
    if old == new:
        return
    head = _alike(old, new)
    tail = _alike(old[head:][::-1], new[head:][::-1])
    yield from ("---", "+++", f"@@ from line {head + 1} @@")
    yield from (f"-{line}" for line in old[head : len(old) - tail])
    yield from (f"+{line}" for line in new[head : len(new) - tail])


def _alike(old: list[str], new: list[str]) -> int:
    """With how many equal lines two texts begin."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(old), len(new)))


def version_before(replica: Replica, board: Board, status: JobStatus) -> JobId | None:
    """The job before this one whose manifest can be read: the one that it upgrades, or else the
    last one of its name."""
    record = replica.records.get(status.id)
    if record is None:
        return None
    old = record.spec.upgrades
    if old is not None and replica.digest_of(old):
        return old
    same = [each.id for each in _in_time(board) if each.name == status.name and status.name]
    here = same.index(status.id) if status.id in same else 0
    return same[here - 1] if here > 0 else None


def _in_time(board: Board) -> list[JobStatus]:
    begun = board.beginnings
    return sorted(
        (each for each in board.jobs if each.id in begun),
        key=lambda each: begun[each.id].position,
    )
