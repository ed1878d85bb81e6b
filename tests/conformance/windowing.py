"""Windows and triggers of the case files, run: what both eras' adapters have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from tests.conformance import manifests
from tests.conformance.values import same, value

from onyx.flow.groups.getters import key_getter
from onyx.keystate.groups import hashable_keys
from onyx.model.job import CatalogEntry, Job, Trigger, Window
from onyx.windows.compile import compile_windows
from onyx.windows.firing import Firing
from onyx.windows.task_windows import TaskWindows

SHARDS = 4
PREDICATES = {
    "true-pred": lambda trigger, event: True,
    "done-pred": lambda trigger, event: bool(event["segment"].get("done?")),
}


class Call(NamedTuple):
    """One call of a trigger's function, as the case files tell it."""

    after: int | None
    trigger: str
    event: str
    group: Any
    lower: Any
    upper: Any
    state: Any


def function(name: str) -> Callable[..., Any]:
    """The named functions of the cases; `winfns/record!` is what notes the calls."""
    return PREDICATES[name.rpartition(":")[2].replace("_", "-")]


def window_of(entry: dict[str, Any], task: str) -> Window:
    """A window entry as ours."""
    keys = {_attribute(key): each for key, each in manifests.entry("windows", entry).items()}
    return Window(**{**_plain(keys), "task": task})


def trigger_of(entry: dict[str, Any], index: int) -> Trigger:
    """A trigger entry as ours; without a refinement the state stays as it is."""
    written = manifests.entry("triggers", entry)
    keys = {_attribute(key): each for key, each in written.items() if key != "options"}
    name = entry.get("test/name", f"trigger-{index}")
    return Trigger(**{"id": name, **_plain(keys)})


def windows_of(case: dict[str, Any], assigned: bool) -> tuple[TaskWindows, CatalogEntry]:
    """The windows of a case, and the task that they are on."""
    task_map = case["task_map"]
    task = task_map.get("onyx/name", "identity")
    by = task_map.get("onyx/group-by-key")
    entry = CatalogEntry(task, "function", 1, group_by_key=tuple(by) if type(by) is list else by)
    source = CatalogEntry("source", "input", 1, watermark_key="at" if assigned else None)
    job = Job(
        "case",
        (("source", task),),
        (source, entry),
        windows=tuple(window_of(each, task) for each in case["windows"]),
        triggers=tuple(trigger_of(each, i) for i, each in enumerate(case["triggers"])),
    )
    compiled = compile_windows(job, task, function)
    assert compiled is not None
    return TaskWindows(compiled, lambda group: hash(repr(group)) % SHARDS), entry


def groups_of(entry: CatalogEntry, segments: Sequence[dict[str, Any]]) -> list[Any] | None:
    """The groups of segments, as `TaskWindows.add` takes them."""
    getter = key_getter(entry, function)
    return None if getter is None else hashable_keys(getter.of_dicts(segments).values())


def taken(windows: TaskWindows, entry: CatalogEntry, step: dict[str, Any]) -> list[Firing]:
    """What fires at a step of a case of 0.10 and later."""
    if "segment" in step:
        segment = value(step["segment"])
        return windows.add([segment], groups_of(entry, [segment]), 0).firings
    match step["event"]:
        case "watermark":
            return [*chain.from_iterable(windows.advance(min(step["watermarks"].values())))]
        case "timer-tick":
            return [*chain.from_iterable(windows.tick(0))]
        case "job-completed":
            return [*chain.from_iterable(windows.complete(range(SHARDS), 0))]
    return []


def calls(after: int | None, fired: Iterable[Firing]) -> list[Call]:
    """What has fired, as calls."""
    return [
        Call(after, str(one.trigger.id), one.event_type, one.group, one.lower, one.upper, one.state)
        for one in fired
    ]


def expected_calls(listed: Iterable[dict[str, Any]], after: str) -> list[Call]:
    """The calls that a case lists."""
    keys = (after, "trigger-id", "event-type", "group-key", "lower-bound", "upper-bound", "state")
    return [Call(*(value(each.get(key)) for key in keys)) for each in listed]


def differences(got: Sequence[Call], wanted: Sequence[Call], unordered: bool) -> str | None:
    """How calls differ, in whatever order; shown without states where only these differ."""
    left = list(wanted)
    extra: list[Call] = []
    for one in got:
        alike = (each for each in left if one[:-1] == each[:-1])
        found = next((each for each in alike if same(one.state, each.state, unordered)), None)
        if found is None:
            extra.append(one)
        else:
            left.remove(found)
    if not left and not extra:
        return None
    what = "the calls differ"
    if sorted(map(_place, left)) == sorted(map(_place, extra)):
        what = "only states differ"
    elif sorted(map(_bounded, left)) == sorted(map(_bounded, extra)):
        what = "only bounds differ"
    return f"{what}: missing {[tuple(each) for each in left]}, extra {[tuple(e) for e in extra]}"


def is_unordered(case: dict[str, Any]) -> bool:
    """Whether states hold sets."""
    return any("collect-by-key" in str(each["window/aggregation"]) for each in case["windows"])


def _place(call: Call) -> str:
    return repr(call[:-1])


def _bounded(call: Call) -> str:
    return repr((call[:4], call.state))


def _attribute(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


def _plain(keys: dict[str, Any]) -> dict[str, Any]:
    return {
        key: tuple(each) if isinstance(each, list) and key != "init" else each
        for key, each in keys.items()
    }
