"""The guide's table of what a job on Spark can express is what the compiler takes and refuses."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from onyx.errors import ManifestError
from onyx.model.parsing.job import parse_manifest
from onyx.model.plugins import INPUTS, OUTPUTS
from onyx.spark.compiler import refusals
from onyx.spark.compiler.compile import compile_job

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "spark-jobs.md"
HEADER = "| | peers | Spark |\n|---|---|---|\n"
Spec = dict[str, Any]
JOB: Spec = {
    "guarantee": "exactly-once",
    "workflow": [["read", "fold"], ["fold", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "files", "options": {"path": "in"},
         "watermarkKey": "at"},
        {"name": "fold", "type": "reduce", "groupByKey": "key", "fluxPolicy": "continue"},
        {"name": "write", "type": "output", "plugin": "blackhole"},
    ],
    "windows": [{"id": "w", "task": "fold", "type": "fixed", "windowKey": "at",
                 "range": [1, "minute"], "aggregation": "count"}],
    "triggers": [{"windowId": "w", "type": "watermark", "postEvictor": ["all"], "emit": "m:row"}],
}  # fmt: skip
WORK = [{"name": "work", "type": "function", "fn": "m:work", "params": ["n"], "options": {"n": 1}}]
STAGE = {"name": "work", "type": "function", "sparkStage": "m:f", "options": {"path": "p"}}
OTHER = {"name": "other", "type": "output", "plugin": "stdout"}
OWN = "my.plugins:make"
OPTIONS: dict[str, Spec] = {
    "channel": {"channel": "c"}, "files": {"path": "in"}, "kafka": {"topic": "t"},
    "function": {}, "spark": {"path": "p", "stage": "m:stage"},
    "sql": {"path": "p", "table": "t", "url": "u"},
}  # fmt: skip


def with_trigger(kind: str, **more: Any) -> Spec:
    trigger = {**JOB["triggers"][0], "type": kind, **more}
    return {**JOB, "triggers": [trigger]}


def with_function(**more: Any) -> Spec:
    return {
        **JOB,
        "workflow": [["read", "work"], ["work", "fold"], ["work", "other"], ["fold", "write"]],
        "catalog": [*JOB["catalog"], given({**WORK[0], **more.pop("work", {})}), OTHER],
        **more,
    }


def given(entry: Spec) -> Spec:
    """An entry without the keys that are None."""
    return {key: value for key, value in entry.items() if value is not None}


def endless(spec: Spec) -> Spec:
    spec = copy.deepcopy(spec)
    spec["catalog"][0] |= {"plugin": OWN, "options": {}}
    return spec


def with_stage(**more: Any) -> Spec:
    stage = {**STAGE, "options": {"path": "p", **more}}
    return {**with_function(), "catalog": [*JOB["catalog"], stage, OTHER]}


def with_table(work: Mapping[str, Any] = MappingProxyType({}), **more: Any) -> Spec:
    table = {"name": "users", "type": "table", "plugin": "files", "key": "id",
             "options": {"path": "users"}, **more}  # fmt: skip
    spec = with_function(work={"join": {"table": "users", "key": "user"}, **work})
    return {**spec, "catalog": [*spec["catalog"], table]}


def with_kept() -> Spec:
    spec = with_function(work={"join": {"state": "w", "key": "user", "as": "sum"}})
    counts = {"id": "w", "task": "fold", "type": "global", "aggregation": "count"}
    fold = next(each for each in spec["catalog"] if each["name"] == "fold")
    grouped = {**fold, "groupByKey": "user", "fluxPolicy": "continue"}
    catalog = [grouped if each is fold else each for each in spec["catalog"]]
    return {**spec, "catalog": catalog, "windows": [counts]}


def with_state() -> Spec:
    grouped = {"groupByKey": "user", "fluxPolicy": "continue"}
    return with_function(work={**grouped, "state": {"seen": "value[int]"}})


def with_processor() -> Spec:
    return with_function(work={"processor": "m:Sums", "fn": None, "params": None})


def with_streams() -> Spec:
    other = {**JOB["catalog"][0], "name": "other"}
    join = {"name": "join", "type": "join", "left": {"task": "read", "key": "key", "at": "at"},
            "right": {"task": "other", "key": "key", "at": "at"}, "range": "1 minute"}  # fmt: skip
    return {
        **JOB,
        "workflow": [["read", "join"], ["other", "join"], ["join", "fold"], ["fold", "write"]],
        "catalog": [*JOB["catalog"], other, join],
    }


def with_loop() -> Spec:
    back = [{"from": ["work"], "to": ["work"], "predicate": ["<", "v", 6]}]
    return with_function(work={"loopTo": "work", "lapsMax": 3}, flowConditions=back)


def when_idle() -> Spec:
    spec = copy.deepcopy(JOB)
    spec["catalog"][0] |= {"idleTimeout": 1_000, "whenIdle": "clock"}
    return spec


CONDITIONS = [
    {"from": ["work"], "to": "none", "predicate": "m:is_busy", "thrownException": True,
     "shortCircuit": True, "action": "retry"},
    {"from": ["work"], "to": ["other"], "predicate": ["<", "v", 6]},
]  # fmt: skip
LATE = {**JOB["windows"][0], "allowedLateness": [1, "minute"], "lateTo": "other"}
ROWS: dict[str, list[Spec]] = {
    "functions of dicts and of columns, `batchFn`, `params`": [
        with_function(),
        with_function(work={"batchFn": True}),
        with_function(work={"batchFormat": "arrow"}),
    ],
    "flow conditions, retries, dead letters": [
        with_function(work={"deadLetter": "other"}, flowConditions=CONDITIONS),
    ],
    "windows of all types, aggregations of your own, late segments": [
        {**JOB, "windows": [{**JOB["windows"][0], "type": "sliding", "slide": [1, "second"]}]},
        {**JOB, "windows": [{"id": "w", "task": "fold", "type": "session", "windowKey": "at",
                             "timeoutGap": [1, "minute"], "aggregation": "m:mine"}]},
        with_trigger("segment", threshold=[1, "elements"])
        | {"windows": [{"id": "w", "task": "fold", "type": "global", "aggregation": "count"}]},
        {**JOB, "windows": [LATE], "workflow": [*JOB["workflow"], ["fold", "other"]],
         "catalog": [*JOB["catalog"], OTHER]},
        endless(copy.deepcopy(JOB)),
        endless(copy.deepcopy(with_trigger("segment", threshold=[1, "elements"]))),
    ],
    "`combine`": [
        {**JOB, "catalog": [JOB["catalog"][0], {**JOB["catalog"][1], "combine": True},
                            JOB["catalog"][2]]},
    ],
    "triggers `segment`, `punctuation`, `watermark`, `percentile-watermark`": [
        with_trigger("segment", threshold=[1, "elements"]),
        with_trigger("punctuation", pred="m:pred"),
        with_trigger("watermark"),
        with_trigger("percentile-watermark", watermarkPercentage=0.5),
    ],
    "trigger `timer`, or `period`, where inputs have an end": [
        with_trigger("timer", period=[1, "second"]),
    ],
    "trigger `timer`, or `period`, over inputs without end": [
        endless(copy.deepcopy(with_trigger("timer", period=[1, "second"]))),
    ],
    "`uniquenessKey`": [
        {**JOB, "catalog": [JOB["catalog"][0], {**JOB["catalog"][1], "uniquenessKey": "id"},
                            JOB["catalog"][2]]},
    ],
    "[tables and joins](joins.md)": [with_table()],
    "`partitioned` of a table": [
        with_table({"groupByKey": "user", "fluxPolicy": "continue"}, partitioned=True)
    ],
    "[what another task keeps](joins.md#what-another-task-keeps)": [with_kept()],
    "[joins of two streams](joins.md#two-streams)": [with_streams(), endless(with_streams())],
    "`refresh` of a table": [with_table(refresh=[5, "minutes"])],
    "[state by key](keyed-state.md) of functions, timers": [with_state(), endless(with_state())],
    "[processors](processors.md)": [with_processor()],
    "[SQL](sql-columns.md) instead of a function": [
        with_function(work={"sql": "from segments", "fn": None, "params": None}),
    ],
    "[loops](loops.md)": [with_loop()],
    "`whenIdle: clock`": [when_idle()],
    "`sparkStage` in the middle": [with_stage(), with_stage(sparkConf={"spark.sql.ansi": "1"})],
    "`bundleSegments`, `bundleSeconds`": [
        with_stage(bundleSegments=9), with_stage(bundleSeconds=9),
    ],
    "`sparkConf` of a stage in the middle that is not `spark.sql.*`": [
        with_stage(sparkConf={"spark.driver.memory": "1g"}),
    ],
    "lifecycles": [{**JOB, "lifecycles": [{"task": "all", "calls": "m:calls"}]}],
    "`firstFailuresMax`": [with_function(work={"firstFailuresMax": 9, "deadLetter": "write"})],
    "`upgrade`": [{**endless(JOB), "upgrade": {"from": "old"}}],
    "`upgrade.savepoint`": [{**endless(JOB), "upgrade": {"savepoint": "/savepoints/noon"}}],
}  # fmt: skip


def table() -> dict[str, tuple[str, str]]:
    """The cells of the guide's table, by the first one."""
    text = GUIDE.read_text("utf-8").partition(HEADER)[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {label: (peers, spark) for label, peers, spark in rows}


def refused(spec: Spec) -> list[str]:
    """The keys that engine spark refuses; peers take the job."""
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "job"}}
    parse_manifest(json.dumps({**head, "spec": spec}).encode())
    try:
        compile_job(parse_manifest(json.dumps({**head, "spec": {**spec, "engine": "spark"}})))
    except ManifestError as error:
        return [each.path for each in error.problems]
    return []


