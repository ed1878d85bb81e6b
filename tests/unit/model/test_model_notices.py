"""A key without an effect causes a warning, wherever a job is checked."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.yaml_jobs import manifest

from onyx import api
from onyx.cli.command_table import run_command
from onyx.client import calls
from onyx.errors import ManifestError
from onyx.model.job import Job
from onyx.model.notices import notices
from onyx.model.parsing.job import parse_manifest, parse_mapping
from onyx.settings import Settings
from onyx_operator.admission.validators import judge

NOTICE = "spec.catalog[1].medium: is for readers of the job only"


def job(**more: Any) -> dict[str, Any]:
    catalog = [
        {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 10},
        {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 10, **more},
    ]
    catalog[0]["options"] = {"segments": [{"n": 1}]}
    spec = {"workflow": [["read", "write"]], "catalog": catalog}
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "job"}}
    return {**head, "spec": spec}


def test_a_medium_is_warned_of_at_its_place() -> None:
    (found,) = notices(parse_mapping(job(medium="kafka")))
    assert str(found).startswith(NOTICE)
    assert notices(parse_mapping(job())) == ()


def test_the_webhook_warns_and_accepts() -> None:
    verdict = judge("OnyxJob", job(medium="kafka"), None)
    assert verdict.problems == ()
    assert [str(each).startswith(NOTICE) for each in verdict.warnings] == [True]


@pytest.mark.parametrize("as_json", [False, True])
def test_validate_warns_and_accepts(
    tmp_path: Path, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job(medium="kafka")))
    run_command(["validate", str(file), *(["--json"] if as_json else [])])
    found = capsys.readouterr()
    if as_json:
        (warning,) = json.loads(found.out)["warnings"]
        assert warning["path"] == "spec.catalog[1].medium"
    else:
        assert f"warning: {file}:1: {NOTICE}" in found.err


SPEC = """
  workflow: [[read, work], [work, write]]
  catalog:
    - {name: read, type: input, plugin: sequence, options: {segments: []}%s}
    - {name: work, %s}
    - {name: write, type: output, plugin: blackhole%s}
%s"""
WORK = 'type: function, fn: "m:f"'
STAGE = 'type: function, sparkStage: "m:f", options: {path: bundles}'
GATHER = "type: reduce, groupByKey: k, fluxPolicy: continue, uniquenessKey: id"
WINDOW = """
  windows: [{id: w, task: work, %s}]
  triggers: [{windowId: w, type: timer, period: [1, second], refinement: accumulating, emit: "m:f"}]
