"""What a window by Spark may not be, each with its key."""

from __future__ import annotations

from typing import Any

import pytest

from onyx.errors import ManifestError
from onyx.model.parsing.job import parse_mapping


def spec(
    window: dict[str, Any] | None = None,
    trigger: dict[str, Any] | None = None,
    read: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    fixed = {"type": "fixed", "windowKey": "t", "range": [1, "hour"]}
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "sum"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "files", "options": {"path": "in.jsonl"},
             **({"watermarkKey": "t"} if read is None else read)},
            {"name": "sum", "type": "reduce"},
        ],
        "windows": [
            {"id": "w", "task": "sum", "engine": "spark", "aggregation": "count",
             **(fixed if window is None else window)}
        ],
        "triggers": [
            {"windowId": "w", "type": "watermark", "postEvictor": ["all"], "sync": "m:f",
             **(trigger or {})}
        ],
        **more,
    }  # fmt: skip


def problems(job: dict[str, Any]) -> list[str]:
    try:
        parse_mapping(manifest(job))
    except ManifestError as error:
        return [f"{each.path}: {each.message}" for each in error.problems]
    return []


def manifest(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "job"},
        "spec": job,
    }


SLIDING = {"type": "sliding", "windowKey": "t", "range": [2, "hours"], "slide": [1, "hour"]}
SESSION = {"type": "session", "windowKey": "t", "timeoutGap": [1, "hour"]}


@pytest.mark.parametrize(
    "job",
    [
        spec(),
        spec(SLIDING),
        spec(SESSION),
        spec({**spec()["windows"][0], "storageStrategy": ["ordered-log"]}),
        spec({"type": "global"}),
        spec({"type": "global"}, read={}),
        spec({"type": "global", "aggregation": ["max", "v"], "init": 0}),
        spec({"type": "global"}, {"type": "timer", "period": [1, "minute"]}, read={}),
        spec(spark={"master": "local[2]"}),
        spec(trigger={"fireAtEnd": "never"}),
        spec(
            read={"plugin": "m:feed", "watermarkKey": "t"}, engine="spark", upgrade={"from": "old"}
        ),
    ],
)
def test_what_spark_can_express_is_taken(job: dict[str, Any]) -> None:
    assert problems(job) == []


@pytest.mark.parametrize(
    ("job", "found"),
    [
        (
            spec({**SESSION, "allowedLateness": [1, "hour"]}),
            "spec.windows[0].allowedLateness: is for sessions with engine spark",
        ),
        (
            spec({**spec()["windows"][0], "allowedLateness": [1, "hour"]}, read={}),
            "spec.windows[0].allowedLateness: with engine spark needs watermarks of inputs",
        ),
        (spec({"type": "global", "aggregation": "m:f"}), 'spec.windows[0].aggregation: is "m:f"'),
        (
            spec({"type": "global", "aggregation": ["min", "v"], "init": "a"}),
            "spec.windows[0].init: is no number",
        ),
        (
            spec({"type": "global"}, {"type": "segment", "threshold": [5, "elements"]}),
            'spec.triggers[0].type: is "segment", which looks at each segment',
        ),
        (
            spec({"type": "global"}, {"type": "m:f"}),
            'spec.triggers[0].type: is "m:f", which looks at each segment',
        ),
        (spec(read={}), "spec.triggers[0].type: is watermark, but no input assigns watermarks"),
        (
            spec(trigger={"refinement": "m:f", "postEvictor": ["none"]}),
            'spec.triggers[0].refinement: is "m:f", which changes states in Python',
        ),
        (spec(trigger={"fireAtEnd": "changed"}), "spec.triggers[0].fireAtEnd: is changed, but"),
        (spec(upgrade={"from": "old"}), "spec.windows[0].engine: is spark in a job that upgrades"),
        (
            spec(upgradePolicy="KeepState"),
            "spec.windows[0].engine: is spark, but upgradePolicy is KeepState",
        ),
        (
            {**spec(), "guarantee": "at-most-once"},
            "spec.windows[0].engine: is spark under guarantee at-most-once",
        ),
    ],
)
def test_what_spark_cannot_express_is_refused_with_its_key(job: dict[str, Any], found: str) -> None:
    assert any(each.startswith(found) for each in problems(job)), problems(job)


def test_a_window_has_one_trigger_by_watermarks() -> None:
    job = spec()
    job["triggers"] = [{**job["triggers"][0], "id": f"t{n}"} for n in range(2)]
    assert problems(job)[0].startswith("spec.triggers[1].type: is the second trigger")