def with_plugin(index: int, plugin: str, **options: Any) -> Spec:
    spec = copy.deepcopy(JOB)
    options = {**OPTIONS.get(plugin, {}), **options}
    spec["catalog"][index] |= {"plugin": plugin, "options": options}
    if plugin == "function":
        spec["catalog"][index] |= {"fn": "m:call"}
    return spec


def without_windows(spec: Spec) -> Spec:
    found = {**copy.deepcopy(spec), "windows": [], "triggers": []}
    found["workflow"] = [["read", "write"]]
    del found["catalog"][1]
    return found


def test_the_table_has_these_rows() -> None:
    assert table().keys() == {*ROWS, "inputs", "outputs"}


@pytest.mark.parametrize(
    ("label", "spec"), [(label, spec) for label, specs in ROWS.items() for spec in specs]
)
def test_what_the_table_denies_is_refused_and_nothing_else(label: str, spec: Spec) -> None:
    _, cell = table()[label]
    assert re.match(r"(yes|no)\b", cell)
    assert bool(refused(spec)) == cell.startswith("no")


@pytest.mark.parametrize("plugin", [*INPUTS, OWN])
def test_inputs_that_the_table_names_can_be_read(plugin: str) -> None:
    _, cell = table()["inputs"]
    can = f"`{plugin}`" in cell or (plugin == OWN and "your own" in cell)
    spec = without_windows(with_plugin(0, plugin))
    assert refused(spec) == ([] if can else ["spec.catalog[0].plugin"])


