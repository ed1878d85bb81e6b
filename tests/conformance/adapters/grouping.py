"""Cases about group keys: the key of each segment, and equal keys on equal slots.

The files write keywords and strings alike, and these cases tell them apart: plain objects have
keywords as keys, `$map` has strings, and what a case groups by shows in its answers. Here a keyword
is the string with a colon before it. What lacks its key is one group,
as `onMissingKey: group` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.flow.groups.getters import key_getter
from onyx.flow.groups.grouping import Grouping
from onyx.model.job import CatalogEntry

SLOTS = 7


def _function(name: str) -> Callable[[dict[Any, Any]], Any]:
    """`gfn/by-name`: the value of the key; `gfn/constant`: the same for all."""
    short = name.rpartition("/")[2]
    if short.startswith("by-"):
        return lambda segment: segment.get(":" + short.removeprefix("by-"))
    if short.startswith(("const", "always")):
        return lambda segment: short
    raise KeyError(name)


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    task_map = case["task_map"]
    by = task_map.get("onyx/group-by-key")
    entry = CatalogEntry(
        "case",
        "function",
        1,
        group_by_key=_group_by(by, _is_string(by, case["cases"])),
        group_by_fn=task_map.get("onyx/group-by-fn"),
        on_missing_key="group",
    )
    getter = key_getter(entry, _function)
    if getter is None:
        return None if case.get("expected_grouping") is False else "expected grouping"
    segments = [_segment(each["segment"]) for each in case["cases"]]
    for segment, each in zip(segments, case["cases"], strict=True):
        [key] = getter.of_dicts([segment]).values()
        if key != _keywords(each["group_key"]):
            return f"{segment}: expected {each['group_key']!r}, got {key!r}"
    slots = Grouping(getter, entry).slots_of(segments, SLOTS).tolist()
    by_key: dict[str, set[int]] = {}
    for slot, each in zip(slots, case["cases"], strict=True):
        by_key.setdefault(repr(each["group_key"]), set()).add(slot)
    return next((f"{key} is on {on}" for key, on in by_key.items() if len(on) > 1), None)


def _is_string(by: Any, cases: list[dict[str, Any]]) -> bool:
    """Whether the case groups by a string: then no segment that has it as a keyword has a key."""
    having = [each for each in cases if isinstance(by, str) and by in each["segment"]]
    return bool(having) and all(each["group_key"] is None for each in having)


def _group_by(by: Any, is_string: bool) -> Any:
    if isinstance(by, list):
        return tuple(":" + key for key in by)
    return ":" + by if isinstance(by, str) and not is_string else by


def _segment(encoded: dict[str, Any]) -> dict[Any, Any]:
    return dict(encoded["$map"]) if "$map" in encoded else _keywords(encoded)


def _keywords(value: Any) -> Any:
    return {":" + k: v for k, v in value.items()} if isinstance(value, dict) else value
