"""Cases about group keys: the key of each segment, and equal keys on equal slots.

The files write keywords and strings alike, and these cases tell them apart: plain objects have
keywords as keys, `$map` has strings, and one case groups by a string. Here a keyword is the string
with a colon before it.
"""

from __future__ import annotations

from typing import Any

from onyx.flow.grouping import Grouping, key_getter
from onyx.model.job import CatalogEntry

FUNCTIONS = {"gfn/by-name": lambda segment: segment.get(":name")}
SLOTS = 7


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    task_map = case["task_map"]
    by = task_map.get("onyx/group-by-key")
    entry = CatalogEntry(
        "case",
        "function",
        1,
        group_by_key=_group_by(by, is_string="string-key" in case["id"]),
        group_by_fn=task_map.get("onyx/group-by-fn"),
    )
    getter = key_getter(entry, FUNCTIONS.__getitem__)
    if getter is None:
        return None if case.get("expected_grouping") is False else "expected grouping"
    segments = [_segment(each["segment"]) for each in case["cases"]]
    for segment, each in zip(segments, case["cases"], strict=True):
        if getter(segment) != _keywords(each["group_key"]):
            return f"{segment}: expected {each['group_key']!r}, got {getter(segment)!r}"
    slots = Grouping(getter).slots_of(segments, SLOTS).tolist()
    by_key: dict[str, set[int]] = {}
    for slot, each in zip(slots, case["cases"], strict=True):
        by_key.setdefault(repr(each["group_key"]), set()).add(slot)
    return next((f"{key} is on {on}" for key, on in by_key.items() if len(on) > 1), None)


def _group_by(by: Any, is_string: bool) -> Any:
    if isinstance(by, list):
        return tuple(":" + key for key in by)
    return ":" + by if isinstance(by, str) and not is_string else by


def _segment(encoded: dict[str, Any]) -> dict[Any, Any]:
    return dict(encoded["$map"]) if "$map" in encoded else _keywords(encoded)


def _keywords(value: Any) -> Any:
    return {":" + k: v for k, v in value.items()} if isinstance(value, dict) else value
