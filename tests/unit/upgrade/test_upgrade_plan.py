"""What is carried over from one job to the next, shown by manifests."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from onyx.keystate.records import SetStates, SetTriggerStates, TimerDue, WatermarkReached
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.job import parse_mapping
from onyx.task.recovery.old_job import numbers
from onyx.upgrade.plan import compare, input_doubt, upgrading
from onyx.upgrade.translation import Translation

Spec = dict[str, Any]
OLD: Spec = {
    "guarantee": "exactly-once",
    "workflow": [["read", "pass"], ["pass", "count"], ["count", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 5,
         "options": {"segments": []}},
        {"name": "pass", "type": "function", "fn": "m:same", "batchSize": 5},
        {"name": "count", "type": "reduce", "batchSize": 5, "groupByKey": "word", "minPeers": 1,
         "fluxPolicy": "continue"},
        {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5},
    ],
    "windows": [
        {"id": "hours", "task": "count", "type": "fixed", "aggregation": "count",
         "windowKey": "time", "range": [1, "hour"]},
        {"id": "ever", "task": "count", "type": "global", "aggregation": ["sum", "n"]},
    ],
    "triggers": [
        {"windowId": "ever", "id": "tenth", "type": "segment", "threshold": [10, "elements"],
         "refinement": "accumulating", "emit": "m:emit"},
        {"windowId": "ever", "id": "daily", "type": "timer", "period": [1, "day"],
         "refinement": "accumulating", "emit": "m:emit"},
    ],
}  # fmt: skip


def job(spec: Spec) -> Job:
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
    return parse_mapping({**head, "spec": spec})


def changed(change: Callable[[Spec], object], point: Spec | None = None) -> Job:
    spec = copy.deepcopy(OLD)
    change(spec)
    return job({**spec, "upgrade": {"from": "old", **(point or {})}})


def entry(spec: Spec, name: str) -> Spec:
    return next(each for each in spec["catalog"] if each["name"] == name)


def reported(new: Job, old: Job | None = None) -> tuple[dict[str, str], list[str]]:
    """Fate by part and name, and the problems."""
    assert new.upgrade is not None
    found = compare(old or job(OLD), new, new.upgrade)
    fates = {f"{step.part} {step.name}": step.fate for step in found.steps}
    return fates, [f"{each.path}: {each.message} ({each.hint})" for each in found.problems]


def test_everything_of_an_unchanged_job_is_carried_over() -> None:
    fates, problems = reported(changed(lambda spec: None))
    assert problems == []
    assert fates == dict.fromkeys(
        ["input read", "output write", "task count", "window hours", "window ever"], "carried over"
    )


def with_table(spec: Spec, **table: Any) -> None:
    entry(spec, "pass")["join"] = {"table": "users", "key": "user"}
    table = {"plugin": "files", "options": {"path": "users"}, **table}
    spec["catalog"].append({"name": "users", "type": "table", "key": "id", **table})


@pytest.mark.parametrize("now", ["new", "gone", "another"])
def test_tables_and_joins_come_and_go_and_touch_no_state(now: str) -> None:
    """They are read anew, and ids of segments do not depend on them."""
    before = changed(with_table)
    new = before if now == "new" else changed(lambda spec: None)
    if now == "another":
        new = changed(lambda spec: with_table(spec, plugin="sequence", options={"segments": []}))
    fates, problems = reported(new, job(OLD) if now == "new" else before)
    assert problems == []
    assert fates == dict.fromkeys(
        ["input read", "output write", "task count", "window hours", "window ever"], "carried over"
    )


def test_a_function_may_become_a_text_of_sql_and_a_text_another_one() -> None:
    def text(sql: str) -> Callable[[Spec], object]:
        def change(spec: Spec) -> None:
            del entry(spec, "pass")["fn"]
            entry(spec, "pass")["sql"] = sql

        return change

    same, other = changed(text("select * from segments")), changed(text("from segments"))
    for new, old in ((same, None), (other, same)):
        fates, problems = reported(new, old)
        assert (set(fates.values()), problems) == ({"carried over"}, [])


def test_a_condition_with_another_text_is_another_path() -> None:
    def condition(text: str) -> Callable[[Spec], object]:
        each = {"from": "pass", "to": ["count"], "predicate": ["sql", text]}
        return lambda spec: spec.update(flowConditions=[each])

    _, problems = reported(changed(condition("n > 1")), changed(condition("n > 2")))
    assert "the path of segments to it has changed (pass)" in problems[0]


def test_an_input_that_is_new_changes_no_path_of_what_is_in_flight() -> None:
    def with_input(spec: Spec) -> None:
        spec["catalog"].append({"name": "again", "type": "input", "plugin": "requests"})
        spec["workflow"].append(["again", "pass"])

    def of_an_old_task(spec: Spec) -> None:
        spec["workflow"].append(["read", "write"])

    fates, problems = reported(changed(with_input))
    assert (fates.pop("input again"), set(fates.values())) == ("new", {"carried over"})
    assert problems == []
    _, problems = reported(changed(of_an_old_task))
    assert "the path of segments to it has changed (read)" in problems[0]


def test_bundles_of_a_query_of_spark_stay_with_their_job() -> None:
    def staged(spec: Spec) -> None:
        del entry(spec, "pass")["fn"]
        entry(spec, "pass").update(sparkSql="from segments", options={"path": "bundles"})

    old = copy.deepcopy(OLD)
    staged(old)
    _, problems = reported(changed(lambda spec: None), job(old))
    assert "the old job has the Spark stage pass, whose bundles stay with it" in problems[0]


def test_the_same_length_in_another_unit_is_the_same() -> None:
    fates, problems = reported(
        changed(lambda spec: spec["windows"][0].update(range=[60, "minutes"]))
    )
    assert (fates["window hours"], problems) == ("carried over", [])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"range": [2, "hours"]}, "range was [1, hour] and is [2, hours]"),
        ({"aggregation": ["sum", "n"]}, "aggregation was count and is [sum, n]"),
        ({"windowKey": "at"}, "windowKey was time and is at"),
        ({"minValue": 7}, "minValue was 0 and is 7"),
        (
            {"type": "sliding", "slide": [1, "minute"]},
            "type was fixed and is sliding",
        ),
    ],
)
def test_a_window_of_another_shape_has_to_be_initialized(change: Spec, why: str) -> None:
    fates, problems = reported(changed(lambda spec: spec["windows"][0].update(change)))
    assert fates["window hours"] == "dropped"
    assert fates["window ever"] == "carried over"
    (problem,) = problems
    assert problem.startswith(f"spec.upgrade.windows.hours: needs an answer: {why}")
    assert "carry-over" not in problem.partition("(")[2]
    point = {"windows": {"hours": "initialize"}}
    fates, problems = reported(changed(lambda spec: spec["windows"][0].update(change), point))
    assert (fates["window hours"], problems) == ("initialized", [])


def test_when_a_window_fires_and_how_long_it_waits_may_change() -> None:
    def change(spec: Spec) -> None:
        spec["triggers"][0]["threshold"] = [3, "elements"]
        spec["windows"][0]["allowedLateness"] = [5, "minutes"]
        entry(spec, "read")["options"] = {"segments": [{"n": 1}]}
        entry(spec, "pass")["fn"] = "m:other"

    fates, problems = reported(changed(change))
    assert (set(fates.values()), problems) == ({"carried over"}, [])


def test_groups_by_another_key_are_other_groups() -> None:
    fates, problems = reported(changed(lambda spec: entry(spec, "count").update(groupByKey="city")))
    assert fates["task count"] == fates["window ever"] == fates["window hours"] == "dropped"
    (problem,) = problems
    assert "tasks.count: needs an answer: grouping was word and is city" in problem
    point = {"tasks": {"count": "initialize"}}
    new = changed(lambda spec: entry(spec, "count").update(groupByKey="city"), point)
    fates, problems = reported(new)
    assert fates["task count"] == fates["window ever"] == "initialized"
    assert problems == []


@pytest.mark.parametrize("option", ["job", "task", "partitions"])
def test_parts_of_another_job_are_dealt_anew_only_with_an_answer(option: str) -> None:
    options = {"job": "first", "task": "out", "partitions": 2}

    def follows(options: Spec) -> Callable[[Spec], object]:
        return lambda spec: entry(spec, "read").update(plugin="job", options=options)

    other = {**options, option: 3 if option == "partitions" else "other"}
    same = changed(follows({**options, "pollSeconds": 5}))
    assert reported(same, old=changed(follows(options)))[0]["input read"] == "carried over"
    _, problems = reported(changed(follows(other)), old=changed(follows(options)))
    assert any(f"{option} was" in each for each in problems)


def test_another_plugin_counts_its_positions_otherwise() -> None:
    generator = {"plugin": "generator", "options": {"segments": 3}}
    fates, problems = reported(changed(lambda spec: entry(spec, "read").update(generator)))
    assert fates["input read"] == "dropped"
    assert "plugin was sequence and is generator" in problems[0]


def test_requests_may_come_another_way() -> None:
    def by(plugin: str) -> Callable[[Spec], None]:
        return lambda spec: entry(spec, "read").update(plugin=plugin, options={})

    old = changed(by("requests"))
    fates, problems = reported(changed(by("http")), old)
    assert (fates["input read"], problems) == ("carried over", [])


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({}, {"partitions": 3}, ""),
        ({}, {"mode": "native"}, "mode was journal and is native"),
        ({"mode": "native"}, {}, "mode was native and is journal"),
        ({"partitions": 3}, {}, "it had 3 partitions and has 1"),
    ],
)
def test_a_journal_is_carried_over_whole_or_not_at_all(before: Spec, after: Spec, why: str) -> None:
    old, new = (
        CatalogEntry(name="read", type="input", plugin="redis", options=each)
        for each in (before, after)
    )
    doubt = input_doubt(old, new)
    assert (doubt.why if doubt is not None else "").startswith(why)
    assert (doubt is None) == (why == "")


def beside(spec: Spec) -> None:
    """Segments go on from `pass` to another task too."""
    spec["workflow"].append(["pass", "aside"])
    spec["catalog"].append(
        {"name": "aside", "type": "output", "plugin": "blackhole", "batchSize": 5}
    )


def test_another_path_of_segments_needs_consent_that_in_flight_segments_may_count_twice() -> None:
    fates, problems = reported(changed(beside))
    assert fates["task count"] == fates["output write"] == "dropped"
    assert fates["output aside"] == "new"
    assert all(
        "changed (pass)" in each and "or carry-over to accept that" in each for each in problems
    )
    point = {"tasks": {"count": "carry-over", "write": "carry-over"}}
    fates, problems = reported(changed(beside, point))
    assert fates["task count"] == fates["window ever"] == "carried over"
    assert problems == []


def test_at_least_once_the_way_does_not_matter() -> None:
    def loose(spec: Spec) -> None:
        spec["guarantee"] = "at-least-once"
        entry(spec, "count")["deduplicate"] = False

    old = copy.deepcopy(OLD)
    loose(old)
    fates, problems = reported(changed(lambda spec: (loose(spec), beside(spec))), job(old))
    assert (fates["task count"], problems) == ("carried over", [])


SPARK: Spec = {"plugin": "spark", "options": {"path": "out", "stage": "m:total"}}


def to_spark(change: Spec, old: Spec = SPARK) -> tuple[dict[str, str], list[str]]:
    """Of an output that was `old` and is that with a change; at least once."""

    def loose(spec: Spec) -> None:
        spec["guarantee"] = "at-least-once"
        entry(spec, "count")["deduplicate"] = False
        entry(spec, "write").update(copy.deepcopy(old))

    before = copy.deepcopy(OLD)
    loose(before)

    def new(spec: Spec) -> None:
        loose(spec)
        entry(spec, "write").update(change)
        if "name" in change:
            spec["workflow"][-1] = ["count", change["name"]]

    point = {"tasks": {change.get("name", "write"): "initialize"}}
    _, answered = reported(changed(new, point), job(before))
    assert answered == []
    return reported(changed(new), job(before))


@pytest.mark.parametrize(
    "options",
    [
        {"path": "out", "stage": "m:other", "write": {"format": "json"}},
        {"path": "./out/", "stage": "m:total"},
    ],
)
def test_a_result_holds_what_all_versions_wrote_whatever_the_stage_does(options: Spec) -> None:
    fates, problems = to_spark({"options": options})
    assert (fates["output write"], problems) == ("carried over", [])


@pytest.mark.parametrize(
    ("change", "old", "why"),
    [
        ({"options": {"path": "new", "stage": "m:total"}}, SPARK, "path was out and is new"),
        (SPARK, {"plugin": "files", "options": {"path": "out"}}, "plugin was files and is spark"),
        ({"plugin": "files", "options": {"path": "out"}}, SPARK, "plugin was spark and is files"),
        ({"name": "sums"}, SPARK, "its path is that of output write of the old job"),
    ],
)
def test_a_result_that_would_lack_what_was_written_has_to_be_wanted(
    change: Spec, old: Spec, why: str
) -> None:
    fates, problems = to_spark(change, old)
    name = change.get("name", "write")
    assert fates[f"output {name}"] == "dropped"
    (problem,) = problems
    assert problem.startswith(f"spec.upgrade.tasks.{name}: needs an answer: {why}")
    assert "carry-over" not in problem.partition("(give")[2]


def test_new_parts_begin_anew_and_those_that_are_gone_are_dropped() -> None:
    def change(spec: Spec) -> None:
        spec["windows"][0]["id"] = "renamed"

    fates, problems = reported(changed(change))
    assert (fates["window renamed"], fates["window hours"]) == ("new", "dropped")
    assert problems == []
    _, problems = reported(changed(beside, {"tasks": {"aside": "carry-over"}}))
    assert "tasks.aside: cannot be carried over: job old has no such state" in problems[1]


def test_a_job_without_state_gives_none() -> None:
    old = copy.deepcopy(OLD)
    old["guarantee"] = "at-most-once"
    entry(old, "count")["deduplicate"] = False
    _, problems = reported(changed(lambda spec: None), job(old))
    assert any("spec.upgrade.from: the old job has guarantee" in each for each in problems)


def test_a_job_upgrades_the_job_that_is_named_and_keeps_its_answers() -> None:
    point = upgrading(job(OLD), "a").upgrade
    assert point is not None
    assert point.from_job == "a"
    point = upgrading(changed(lambda spec: None, {"tasks": {"read": "initialize"}}), "b").upgrade
    assert point is not None
    assert (point.from_job, dict(point.tasks)) == ("b", {"read": "initialize"})


def test_records_of_what_is_not_carried_over_are_left_out() -> None:
    def change(spec: Spec) -> None:
        spec["triggers"][0]["threshold"] = [3, "elements"]

    new = changed(change, {"windows": {"hours": "initialize"}})
    assert new.upgrade is not None
    found = compare(job(OLD), new, new.upgrade)
    translation = Translation(job(OLD), new, "count", found)
    kept = [
        SetStates("ever", 0, ["a"], [1]),
        TimerDue("ever", "daily", 5),
        WatermarkReached("ever", 7),
    ]
    gone = [
        SetStates("hours", 0, ["a"], [1]),
        SetTriggerStates("ever", "tenth", ["a"], [4]),
    ]
    assert translation.records([gone[0], *kept, gone[1]]) == kept


def test_partitions_are_known_by_their_names() -> None:
    old = {"read": (0, ["a", "b", "c"]), "count": (3, ["0", "1"])}
    new = {"read": (2, ["c", "d", "a"]), "count": (0, ["0", "1"]), "more": (5, ["a"])}
    assert numbers(old, new) == {0: 4, 2: 2, 3: 0, 4: 1}


def on(which: str, point: Spec | None = None, **window: Any) -> Job:
    """The job on an engine, over an input that has no end."""

    def change(spec: Spec) -> None:
        spec["engine"] = which
        entry(spec, "read").update(plugin="m:feed", options={})
        spec["windows"][0].update(window)

    return changed(change, point)


@pytest.mark.parametrize("engine", ["spark", "peers"])
def test_a_job_without_end_on_spark_is_carried_over_to_either_engine(engine: str) -> None:
    fates, problems = reported(on(engine), on("spark", engine="spark"))
    assert (set(fates.values()), problems) == ({"carried over"}, [])


def test_nothing_of_a_job_on_spark_is_in_flight_so_the_path_may_change() -> None:
    old = on("spark")
    new = copy.deepcopy(OLD)
    beside(new)
    entry(new, "read").update(plugin="m:feed", options={})
    fates, problems = reported(job({**new, "upgrade": {"from": "old"}}), old)
    assert (fates["task count"], problems) == ("carried over", [])


def test_a_query_over_inputs_with_an_end_has_nothing_to_carry_over() -> None:
    old = job({**OLD, "engine": "spark"})
    _, problems = reported(on("peers"), old)
    assert problems[0].startswith("spec.upgrade.from: the old job is one query on Spark")
