"""Looking at drafts: what is there and right, with its path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onyx.model.keys.section import Draft
from onyx.model.report import INVALID, at


def good(draft: Draft, field: str) -> Any:
    """The value of a field; None when it is absent or wrong."""
    value = draft.get(field)
    return None if value is INVALID else value


def entries(spec: Draft, field: str, path: str, key: str) -> Iterator[tuple[Draft, str]]:
    """The entries of a section that could be read, each with its path."""
    for index, draft in enumerate(good(spec, field) or ()):
        if draft is not None:
            yield draft, at(at(path, key), index)


def task_names(spec: Draft) -> set[str]:
    """Names of the catalog that could be read. Tables are none of them: no segment comes there."""
    names = (
        good(draft, "name")
        for draft in good(spec, "catalog") or ()
        if draft is not None and good(draft, "type") != "table"
    )
    return {name for name in names if name is not None}


def known_tasks(spec: Draft) -> set[str] | None:
    """Names of the catalog; None when some could not be read, so that absence says nothing."""
    names = task_names(spec)
    drafts = good(spec, "catalog")
    if drafts is None or any(draft is None or good(draft, "name") is None for draft in drafts):
        return None
    return names


def whole(spec: Draft, field: str) -> bool:
    """Whether every entry of a section was read, so that absence from it means something."""
    value = good(spec, field)
    return value is not None and None not in value


def is_grouped(draft: Draft) -> bool:
    """Whether one peer gets all segments of a group."""
    by_key = "group_by_key" in draft or "group_by_fn" in draft
    return by_key or good(draft, "type") == "join"


def tasks_with_state(spec: Draft, path: str) -> set[str | None]:
    """Tasks that have windows, state by key, or a processor, or are joins."""
    windows = entries(spec, "windows", path, "windows")
    tasks = entries(spec, "catalog", path, "catalog")
    found = {good(draft, "task") for draft, _ in windows}
    return found | {good(draft, "name") for draft, _ in tasks if keeps_state(draft)}


def keeps_state(draft: Draft) -> bool:
    """Whether a task has state by key, or a processor, or is a join."""
    keeps = any(good(draft, field) is not None for field in ("state", "processor"))
    return keeps or good(draft, "type") == "join"
