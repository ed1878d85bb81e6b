"""Queries over jobs made by hypothesis give the rows of a plain loop, however their segments are
dealt to partitions and buckets."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.spark.query import Frames, publish_all, request_of, run_query

from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.spark.compiler.compile import compile_job
from onyx.spark.compiler.plan import Plan

RANGE, MODULE = 60, "tests.support.spark.functions"
Segments = list[dict[str, Any]]
segments = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b", "c", 1, 1.5, None]),
            "at": st.integers(RANGE, RANGE * 12),
            "v": st.integers(0, 9),
        }
    ),
    max_size=40,
)


def parsed(spec: dict[str, Any]) -> Job:
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "made"}}
    return parse_manifest(json.dumps({**head, "spec": spec}).encode())


def planned(spec: dict[str, Any]) -> Plan:
    return compile_job(parsed(spec))


def query(spec: dict[str, Any], buckets: int, combine: bool = True) -> Segments:
    """What the task `write` of a job has written."""
    job = parsed(spec)
    with tempfile.TemporaryDirectory() as folder:
        request = request_of(job, Path(folder), (MODULE,), combine=combine)
        reply = run_query(request, Frames(buckets))
        assert reply.failure is None, reply.failure
        publish_all(request, reply)
        parts = sorted(Path(folder).glob("out/part-*"))
        return [json.loads(line) for each in parts for line in each.read_text().splitlines()]


def source(read: Segments, partitions: int, columns: bool, disorder: int) -> dict[str, Any]:
    return {
        "name": "read", "type": "input", "plugin": "sequence",
        "batchFormat": "arrow" if columns else "dicts", "batchSize": 3,
        "watermarkKey": "at", "allowedDisorder": [disorder, "milliseconds"],
        "options": {"segments": read, "partitions": partitions},
    }  # fmt: skip


WRITE = {"name": "write", "type": "output", "plugin": "files", "options": {"path": "out"}}


@given(
    segments, st.integers(1, 4), st.integers(1, 5), st.booleans(), st.integers(0, 200),
    st.sampled_from([RANGE, RANGE // 2, RANGE // 3]), st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(30), deadline=None)
def test_windows_sum_what_a_plain_loop_sums(
    read: Segments, partitions: int, buckets: int, columns: bool, disorder: int, slide: int,
    chained: bool,
) -> None:  # fmt: skip
    columns &= all(type(each["key"]) is str for each in read)
    window: dict[str, Any] = {
        "id": "sums", "task": "sum", "type": "sliding", "windowKey": "at",
        "range": [RANGE, "milliseconds"], "slide": [slide, "milliseconds"],
        "aggregation": ["sum", "v"],
    }  # fmt: skip
    trigger: dict[str, Any] = {
        "windowId": "sums", "type": "watermark", "refinement": "discarding",
        "emit": f"{MODULE}:extent",
    }  # fmt: skip
    spec: dict[str, Any] = {
        "guarantee": "exactly-once",
        "workflow": [["read", "sum"], ["sum", "write"]],
        "catalog": [
            source(read, partitions, columns, disorder),
            {"name": "sum", "type": "reduce", "groupByKey": "key", "fluxPolicy": "continue"},
            WRITE,
        ],
        "windows": [window],
        "triggers": [trigger],
    }
    if chained:  # a second shuffle, of what the first windows emit
        spec["workflow"] = [["read", "sum"], ["sum", "again"], ["again", "write"]]
        spec["catalog"].append(
            {"name": "again", "type": "reduce", "groupByKey": "group", "fluxPolicy": "continue"}
        )
        again = {"id": "totals", "task": "again", "type": "global", "aggregation": ["sum", "value"]}
        fires = {"windowId": "totals", "type": "segment", "threshold": [5, "elements"]}
        spec["windows"].append(again)
        spec["triggers"].append(trigger | fires)
    expected: Counter[Any] = Counter()
    for each in read:
        first = (each["at"] - RANGE) // slide + 1
        for number in range(first, each["at"] // slide + 1):
            expected[json.dumps(each["key"]), None if chained else number * slide] += each["v"]
    found: Counter[Any] = Counter()
    for row in query(spec, buckets):
        lower = None if chained else row["lower"]
        found[json.dumps(row["group"]), lower] += row["value"]
    assert +found == +expected


WINDOWS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["fixed", "sliding", "global"]),
        "aggregation": st.sampled_from(
            ["count", ["sum", "v"], ["max", "v"], ["min", "v"], ["average", "v"]]
        ),
        "allowedLateness": st.sampled_from([None, 0, RANGE, RANGE * 20]),
    }
)


@given(
    segments, st.integers(1, 4), st.integers(1, 5), st.booleans(), st.integers(0, RANGE * 12),
    WINDOWS, st.sampled_from(["discarding", "accumulating"]), st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(25), deadline=None)
def test_windows_combined_before_the_shuffle_fire_what_they_fire_behind_it(
    read: Segments, partitions: int, buckets: int, grouped: bool, disorder: int,
    window: dict[str, Any], refinement: str, ordered: bool,
) -> None:  # fmt: skip
    read = sorted(read, key=lambda each: each["at"]) if ordered else read
    lateness, windowed = window["allowedLateness"], window["type"] != "global"
    window = {"id": "sums", "task": "sum", "init": 5, **window}
    if window["aggregation"][0] not in ("max", "min"):
        del window["init"]
    del window["allowedLateness"]
    if windowed:
        window |= {"windowKey": "at", "range": [RANGE, "milliseconds"]}
        window |= {} if lateness is None else {"allowedLateness": [lateness, "milliseconds"]}
    if window["type"] == "sliding":
        window["slide"] = [RANGE // 2, "milliseconds"]
    spec: dict[str, Any] = {
        "guarantee": "exactly-once",
        "workflow": [["read", "sum"], ["sum", "write"]],
        "catalog": [
            source(read, partitions, False, disorder),
            {"name": "sum", "type": "reduce"}
            | ({"groupByKey": "key", "fluxPolicy": "continue"} if grouped else {}),
            WRITE,
        ],
        "windows": [window],
        "triggers": [
            {"windowId": "sums", "type": "watermark", "refinement": refinement,
             "emit": f"{MODULE}:extent"}
        ],
    }  # fmt: skip
    assert planned(spec).exchanges[0].combined
    assert in_order(query(spec, buckets)) == in_order(query(spec, buckets, combine=False))


@given(segments, st.integers(1, 4), st.integers(1, 5), st.booleans())
@settings(max_examples=examples(20), deadline=None)
def test_functions_and_conditions_give_each_child_what_a_plain_loop_does(
    read: Segments, partitions: int, buckets: int, grouped: bool
) -> None:
    spread: dict[str, Any] = {"name": "spread", "type": "function", "fn": f"{MODULE}:spread"}
    if grouped:
        spread |= {"groupByKey": "key", "fluxPolicy": "continue"}
    rows = query(
        {
            "workflow": [["read", "spread"], ["spread", "write"], ["spread", "drop"]],
            "catalog": [
                source(read, partitions, False, 0),
                spread,
                WRITE,
                {"name": "drop", "type": "output", "plugin": "blackhole"},
            ],
            "flowConditions": [
                {"from": ["spread"], "to": ["write"], "predicate": [">=", "at", RANGE * 5],
                 "excludeKeys": ["at"]},
                {"from": ["spread"], "to": ["drop"], "predicate": ["<", "at", RANGE * 5]},
            ],
        },
        buckets,
    )  # fmt: skip
    expected = [
        {"key": each["key"], "v": each["v"], "copy": copy}
        for each in read
        if each["at"] >= RANGE * 5
        for copy in range(each["v"] % 3)
    ]
    assert in_order(rows) == in_order(expected)


def in_order(rows: Segments) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in rows)
