"""Rules of tasks whose segments get what another task keeps: `join` with `state`.

What is looked up is one value for each group. So a window has to be global, and a state a value or
a list: a map has other keys in each group, which no column holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onyx.model import names
from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, listed, nearest, show
from onyx.model.rules.looking import entries, good, is_grouped
from onyx.model.rules.tables import many_parts
from onyx.model.state_types import parse_state_type

_ONLY_TABLES = ("columns", "at")


class _StateOfTask(NamedTuple):
    """What a task keeps by key."""

    task: Draft | None
    refused: str
    """Why it cannot be looked up; empty if it can."""
    hint: str


def check_lookup(draft: Draft, path: str, report: Report) -> None:
    """A join names a table or a state, with the keys that go with it."""
    join = good(draft, "join")
    if join is None:
        return
    path = at(path, "join")
    table, state = ("table" in join, "state" in join)
    if table == state:
        what = "is given together with table" if state else "is missing, and so is table"
        report.add(at(path, "state"), what, "name a table, or a state of another task")
        return
    if table:
        if good(join, "durable"):
            what = "is given, but a table is not in a state log"
            report.add(at(path, "durable"), what, "remove it")
        return
    for field in _ONLY_TABLES:
        if field in join:
            what = "is given, but a state has one value for each group"
            report.add(at(path, names.yaml_key(field)), what, "remove it")
    if "under" not in join:
        hint = "give the key under which segments get the value"
        report.add(at(path, "as"), "is missing: the value of a state has no name", hint)
    key = good(join, "key")
    if good(join, "under") in (key if isinstance(key, tuple) else (key,)):
        report.add(at(path, "as"), "is a key that the segments have", "give another name")
    for name in good(join, "default") or {}:
        if good(join, "under") not in (None, name):
            hint = f"give default as {{{good(join, 'under')}: ...}}"
            report.add(at(at(path, "default"), name), "is not the key that as names", hint)


def check_reads(spec: Draft, path: str, report: Report) -> None:
    """What is looked up is there, and has one value for each group that the key says."""
    kept = dict(_all_kept(spec, path))
    for draft, where in entries(spec, "catalog", path, "catalog"):
        join = good(draft, "join")
        state = None if join is None else good(join, "state")
        if state is None:
            continue
        where = at(where, "join")
        found = kept.get(state)
        if found is None:
            there = f"the job has {listed(sorted(kept))}" if kept else "no task keeps a state"
            report.add(
                at(where, "state"),
                f"{show(state)} is neither a state of a function nor a window",
                nearest(state, sorted(kept)) or there,
            )
            continue
        if found.refused:
            report.add(at(where, "state"), f"{show(state)} {found.refused}", found.hint)
        elif found.task is not None:
            _check_key(join, found.task, where, report)
        if good(join, "durable") and good(spec, "guarantee") == "at-most-once":
            what = "is given, but a job that is at most once keeps its state in memory"
            report.add(at(where, "durable"), what, "choose another guarantee, or remove it")


def _all_kept(spec: Draft, path: str) -> Iterator[tuple[str, _StateOfTask]]:
    """All that tasks keep, by the names that questions have for it."""
    tasks = {good(draft, "name"): draft for draft, _ in entries(spec, "catalog", path, "catalog")}
    for task, draft in tasks.items():
        for name, text in (good(draft, "state") or {}).items():
            its = parse_state_type(text)
            has_map = its.shape == "map" or its.value.has_map
            refused = f"is a {text}, which no column holds" if has_map else ""
            hint = "keep what is looked up as a value or a list"
            yield f"{task}.{name}", _StateOfTask(draft, refused, hint)
    for window, _ in entries(spec, "windows", path, "windows"):
        name, task = good(window, "id"), tasks.get(good(window, "task"))
        if name is not None:
            yield name, _window(window, task)


def _window(window: Draft, task: Draft | None) -> _StateOfTask:
    if good(window, "type") not in (None, "global"):
        kind = good(window, "type")
        hint = "look up a global window, or keep the value in a function with state"
        return _StateOfTask(
            task, f"is a {kind} window, which has several extents for each group", hint
        )
    if good(window, "engine") == "spark":
        return _StateOfTask(
            task, "is aggregated by Spark, in files", "use engine: peers for the window"
        )
    if task is not None and not is_grouped(task):
        return _StateOfTask(task, "is of a task without groups", "give that task groupByKey")
    return _StateOfTask(task, "", "")


def _check_key(join: Draft, task: Draft, path: str, report: Report) -> None:
    by, key = good(task, "group_by_key"), good(join, "key")
    if key is None or ("group_by_key" in task and by is None):
        return
    # What a function groups by is found by the value of one key.
    given, wanted = many_parts(key), 1 if by is None else many_parts(by)
    if given != wanted:
        what = f"has {given} parts, and the groups of task {good(task, 'name')} have {wanted}"
        report.add(at(path, "key"), what, "give as many, in the same order")
