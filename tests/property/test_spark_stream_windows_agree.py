"""Windows in micro-batches fire what windows of peers fire, however their segments are dealt to
batches and partitions, whoever dies, and whatever processes remember."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.spark.functions import fired
from tests.support.spark.inputs import feed
from tests.support.spark.stream import Worker, written
from tests.support.windows.model import done, texts
from tests.support.windows.short import task_windows

from onyx.keystate.groups import hashable_keys
from onyx.model.parsing.job import parse_manifest
from onyx.windows.firing import Firing

INPUTS, FUNCTIONS = "tests.support.spark.inputs", "tests.support.spark.functions"
MODEL = "tests.support.windows.model"
CALLS = {f"{MODEL}:done": done, f"{MODEL}:texts": texts}
DISORDER = 4
GROUPS = ["a", "b", "c", None, 7]
SHAPES = [
    {"type": "fixed", "range": (10, "milliseconds")},
    {"type": "sliding", "range": (10, "milliseconds"), "slide": (4, "milliseconds")},
    {"type": "session", "timeoutGap": (5, "milliseconds")},
]
EVER = {"type": "global"}
ORDERED = [{"aggregation": "conj"}, {"aggregation": ("collect-by-key", "v")},
           {"aggregation": f"{MODEL}:texts"}]  # fmt: skip
UNORDERED = [{"aggregation": "count"}, {"aggregation": ("sum", "v")},
             {"aggregation": ("max", "v"), "init": -9},
             {"aggregation": ("average", "v")}]  # fmt: skip
FORGETTING = [{"refinement": "discarding"}, {"postEvictor": ["all"]}]
BY_SEGMENT = [{"type": "segment", "threshold": (2, "elements")},
              {"type": "punctuation", "pred": f"{MODEL}:done"}]  # fmt: skip
Rows = list[dict[str, Any]]


@st.composite
def segments(draw: st.DrawFn) -> Rows:
    steps = draw(st.lists(st.integers(0, 6), min_size=1, max_size=40))
    now, found = 0, []
    for step in steps:
        now += step
        found.append(
            {"at": max(0, now - draw(st.integers(0, DISORDER))), "v": draw(st.integers(-5, 5)),
             "key": draw(st.sampled_from(GROUPS)), "done": draw(st.booleans())}
        )  # fmt: skip
    return found


@st.composite
def declared(draw: st.DrawFn, several: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """A window and its trigger; of several partitions the order is nobody's."""
    shapes = SHAPES if several else [*SHAPES, EVER]
    window = draw(st.sampled_from(shapes)) | draw(
        st.sampled_from(UNORDERED if several else [*UNORDERED, *ORDERED])
    )
    if window["type"] == "session" and window["aggregation"] == f"{MODEL}:texts":
        window |= {"aggregation": "conj"}
    if window["type"] != "global" and draw(st.booleans()):
        window["allowedLateness"] = (draw(st.integers(0, 9)), "milliseconds")
    if several or (window["type"] != "global" and draw(st.booleans())):
        kind = {"type": "watermark"}
    else:
        kind = draw(st.sampled_from(BY_SEGMENT)) | {"fireAllExtents": draw(st.booleans())}
    at_end = (
        ["always", "changed"] if kind["type"] == "watermark" else ["always", "changed", "never"]
    )
    kind |= {"fireAtEnd": draw(st.sampled_from(at_end))}
    after = [*FORGETTING] if several else [*FORGETTING, {"refinement": "accumulating"}]
    return window, {**kind, **draw(st.sampled_from(after))}


def manifest(
    window: dict[str, Any], trigger: dict[str, Any], grouped: bool, folder: Path, a_read: int
) -> bytes:
    group = {"groupByKey": "key", "fluxPolicy": "continue"} if grouped else {}
    spec = {
        "guarantee": "exactly-once",
        "workflow": [["read", "fold"], ["fold", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": f"{INPUTS}:fed", "watermarkKey": "at",
             "allowedDisorder": [DISORDER, "milliseconds"],
             "options": {"feed": str(folder / "feed"), "aRead": a_read}},
            {"name": "fold", "type": "reduce", **group},
            {"name": "write", "type": "output", "plugin": "files",
             "options": {"path": "out", "format": "jsonl"}},
        ],
        "windows": [{"id": "w", "task": "fold", "windowKey": "at", **window}],
        "triggers": [{"windowId": "w", "emit": f"{FUNCTIONS}:fired", **trigger}],
    }  # fmt: skip
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "made"}}
    return json.dumps({**head, "spec": spec}).encode()