"""
COUNTS = "type: global, aggregation: count"


def text_of(read: str = "", work: str = WORK, write: str = "", more: str = "") -> str:
    head = "apiVersion: onyx.dev/v1beta1\nkind: OnyxJob\nmetadata: {name: job}\nspec:"
    return head + SPEC % (read, work, write, more)


@pytest.mark.parametrize(
    ("given", "warnings"),
    [
        (text_of(), []),
        (text_of(read=", watermarkKey: t, idleTimeout: 5"), ["watermarkKey", "idleTimeout"]),
        (
            text_of(read=", watermarkKey: t, idleTimeout: 5, whenIdle: clock"),
            ["watermarkKey", "idleTimeout", "whenIdle"],
        ),
        (
            text_of(read=", assignWatermarkFn: m:f, allowedDisorder: [1, second]"),
            ["assignWatermarkFn", "allowedDisorder"],
        ),
        (text_of(read=", watermarkKey: t", work=GATHER, more=WINDOW % COUNTS), []),
        (text_of(write=", batchFn: true, params: [a], options: {a: 1}"), ["params", "batchFn"]),
        (text_of(work=f"{STAGE}, groupByKey: k, fluxPolicy: continue"), ["groupByKey"]),
        (text_of(work=GATHER, more=WINDOW % f"{COUNTS}, options: {{a: 1}}"), ["options"]),
        (text_of(work=GATHER, more=WINDOW % f"{COUNTS}, windowKey: t"), ["windowKey"]),
        (text_of(work=GATHER, more=WINDOW % f"{COUNTS}, range: [1, hour]"), ["range"]),
        (
            text_of(
                work=GATHER,
                more=WINDOW % f"{COUNTS}, windowKey: t, storageStrategy: [ordered-log]",
            ),
            [],
        ),
        (
            text_of(
                more='  flowConditions: [{from: work, to: [write], predicate: ["==", n, 1], '
                "options: {a: 1}}]"
            ),
            ["options"],
        ),
        (
            text_of(
                more="  flowConditions: [{from: work, to: [write], options: {a: 1}, "
                'predicate: [not, ["m:f", a]]}]'
            ),
            [],
        ),
    ],
)
def test_a_key_that_has_no_effect_where_it_stands_is_warned_of(
    given: str, warnings: list[str]
) -> None:
    found = notices(parse_manifest(given, "job.yaml"))
    assert [each.path.rpartition(".")[2] for each in found] == warnings


@pytest.mark.parametrize(
    "key",
    [
        "minPeers: 2", "maxPeers: 2", "nPeers: 2", "maxPending: 5", "pendingTimeout: 5",
        "inputRetryTimeout: 5", "batchSize: 5", "batchTimeout: 5", "cooperative: true",
    ],
)  # fmt: skip
def test_keys_for_peers_are_named_in_one_warning_on_spark(key: str) -> None:
    spec = text_of(read=f", {key}", more="  engine: spark\n  ackerPercentage: 7")
    (found,) = notices(parse_manifest(spec, "job.yaml"))
    name = key.partition(":")[0]
    assert str(found).startswith("spec.engine: is spark, on which keys for peers have no effect: ")
    assert f"ackerPercentage, {name} (read) (" in str(found)


def test_a_batch_that_a_function_sees_has_its_size_on_spark_too() -> None:
    work = 'type: function, fn: "m:f", batchFn: true, batchSize: 5'
    assert notices(parse_manifest(text_of(work=work, more="  engine: spark"), "job.yaml")) == ()


OF_THE_OPERATOR = (
    "desiredState: Suspended", "failurePolicy: {retries: 3}", "restartNonce: 1",
    "upgradePolicy: KeepState", "ttlSecondsAfterFinished: 5", "clusterRef: other",
)  # fmt: skip


@pytest.mark.parametrize("command", ["validate", "plan", "run", "submit"])
def test_keys_of_the_operator_are_warned_of_at_their_lines(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "job.yaml"
    # A plan is for Spark, which refuses to keep state.
    keys = [key for key in OF_THE_OPERATOR if command != "plan" or "KeepState" not in key]
    file.write_text(text_of(more="".join(f"  {key}\n" for key in keys)))
    next_step = {"run": "settings_for", "submit": "connect"}.get(command, "settings")
    monkeypatch.setattr(f"onyx.cli.commands.{command}.{next_step}", None, raising=False)
    nothing = contextlib.nullcontext((None, None))
    monkeypatch.setattr("onyx.cli.commands.run.local_log", lambda *_: nothing)
    with contextlib.suppress(TypeError, AttributeError, ManifestError):  # there are no settings
        run_command([command, str(file)])
    what = "is for the operator on Kubernetes: `onyx run` and `onyx submit` ignore it"
    lines = capsys.readouterr().err.splitlines()
    warned = [each for each in lines if each.startswith("warning: ") and " is not here" not in each]
    assert len(warned) == len(keys)
    for line, key in enumerate(keys, 10):
        name = key.partition(":")[0]
        assert any(f"{file}:{line}: spec.{name}: {what}" in each for each in warned)


def test_an_api_user_finds_warnings_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "connect", FakeConnection)
    api.submit_job(Settings(), job(medium="kafka"))
    assert [each.message.startswith(f"job job: {NOTICE}") for each in caplog.records] == [True]


class FakeConnection:
    def __init__(self, settings: Settings) -> None:
        pass

    def __enter__(self) -> FakeConnection:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, job: Job) -> None:
        pass


def test_spark_accounts_for_everything_or_nothing() -> None:
    spec = job()
    read, write = spec["spec"]["catalog"]
    spec["spec"] |= {
        "engine": "spark",
        "workflow": [["read", "work"], ["work", "write"]],
        "catalog": [
            {**read, "guarantee": "at-most-once"},
            {"name": "work", "type": "function", "fn": "m:f", "anchored": False},
            write,
        ],
        "flowConditions": [
            {"from": "work", "to": ["write"], "predicate": [">", "n", 1], "anchored": False}
        ],
    }
    (found,) = (each for each in notices(parse_mapping(spec)) if each.path == "spec.engine")
    for named in ("guarantee (read)", "anchored (work)", "anchored (flowConditions)"):
        assert named in found.message


@pytest.mark.parametrize(
    ("conditions", "left_out"),
    [
        ([], []),
        ([{"from": "work", "to": ["a"]}], ["b"]),
        ([{"from": "work", "to": ["a"]}, {"from": "work", "to": ["b"]}], []),
        ([{"from": "work", "to": "all", "shortCircuit": True}], []),
        ([{"from": "work", "to": "none", "shortCircuit": True}], ["a", "b"]),
        ([{"from": "work", "to": ["a"], "predicateErrorsTo": ["b"]}], []),
        ([{"from": "work", "to": ["a"], "thrownException": True, "shortCircuit": True}], []),
    ],
)
def test_a_child_that_no_condition_sends_anything_to_is_warned_of(
    conditions: list[dict[str, Any]], left_out: list[str]
) -> None:
    manifest = job()
    spec = manifest["spec"]
    outputs = [{"name": name, "type": "output", "plugin": "blackhole"} for name in "ab"]
    work = {"name": "work", "type": "function", "fn": "m:f"}
    spec["catalog"] = [spec["catalog"][0], work, *outputs]
    spec["workflow"] = [["read", "work"], ["work", "a"], ["work", "b"]]
    spec["flowConditions"] = [{"predicate": "m:p", **each} for each in conditions]
    found = notices(parse_mapping(manifest))
    edges = [f"spec.workflow[{1 + 'ab'.index(child)}]" for child in left_out]
    assert [each.path for each in found] == edges


def test_values_of_tasks_behind_a_window_go_to_nobody() -> None:
    asked = job()
    catalog = asked["spec"]["catalog"]
    catalog[0] |= {"plugin": "requests", "options": {}}
    catalog.append({"name": "sum", "type": "function", "fn": "m:f", "groupByKey": "k",
                    "fluxPolicy": "continue"})  # fmt: skip
    window = {"id": "w", "task": "sum", "type": "global", "aggregation": "count"}
    triggers = [
        {
            "windowId": "w",
            "type": "segment",
            "refinement": "accumulating",
            "threshold": [1, "elements"],
            "emit": "m:f",
        }
    ]
    asked["spec"] |= {
        "workflow": [["read", "sum"], ["sum", "write"]], "windows": [window], "triggers": triggers,
        "guarantee": "exactly-once",
    }  # fmt: skip
    assert notices(parse_mapping(asked)) == ()
    asked["spec"]["ackReturns"] = {"total": "sum"}
    (found,) = notices(parse_mapping(asked))
    assert str(found).startswith("spec.ackReturns: gets nothing from tasks behind sum: ")


def windowed(
    window: dict[str, Any],
    trigger: dict[str, Any],
    drop: Sequence[str] = (),
    guarantee: str | None = None,
    **keys: Any,
) -> Job:
    made = job()
    if guarantee is not None:
        made["spec"]["guarantee"] = guarantee
    made["spec"]["catalog"][0] |= keys
    made["spec"]["catalog"].insert(
        1, {"name": "sum", "type": "reduce", "batchSize": 10, "deduplicate": False}
    )
    made["spec"]["workflow"] = [["read", "sum"], ["sum", "write"]]
    made["spec"]["windows"] = [{"id": "w", "task": "sum", "aggregation": "count", **window}]
    made["spec"]["triggers"] = [
        {"windowId": "w", "refinement": "accumulating", "emit": "rows", **trigger}
    ]
    for key in drop:
        del made["spec"]["triggers"][0][key]
    return parse_mapping(made)


FIXED = {"type": "fixed", "windowKey": "n", "range": [1, "minute"]}


def test_a_watermark_on_a_global_window_is_warned_of() -> None:
    (found,) = notices(windowed({"type": "global"}, {"type": "watermark"}, watermarkKey="n"))
    assert str(found).startswith("spec.triggers[0].type: fires only when the job ends")


def test_all_extents_of_assigned_watermarks_are_warned_of() -> None:
    trigger = {"type": "watermark", "fireAllExtents": True}
    (found,) = notices(windowed(FIXED, trigger, watermarkKey="n"))
    assert str(found).startswith("spec.triggers[0].fireAllExtents: has no effect where inputs")


@pytest.mark.parametrize("more", [{}, {"fireAllExtents": True}], ids=["its own", "all extents"])
@pytest.mark.parametrize("kind", ["watermark", "percentile-watermark"])
def test_watermarks_that_no_input_assigns_are_warned_of(kind: str, more: dict[str, Any]) -> None:
    share = {"watermarkPercentage": 0.5} if kind == "percentile-watermark" else {}
    trigger = {"type": kind, **share, **more}
    (found,) = notices(windowed(FIXED, trigger))
    assert str(found).startswith(f"spec.triggers[0].type: is {kind}, but no input says how far")
    assert found.hint == "give an input watermarkKey or assignWatermarkFn"
    timer = {"type": "timer", "period": [1, "second"]}
    assert notices(windowed(FIXED, timer)) == ()


@pytest.mark.parametrize("assigned", ["", ", watermarkKey: t"])
def test_a_join_that_no_event_time_reaches_is_warned_of(assigned: str) -> None:
    text = f"""
        workflow: [[one, join], [other, same], [same, join], [join, write]]
        catalog:
          - {{name: one, type: input, plugin: generator}}
          - {{name: other, type: input, plugin: generator{assigned}}}
          - {{name: same, type: function, fn: "f:inc"}}
          - {{name: join, left: {{task: one, key: k, at: t}}, right: {{task: same, key: k, at: t}},
             range: 1 hour}}
          - {{name: write, type: output, plugin: stdout}}
    """
    found = notices(parse_mapping(manifest(text)))
    assert [each.path for each in found] == ([] if assigned else ["spec.catalog[3].left"])


TIMER = {"type": "timer", "period": [1, "second"]}


@pytest.mark.parametrize(
    ("trigger", "warned"),
    [
        ({}, []),
        ({"postEvictor": ["all"]}, ["refinement"]),
        ({"refinement": None, "postEvictor": ["all"]}, []),
        ({"options": {"a": 1}}, ["options"]),
        ({"options": {"a": 1}, "emit": "m:f"}, []),
        ({"options": {"a": 1}, "sync": "m:f"}, []),
        ({"options": {"a": 1}, "refinement": "m:f"}, []),
        ({"options": {"a": 1}, "refinement": "m:f", "postEvictor": ["all"]},
         ["refinement", "options"]),
    ],
)  # fmt: skip
def test_keys_of_a_trigger_that_nobody_reads_are_warned_of(
    trigger: dict[str, Any], warned: list[str]
) -> None:
    given = {"refinement": "accumulating", **TIMER, **trigger}
    given = {key: value for key, value in given.items() if value is not None}
    made = windowed(
        {"type": "global"}, given, drop=[key for key in trigger if trigger[key] is None]
    )
    assert [each.path.rpartition(".")[2] for each in notices(made)] == warned


def test_repeats_that_exactly_once_does_not_apply_are_warned_of() -> None:
    (found,) = notices(windowed({"type": "global"}, TIMER, guarantee="exactly-once"))
    assert str(found).startswith("spec.catalog[1].deduplicate: is false under guarantee")


def test_a_time_to_wait_for_the_rest_of_one_segment_is_warned_of() -> None:
    (found,) = notices(parse_mapping(job(batchSize=1, batchTimeout=50)))
    assert str(found).startswith("spec.catalog[1].batchTimeout: has no effect with batchSize: 1")
    assert notices(parse_mapping(job(batchSize=2, batchTimeout=50))) == ()


def test_what_peers_do_when_one_leaves_is_no_key_of_spark() -> None:
    for policy, warned in (("continue", False), ("kill", True), ("recover", True)):
        work = f"{WORK}, groupByKey: k, fluxPolicy: {policy}, minPeers: 1, maxPeers: 1"
        found = notices(parse_manifest(text_of(work=work, more="  engine: spark"), "job.yaml"))
        assert any("fluxPolicy (work)" in each.message for each in found) is warned


@pytest.mark.parametrize(
    ("other", "warned"),
    [
        ({}, True),
        ({"state": {"seen": "list[int]"}}, False),
        ({"state": {"met": "value[int]"}}, False),
        ({"groupByKey": "host"}, False),
    ],
)
def test_states_of_two_tasks_that_look_like_one_are_warned_of(
    other: dict[str, Any], warned: bool
) -> None:
    made = job()
    keyed = {"type": "function", "fn": "m:f", "groupByKey": "user", "fluxPolicy": "continue",
             "state": {"seen": "value[int]"}, "uniquenessKey": "id"}  # fmt: skip
    made["spec"]["workflow"] = [["read", "a"], ["read", "b"], ["a", "write"], ["b", "write"]]
    made["spec"]["catalog"] += [{"name": "a", **keyed}, {"name": "b", **keyed, **other}]
    found = [str(each) for each in notices(parse_mapping(made))]
    said = "spec.catalog[3].state.seen: is another one than that of a: no two tasks share a state"
    assert [each.startswith(said) for each in found] == [True] * warned
    assert all("join: {state: a.seen}" in each for each in found)
