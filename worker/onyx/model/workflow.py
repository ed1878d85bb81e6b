"""The graph of a workflow: pure functions over its edges, all deterministic; and what tasks look up
beside these: tables, and state of other tasks.

A workflow is small (at most 256 tasks), so every function takes the edges and builds what it needs;
there is no graph object to keep in step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from onyx.ids import name_number
from onyx.model.job import CatalogEntry, Job
from onyx.model.plugins import may_be_endless

Edge = tuple[str, str]


def tasks(edges: Iterable[Edge]) -> tuple[str, ...]:
    """All tasks, sorted."""
    return tuple(sorted({task for edge in edges for task in edge}))


def children(edges: Iterable[Edge]) -> dict[str, tuple[str, ...]]:
    """The children of every task, sorted; leaves have none."""
    found: dict[str, set[str]] = {}
    for parent, child in edges:
        found.setdefault(parent, set()).add(child)
        found.setdefault(child, set())
    return {task: tuple(sorted(found[task])) for task in sorted(found)}


def parents(edges: Iterable[Edge]) -> dict[str, tuple[str, ...]]:
    """The parents of every task, sorted; roots have none."""
    return children((child, parent) for parent, child in edges)


def roots(edges: Iterable[Edge]) -> tuple[str, ...]:
    """Tasks without incoming edges, sorted."""
    return tuple(task for task, above in parents(edges).items() if not above)


def leaves(edges: Iterable[Edge]) -> tuple[str, ...]:
    """Tasks without outgoing edges, sorted."""
    return tuple(task for task, below in children(edges).items() if not below)


def ancestors(edges: Sequence[Edge], task: str) -> frozenset[str]:
    """All tasks from which a path leads to this one."""
    above = parents(edges)
    found: set[str] = set()
    waiting = list(above[task])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += above[name]
    return frozenset(found)


def topological_order(edges: Sequence[Edge]) -> tuple[str, ...]:
    """Every task after all its parents; tasks that are ready together in the order of names.

    Raises:
        ValueError: there is a cycle.
    """
    below, above = children(edges), parents(edges)
    waiting = {task: len(above[task]) for task in above}
    ready = deque(task for task in sorted(waiting) if not waiting[task])
    order: list[str] = []
    while ready:
        task = ready.popleft()
        order.append(task)
        for child in below[task]:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    if len(order) < len(waiting):
        raise ValueError(f"cycle: {' -> '.join(find_cycle(edges))}")
    return tuple(order)


def find_cycle(edges: Iterable[Edge]) -> tuple[str, ...]:
    """Some cycle, as `(a, b, c, a)`; empty when there is none. Always the same one."""
    below = children(edges)
    done: set[str] = set()
    for start in below:
        path: list[str] = []
        branches = [iter((start,))]
        while branches:
            task = next(branches[-1], None)
            if task is None:
                branches.pop()
                if path:
                    done.add(path.pop())
            elif task in path:
                return (*path[path.index(task) :], task)
            elif task not in done:
                path.append(task)
                branches.append(iter(below[task]))
    return ()


def depth(edges: Sequence[Edge]) -> int:
    """Edges on the longest path of a workflow without cycles."""
    above = parents(edges)
    longest: dict[str, int] = {}
    for task in topological_order(edges):
        longest[task] = max((longest[parent] + 1 for parent in above[task]), default=0)
    return max(longest.values(), default=0)


def edge_number(job: Job, parent: str, child: str) -> int:
    """Number of an edge, of 64 bits.

    Lineage ids are mixed from it, so it depends on nothing but the names of the two tasks: another
    edge beside it, in a later version of the job, does not change what it is.

    Raises:
        ValueError: the job has no such edge.
    """
    if (parent, child) not in job.workflow and back_from(job, parent) != child:
        raise ValueError(f"{parent} -> {child} is not in the workflow")
    return name_number(parent, child)


def back_from(job: Job, task: str) -> str | None:
    """The task that a task loops to."""
    return next((entry.loop_to for entry in job.catalog if entry.name == task), None)


def receivers(job: Job, task: str) -> tuple[str, ...]:
    """Whom a task may send to: its children in the order of their names, and the task that it loops
    to."""
    back = back_from(job, task)
    return (*children(job.workflow).get(task, ()), *(() if back is None else (back,)))


def loop_of(job: Job, task: str) -> frozenset[str]:
    """The tasks of the loop that a task is in, or none."""
    for entry in job.catalog:
        if entry.loop_to is not None:
            loop = between(job.workflow, entry.loop_to, entry.name)
            if task in loop:
                return loop
    return frozenset()


def laps_to(job: Job, task: str, child: str) -> int | None:
    """What going to a child adds to the laps of a segment: 0 inside a loop, 1 back to where it
    begins; None: there are no laps."""
    if job.entry(task).loop_to == child:
        return 1
    return 0 if {task, child} <= loop_of(job, task) else None


def between(edges: Sequence[Edge], first: str, last: str) -> frozenset[str]:
    """Both tasks, and all on the paths from the first to the last."""
    backwards = [(child, parent) for parent, child in edges]
    return (ancestors(backwards, first) & ancestors(edges, last)) | {first, last}


def begins_trees(job: Job, task: str) -> bool:
    """Whether what the task gives begins new trees: it reads, has state or a Spark
    stage."""
    entry = job.entry(task)
    reads = entry.type == "input" or entry.stage is not None
    return reads or task in stateful_tasks(job)


def stateful_tasks(job: Job) -> frozenset[str]:
    """Tasks that have a state log: with windows, with state by key or a processor, or joins."""
    of_themselves = {entry.name for entry in job.catalog if entry.is_stateful}
    return frozenset(of_themselves | {window.task for window in job.windows})


def is_unbounded(job: Job) -> bool:
    """Whether an input of the job may have no end."""
    return any(
        entry.type == "input"
        and entry.plugin is not None
        and may_be_endless(entry.plugin, entry.options)
        for entry in job.catalog
    )


def ordered_parents(edges: Iterable[Edge], task: str) -> tuple[str, ...]:
    """The parents of a task in the order in which the workflow has their edges."""
    return tuple(dict.fromkeys(parent for parent, child in edges if child == task))


def sources_above(job: Job, task: str) -> tuple[str, ...]:
    """The tasks upstream of one that begin trees, sorted: when they have ended, nothing comes."""
    return tuple(sorted(each for each in ancestors(job.workflow, task) if begins_trees(job, each)))


def edges_of(targets: Mapping[str, Iterable[str]]) -> tuple[Edge, ...]:
    """The edges of a workflow that is given as `{task: children}`, sorted."""
    return tuple(sorted((task, child) for task in targets for child in targets[task]))


def looked_up(entry: CatalogEntry) -> tuple[str, ...]:
    """The tables that a task names, each once."""
    joined = () if entry.join is None or entry.join.table is None else (entry.join.table,)
    return tuple(dict.fromkeys((*joined, *entry.tables)))


class Read(NamedTuple):
    """What a task looks up of another one."""

    state: str
    """Name of a window, or `task.state`."""
    task: CatalogEntry
    """Task that keeps it."""


def read_of(job: Job, entry: CatalogEntry) -> Read | None:
    """What a task looks up of another one; None: nothing."""
    state = None if entry.join is None else entry.join.state
    if state is None:
        return None
    windows = {window.id: window.task for window in job.windows}
    return Read(state, job.entry(windows.get(state) or state.rpartition(".")[0]))
