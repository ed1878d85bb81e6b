"""What a processor leaves in its inbox on Spark comes to it once and in time: whatever it leaves,
however rows are dealt to micro-batches, and whoever dies."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.spark.inputs import feed
from tests.support.spark.query import Frames
from tests.support.spark.stream import Worker, written

from onyx.ledger.retry_delay import DEFAULT
from onyx.model.parsing.job import parse_manifest
from onyx.spark_query.tree import Retrying

INPUTS, CLASSES = "tests.support.spark.inputs", "tests.support.spark.processors"
FUNCTIONS = "tests.support.spark.keyed_functions"
EDGES = ("zero", "one")
Part = list[tuple[str, int, int]]
"""Of each row its key, the time since the one before, and how many it needs."""
PARTS = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 9)), max_size=40),
    min_size=1,
    max_size=3,
)
DIES = st.dictionaries(st.integers(1, 9), st.sampled_from(["before the commit", "behind it"]))


@st.composite
def limits(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes that are no part of what a job says."""
    return {
        "sources.NEWS_S": 0.0,
        "sources.BATCH_SEGMENTS_MAX": draw(st.sampled_from([2, 5, 9])),
        "outlet.GATHERED_MAX": draw(st.sampled_from([1, 4, 2048])),
        "folding.inbox.GIVEN_MAX": draw(st.sampled_from([1, 7, 8192])),
        "folding.share_state.WARM_BYTES_MAX": draw(st.sampled_from([0, 1 << 20])),
        "folding.share_state.CHUNKS_MAX": draw(st.sampled_from([1, 2, 8])),
    }


def rows(edge: str, parts: list[Part]) -> dict[str, list[dict[str, Any]]]:
    """The rows of an input by partition, each with a number of its own."""
    found: dict[str, list[dict[str, Any]]] = {}
    for part, its in zip("xyz", parts, strict=False):
        at, found[part] = 0, []
        for n, (key, later, need) in enumerate(its):
            at += later
            found[part].append({"key": key, "at": at, "n": n, "need": need, "part": edge + part})
    return found


def spec(folder: Path, work: dict[str, Any]) -> dict[str, Any]:
    reads = [{"name": name, "type": "input", "plugin": f"{INPUTS}:fed", "watermarkKey": "at",
              "options": {"feed": str(folder / name)}} for name in EDGES]  # fmt: skip
    return {
        "engine": "spark",
        "guarantee": "exactly-once",
        "workflow": [["zero", "work"], ["one", "same"], ["same", "work"], ["work", "out"]],
        "catalog": [
            *reads,
            {"name": "same", "type": "function", "fn": f"{FUNCTIONS}:same"},
            {"name": "work", "type": "function", "processor": f"{CLASSES}:Choosy", **work},
            {"name": "out", "type": "output", "plugin": "files", "options": {"path": "out"}},
        ],
    }


@given(
    st.tuples(PARTS, PARTS),
    st.sampled_from([{}, {"groupByKey": "key", "fluxPolicy": "continue"}]),
    st.sampled_from([{}, {"batchSize": 1}, {"batchSize": 3}]),
    limits(),
    DIES,
    st.integers(0, 1),
)
@settings(max_examples=examples(60), deadline=None)
def test_each_item_is_taken_once_and_none_behind_its_time(
    parts: tuple[list[Part], list[Part]],
    groups: dict[str, Any],
    size: dict[str, Any],
    limits: dict[str, Any],
    deaths: dict[int, str],
    repeats: int,
) -> None:
    given_rows = {edge: rows(edge, its) for edge, its in zip(EDGES, parts, strict=True)}
    with tempfile.TemporaryDirectory() as name, ExitStack() as patched:
        for each, value in limits.items():
            patched.enter_context(mock.patch(f"onyx.spark_query.{each}", value))
        no_rest = (lambda delay_s: None, DEFAULT)
        patched.enter_context(mock.patch.object(Retrying.__init__, "__defaults__", no_rest))
        for edge, its in given_rows.items():
            feed(Path(name) / edge, its, 100, ends=True)
        made = run(Path(name), {**groups, **size}, dict(deaths), Frames(repeats=repeats))
    expected = [
        {**row, "edge": number, "late": False}
        for number, edge in enumerate(EDGES)
        for its in given_rows[edge].values()
        for row in its
    ]
    assert texts(each for each in made if "edge" in each) == texts(expected)
    processors = sum("complete" in each for each in made)
    assert processors == (8 if groups else 1)
    for number, edge in enumerate(EDGES):
        ended = [each["had"] for each in made if each.get("ended") == number]
        assert len(ended) == processors
        assert sum(ended) == sum(map(len, given_rows[edge].values()))


def run(
    folder: Path, work: dict[str, Any], deaths: dict[int, str], frames: Frames
) -> list[dict[str, Any]]:
    """What the job writes, though its worker dies at these micro-batches."""
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "chosen"}}
    job = parse_manifest(json.dumps({**head, "spec": spec(folder, work)}).encode())
    worker = Worker(job, folder, (INPUTS, CLASSES, FUNCTIONS))
    for number, when in sorted(deaths.items()):
        worker.dies = lambda batch, n=number, w=when: w if batch.number == n else ""  # type: ignore[misc]
        worker.run(frames)
    worker.dies = lambda batch: ""
    reply = worker.run(frames)
    assert reply.failure is None, reply.failure
    return written(folder)


def texts(found: Any) -> Counter[str]:
    return Counter(json.dumps(each, sort_keys=True) for each in found)
