"""Jobs made by hypothesis that must write the same rows on either engine.

What depends on the order in which partitions are read is left out: where a trigger counts segments
there is one partition, and where event time matters segments come in its order, or the allowed
disorder has room for all of them.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from tests.support.spark import functions as spark_functions

from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest

MODULE = spark_functions.__name__
RANGE, END = 60, 720
Spec = dict[str, Any]
DOES: list[Spec] = [
    *({"fn": f"{MODULE}:{name}"} for name in ("spread", "fails", "busy")),
    {"sql": "select * replace (v * 2 as v), key || '!' as cried from segments where v > 1"},
    {"sql": "select *, unnest(range(v % 3)) as copy from segments"},
    {"sql": "select * replace (case v when 7 then error('seven') else v end as v) from segments"},
]
"""What the task in the middle may do."""
COMPARED: list[Any] = [
    ["in", "key", ["a", "b"]], [">=", "v", 3], ["!=", "v", 0], ["sql", "v % 2 = 0 or key = 'c'"],
]  # fmt: skip

segments = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b", "c"]),
            "at": st.integers(0, END),
            "v": st.integers(0, 9),
        }
    ),
    max_size=30,
)


@st.composite
def windows(draw: st.DrawFn) -> Spec:
    """A window over `at`, with what it takes of its type."""
    kind = draw(st.sampled_from(["fixed", "sliding", "session", "global"]))
    made: Spec = {"id": "window", "task": "fold", "type": kind}
    made["aggregation"] = draw(
        st.sampled_from(["count", ["sum", "v"], ["min", "v"], ["max", "v"], ["average", "v"]])
    )
    if made["aggregation"][0] in ("min", "max"):
        made["init"] = 5
    if kind != "global":
        made["windowKey"] = "at"
    if kind == "session":
        made["timeoutGap"] = [draw(st.integers(5, 60)), "milliseconds"]
    elif kind != "global":
        made["range"] = [RANGE, "milliseconds"]
    if kind == "sliding":
        made["slide"] = [draw(st.sampled_from([20, 30, 60])), "milliseconds"]
    return made


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A workflow: read, perhaps a function with conditions, perhaps groups or a window, write."""
    read, columns = draw(segments), draw(st.booleans())
    sorted_ones, counting = draw(st.booleans()), draw(st.booleans())
    if sorted_ones:
        read.sort(key=lambda each: each["at"])
    source: Spec = {
        "name": "read", "type": "input", "plugin": "sequence",
        "batchFormat": "arrow" if columns else "dicts", "batchSize": draw(st.integers(1, 8)),
        "watermarkKey": "at", "allowedDisorder": [0 if sorted_ones else END, "milliseconds"],
        "options": {"segments": read, "partitions": 1 if counting else draw(st.integers(1, 3))},
    }  # fmt: skip
    out = {"type": "output", "plugin": "files", "options": {"path": "out"}}
    catalog = [source, {"name": "write", **out}]
    workflow, last = [], "read"
    conditions: list[Spec] = []
    if draw(st.booleans()):
        catalog += [
            {"name": "work", "type": "function", "deadLetter": "other",
             **draw(st.sampled_from(DOES))},
            {"name": "other", **out},
        ]  # fmt: skip
        workflow, last = [["read", "work"], ["work", "other"]], "work"
        conditions = _conditions(draw)
    fold = draw(st.sampled_from([None, "grouped", "ungrouped"]))
    spec: Spec = {"guarantee": "exactly-once"}
    if fold is None:
        spec["workflow"] = [*workflow, [last, "write"]]
    else:
        spec["workflow"] = [*workflow, [last, "fold"], ["fold", "write"]]
        grouped = {"groupByKey": "key", "fluxPolicy": "continue"} if fold == "grouped" else {}
        catalog.append({"name": "fold", "type": "reduce", **grouped})
        spec["windows"] = [draw(windows())]
        spec["triggers"] = [_trigger(draw, counting, spec["windows"][0]["type"])]
    if conditions:
        to = "write" if fold is None else "fold"
        spec["flowConditions"] = [
            {**each, "to": [to]} if each["to"] == "next" else each for each in conditions
        ]
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "made"}}
    return parse_manifest(json.dumps({**head, "spec": {**spec, "catalog": catalog}}).encode())


def _conditions(draw: st.DrawFn) -> list[Spec]:
    found: list[Spec] = []
    if draw(st.booleans()):
        found.append(
            {"from": ["work"], "to": "none", "predicate": f"{MODULE}:is_busy", "action": "retry",
             "thrownException": True, "shortCircuit": True, "maxRetries": 2}
        )  # fmt: skip
    if draw(st.booleans()):
        found.append({"from": ["work"], "to": "next", "predicate": ["<", "v", 6]})
    compared = draw(st.sampled_from(COMPARED))
    found.append({"from": ["work"], "to": ["other"], "predicate": compared, "excludeKeys": ["at"]})
    return found


def _trigger(draw: st.DrawFn, counting: bool, kind: str) -> Spec:
    made: Spec = {"windowId": "window", "emit": f"{MODULE}:extent"}
    if counting or kind == "global":
        refinement = draw(st.sampled_from(["accumulating", "discarding"]))
        many = draw(st.integers(1, 5)) if counting else 1_000
        made |= {"type": "segment", "threshold": [many, "elements"], "refinement": refinement}
        return made
    # An extent that stays fires once more at the end, perhaps before the last watermark is heard.
    return {**made, "type": "watermark", "postEvictor": ["all"]}