def in_micro_batches(
    job: bytes, folder: Path, a_batch: int, buckets: int, dies: list[tuple[int, str]], warm: int
) -> Counter[str]:
    worker = Worker(parse_manifest(job), folder, (INPUTS, FUNCTIONS, MODEL))
    sources = "onyx.spark_query.sources."
    with (
        mock.patch(f"{sources}BATCH_SEGMENTS_MAX", a_batch),
        mock.patch(f"{sources}NEWS_S", 0.0),
        mock.patch("onyx.spark_query.folding.share_state.WARM_BYTES_MAX", warm),
    ):
        for number, when in dies:
            worker.dies = lambda batch, n=number, w=when: w if batch.number == n else ""  # type: ignore[misc]
            worker.run(buckets=buckets)
        worker.dies = lambda batch: ""
        reply = worker.run(buckets=buckets)
        assert reply.failure is None, reply.failure
    return Counter(each["fired"] for each in written(folder))


def on_peers(
    window: dict[str, Any], trigger: dict[str, Any], grouped: bool, reads: Iterable[Rows],
    disorder: int,
) -> Counter[str]:  # fmt: skip
    """What windows of a peer fire: event time advances behind each read."""
    names = {"timeoutGap": "timeout_gap", "allowedLateness": "allowed_lateness",
             "fireAllExtents": "fire_all_extents", "fireAtEnd": "fire_at_end",
             "postEvictor": "post_evictor"}  # fmt: skip
    its, fires = ({names.get(key, key): tuple(value) if isinstance(value, list) else value
                   for key, value in each.items()} for each in (window, trigger))  # fmt: skip
    windows = task_windows((its, [fires]), group_by="key" if grouped else None, functions=CALLS)
    windows.restore(0, [])
    found: list[Firing] = []
    newest = -1
    for read in reads:
        for each in read:
            keys = hashable_keys([each["key"]]) if grouped else None
            added = windows.add([dict(each)], keys, 0)
            assert not added.late
            found += added.firings
            newest = max(newest, each["at"])
        found += [one for page in windows.advance(newest - disorder) for one in page]
    found += [one for page in windows.complete([0], 0) for one in page]
    return Counter(
        fired({}, one.window, one.trigger, one.state_event(), one.state)["fired"] for one in found
    )


def reads_of(rows: Rows, a_batch: int, a_read: int) -> Iterator[Rows]:
    """The reads of each micro-batch."""
    for batch in batched(rows, a_batch):
        yield from batched(batch, a_read)


def batched(rows: Rows, most: int) -> Iterator[Rows]:
    for first in range(0, len(rows), most):
        yield rows[first : first + most]


DIES = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from(["before the commit", "behind it"])), max_size=2
)


@given(st.data(), segments(), st.booleans(), st.integers(1, 12), st.integers(1, 5),
       st.integers(1, 3), DIES, st.sampled_from([0, 1 << 20]))  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_each_group_fires_what_it_fires_on_peers(
    data: st.DataObject, read: Rows, grouped: bool, a_batch: int, a_read: int, buckets: int,
    dies: list[tuple[int, str]], warm: int,
) -> None:  # fmt: skip
    window, trigger = data.draw(declared(several=False))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        feed(folder / "feed", {"a": read}, len(read), ends=True)
        job = manifest(window, trigger, grouped, folder, a_read)
        found = in_micro_batches(job, folder, a_batch, buckets, dies, warm)
    assert found == on_peers(window, trigger, grouped, reads_of(read, a_batch, a_read), DISORDER)


@given(st.data(), segments(), segments(), st.booleans(), st.integers(1, 12), st.integers(1, 3),
       DIES)  # fmt: skip
@settings(max_examples=examples(25), deadline=None)
def test_watermarks_of_several_partitions_pass_what_they_pass_on_peers(
    data: st.DataObject, one: Rows, other: Rows, grouped: bool, a_batch: int, buckets: int,
    dies: list[tuple[int, str]],
) -> None:  # fmt: skip
    window, trigger = data.draw(declared(several=True))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        feed(folder / "feed", {"a": one, "b": other}, 100, ends=True)
        job = manifest(window, trigger, grouped, folder, 3)
        found = in_micro_batches(job, folder, a_batch, buckets, dies, 1 << 20)
    together = sorted([*one, *other], key=lambda each: each["at"])
    assert found == on_peers(window, trigger, grouped, batched(together, 1), 0)
