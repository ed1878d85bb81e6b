"""What is carried over of functions with state, shown by manifests."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from onyx.keystate.records import JoinRows, JoinSchema, SetStates, WatermarkReached
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.upgrade.plan import compare
from onyx.upgrade.translation import Translation

OLD: dict[str, Any] = {
    "guarantee": "exactly-once",
    "workflow": [["read", "track"], ["track", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "sequence", "options": {"segments": []}},
        {"name": "track", "type": "function", "fn": "m:f", "groupByKey": "word",
         "fluxPolicy": "continue", "onTimer": "m:t", "stateTtl": "1 day",
         "state": {"seen": "value[int]", "last": "map[str, float]", "events": "list"}},
        {"name": "write", "type": "output", "plugin": "blackhole"},
    ],
}  # fmt: skip


def job(task: dict[str, Any], upgrade: dict[str, Any] | None = None) -> Job:
    """The job with other keys of its task; None takes one away."""
    spec = copy.deepcopy(OLD)
    entry = spec["catalog"][1]
    entry.update(task)
    spec["catalog"][1] = {key: value for key, value in entry.items() if value is not None}
    if "loopTo" in task:
        back = {"from": ["track"], "to": ["track"], "predicate": ["==", "n", 1]}
        spec["flowConditions"] = [back]
    if upgrade is not None:
        spec["upgrade"] = {"from": "old", **upgrade}
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
    return parse_mapping({**head, "spec": spec})


def reported(task: dict[str, Any], **upgrade: Any) -> tuple[dict[str, str], list[str]]:
    new = job(task, upgrade)
    assert new.upgrade is not None
    found = compare(job({}), new, new.upgrade)
    fates = {step.name: step.fate for step in found.steps if step.part in ("task", "state")}
    return fates, [f"{each.path}: {each.message}" for each in found.problems]


def test_states_of_an_unchanged_task_are_carried_over() -> None:
    fates, problems = reported({})
    names = ["track", "track.seen", "track.last", "track.events"]
    assert (fates, problems) == (dict.fromkeys(names, "carried over"), [])


def test_states_may_come_and_go_and_hold_more_than_before() -> None:
    state = {"seen": "value", "events": "list[any]", "more": "value[int]"}
    fates, problems = reported({"state": state, "onTimer": None})
    assert problems == []
    assert fates == {
        "track": "carried over",
        "track.seen": "carried over",
        "track.events": "carried over",
        "track.more": "new",
        "track.last": "dropped",
        "track (timers)": "dropped",
    }


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (
            {"state": {"seen": "value[float]"}},
            "state seen was value[int] and is value[float]",
        ),
        (
            {"state": {"last": "map[int, float]"}},
            "state last was map[str, float] and is map[int, float]",
        ),
        ({"state": {"events": "value"}}, "state events was list and is value"),
        ({"groupByKey": "other"}, "grouping was word and is other"),
    ],
)
def test_a_state_that_does_not_fit_needs_an_answer(task: dict[str, Any], why: str) -> None:
    _, problems = reported(task)
    assert problems == [f"spec.upgrade.tasks.track: needs an answer: {why}"]
    fates, problems = reported(task, tasks={"track": "initialize"})
    assert problems == []
    assert fates["track"] == "initialized"
    assert "carried over" not in fates.values()


def test_states_of_a_task_that_has_none_any_more_are_dropped() -> None:
    fates, problems = reported(
        {"state": None, "onTimer": None, "stateTtl": None}, tasks={"write": "carry-over"}
    )
    assert problems == []
    names = ["track.seen", "track.last", "track.events"]
    assert fates == dict.fromkeys(names, "dropped")


def test_a_task_with_windows_has_no_use_for_state_of_the_same_task() -> None:
    new = job({}, {})
    spec = copy.deepcopy(OLD)
    for key in ("state", "onTimer", "stateTtl"):
        del spec["catalog"][1][key]
    window = {"id": "w", "task": "track", "type": "global", "aggregation": "count"}
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
    old = parse_mapping({**head, "spec": {**spec, "windows": [window]}})
    assert new.upgrade is not None
    (problem,) = compare(old, new, new.upgrade).problems
    assert "what it keeps was windows and is state" in problem.message


@pytest.mark.parametrize(
    ("task", "kept"),
    [
        ({}, ["seen", ".timers", ".touched"]),
        ({"onTimer": None}, ["seen", ".touched"]),
        ({"stateTtl": None}, ["seen", ".timers"]),
        ({"state": {"events": "list"}}, [".timers", ".touched"]),
    ],
)
def test_records_of_what_is_not_carried_over_are_left_out(
    task: dict[str, Any], kept: list[str]
) -> None:
    new = job(task, {})
    assert new.upgrade is not None
    translation = Translation(job({}), new, "track", compare(job({}), new, new.upgrade))
    records = [SetStates(name, 0, ["a"], [1]) for name in ("seen", ".timers", ".touched")]
    assert [each.window for each in translation.records(records)] == kept


STREAMS: dict[str, Any] = {
    "guarantee": "exactly-once",
    "workflow": [["a", "both"], ["b", "both"], ["both", "write"]],
    "catalog": [
        {"name": "a", "type": "input", "plugin": "sequence", "options": {"segments": []}},
        {"name": "b", "type": "input", "plugin": "sequence", "options": {"segments": []}},
        {"name": "both", "type": "join", "left": {"task": "a", "key": "id", "at": "time"},
         "right": {"task": "b", "key": "of", "at": "time"}, "how": "left",
         "within": {"before": [1, "minute"], "after": [1, "hour"]}},
        {"name": "write", "type": "output", "plugin": "blackhole"},
    ],
}  # fmt: skip


def joining(join: dict[str, Any], upgrade: dict[str, Any] | None = None) -> Job:
    """The job with other keys of its join."""
    spec = copy.deepcopy(STREAMS)
    spec["catalog"][2].update(join)
    if upgrade is not None:
        spec["upgrade"] = {"from": "old", **upgrade}
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
    return parse_mapping({**head, "spec": spec})


@pytest.mark.parametrize(
    "join",
    [
        {},
        {"left": {"task": "a", "key": ["id"], "at": "time", "prefix": "a_"}},
        {"within": {"before": "60s", "after": "60 minutes"}, "fluxPolicy": "continue"},
    ],
)
def test_rows_of_a_join_that_joins_the_same_are_carried_over(join: dict[str, Any]) -> None:
    new = joining(join, {})
    assert new.upgrade is not None
    found = compare(joining({}), new, new.upgrade)
    assert not found.problems
    assert {step.fate for step in found.steps if step.name == "both"} == {"carried over"}
    rows = [JoinSchema(".join", 0, b""), JoinRows(".join", 0, 1, [b""])]
    records = [*rows, WatermarkReached(".join", 7)]
    assert Translation(joining({}), new, "both", found).records(records) == records


@pytest.mark.parametrize(
    ("join", "why"),
    [
        ({"how": "inner"}, "how was left and is inner"),
        ({"left": {"task": "a", "key": "n", "at": "time"}}, "left.key was [id] and is [n]"),
        ({"right": {"task": "b", "key": "of", "at": "t"}}, "right.at was time and is t"),
        (
            {"within": {"after": [2, "hours"]}},
            "within was 60000 ms before to 3600000 ms after and is 0 ms before to 7200000 ms after",
        ),
    ],
)
def test_a_join_that_joins_otherwise_needs_an_answer(join: dict[str, Any], why: str) -> None:
    new = joining(join, {})
    assert new.upgrade is not None
    found = compare(joining({}), new, new.upgrade)
    (problem,) = found.problems
    assert problem.path == "spec.upgrade.tasks.both"
    assert why in problem.message
    assert (
        Translation(joining({}), new, "both", found).records([JoinRows(".join", 0, 1, [b""])]) == []
    )


def test_a_state_that_is_in_a_loop_needs_an_answer() -> None:
    _, problems = reported({"loopTo": "track", "lapsMax": 3, "onTimer": None})
    why = "it is in a loop, and what goes round there belongs to one job"
    assert f"spec.upgrade.tasks.track: needs an answer: {why}" in problems