ENDLESS = [
    (endless(without_windows(with_plugin(2, "spark"))), "spec.catalog[1].plugin"),
    (endless({**without_windows(JOB), "workflow": [["read", "work"], ["work", "write"]],
              "catalog": [JOB["catalog"][0], STAGE, JOB["catalog"][2]]}),
     "spec.catalog[1].sparkStage"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "path"), ENDLESS)
def test_what_the_guide_says_that_inputs_without_end_cannot_feed_is_refused(
    spec: Spec, path: str
) -> None:
    section = GUIDE.read_text("utf-8").partition("## Inputs without end")[2].partition("\n## ")[0]
    assert "Refused are the output `spark` and `sparkStage`" in section
    assert refused(spec) == [path]


@pytest.mark.parametrize("master", ["local[2]", "spark://spark:7077", "sc://spark:15002"])
def test_inputs_without_end_run_with_any_master(master: str) -> None:
    section = GUIDE.read_text("utf-8").partition("## Inputs without end")[2].partition("\n## ")[0]
    assert "Any [master](spark.md#masters) will do" in section
    own = {**with_plugin(0, OWN), "engine": "spark", "spark": {"master": master}}
    assert refused(without_windows(own)) == []


@pytest.mark.parametrize("plugin", [*OUTPUTS, OWN])
def test_outputs_that_the_table_names_can_be_written(plugin: str) -> None:
    can = f"`{plugin}`" in table()["outputs"][1]
    assert refused(with_plugin(2, plugin)) == ([] if can else ["spec.catalog[2].plugin"])


def test_every_refusal_of_the_compiler_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[int] = set()
    real = refusals.Problem

    def noted(*args: str) -> Any:
        made.add(sys._getframe(1).f_lineno)
        return real(*args)

    monkeypatch.setattr(refusals, "Problem", noted)
    specs = [spec for specs in ROWS.values() for spec in specs]
    specs += [with_plugin(0, "channel"), with_plugin(2, OWN), *(spec for spec, _ in ENDLESS)]
    for spec in specs:
        refused(spec)
    tree = ast.parse(inspect.getsource(refusals))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    written = {node.lineno for node in calls if getattr(node.func, "id", "") == "Problem"}
    assert made == written
