"""A join of two streams on Spark gives what a plain nested loop gives over the rows that are not
late: in both formats, as one query and in micro-batches, whoever dies."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.spark.inputs import feed
from tests.support.spark.query import Frames, publish_all, request_of, run_query
from tests.support.spark.stream import Worker
from tests.support.stream_joins import Plain, counted

from onyx.model.parsing.job import parse_manifest

INPUTS, FUNCTIONS = "tests.support.spark.inputs", "tests.support.spark.functions"
DISORDER = 4
KEYS = [0, 1, 2, "a", "b", None]
LEFT, RIGHT = "left", "right"
Row = dict[str, Any]
Rows = list[Row]
Deaths = list[tuple[int, str]]


@dataclass(frozen=True)
class Case:
    """A join, and how its rows are dealt."""

    plain: Plain
    columns: bool
    ends: bool
    """One query, over inputs that have an end; or micro-batches."""
    a_read: int
    a_batch: int
    buckets: int
    dies: Deaths
    warm: int

    def reads(self, rows: Rows) -> Iterator[Rows]:
        """The rows of each read."""
        for batch in [rows] if self.ends else batched(rows, self.a_batch):
            yield from batched(batch, self.a_read)


def batched(rows: Rows, most: int) -> Iterator[Rows]:
    for first in range(0, len(rows), most):
        yield rows[first : first + most]


DIES = st.tuples(st.integers(1, 6), st.sampled_from(["before the commit", "behind it"]))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    how = draw(st.sampled_from(["inner", "left", "right", "outer", "asof"]))
    plain = Plain(how, (("k",), ("k",)), prefixes=("", "r_"))
    if how == "asof":
        plain = replace(plain, before=draw(st.none() | st.integers(0, 20)))
    elif draw(st.booleans()):
        plain = replace(plain, range=draw(st.integers(1, 20)))
    else:
        plain = replace(plain, before=draw(st.integers(0, 15)), after=draw(st.integers(0, 15)))
    return Case(
        plain,
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(1, 7)),
        draw(st.integers(1, 12)),
        draw(st.integers(1, 3)),
        draw(st.lists(DIES, max_size=2)),
        draw(st.sampled_from([0, 1 << 20])),
    )


@st.composite
def rows(draw: st.DrawFn, behind_max: int = DISORDER, least: int = 0) -> Rows:
    """Rows of both sides, each at a time of its own and not further behind than that."""
    kinds = draw(st.sampled_from([KEYS[:3], KEYS[3:5], [*KEYS[:2], None]]))
    times = sorted(draw(st.sets(st.integers(0, 60), min_size=least, max_size=40)))
    found = [
        {"at": at, "n": n, "k": draw(st.sampled_from(kinds)),
         "side": draw(st.sampled_from([LEFT, RIGHT]))}
        for n, at in enumerate(times)
    ]  # fmt: skip
    return sorted(found, key=lambda row: row["at"] + draw(st.integers(0, behind_max)))


def join(case: Case, left: str, right: str, name: str = "both") -> dict[str, Any]:
    plain, span = case.plain, dict[str, Any]()
    if plain.range is not None:
        span = {"range": [plain.range, "milliseconds"]}
    elif plain.how == "asof" and plain.before is not None:
        span = {"within": {"before": [plain.before, "milliseconds"]}}
    elif plain.how != "asof":
        around = {"before": plain.before, "after": plain.after}
        span = {"within": {key: [value, "milliseconds"] for key, value in around.items()}}
    return {
        "name": name, "type": "join", "how": plain.how, "lateTo": "late", **span,
        "left": {"task": left, "key": "k", "at": "at"},
        "right": {"task": right, "key": "k", "at": "at", "prefix": plain.prefixes[1]},
    }  # fmt: skip


def read(case: Case, name: str, partitions: Mapping[str, Rows], folder: Path) -> dict[str, Any]:
    entry = {"name": name, "type": "input", "watermarkKey": "at",
             "allowedDisorder": [DISORDER, "milliseconds"]}  # fmt: skip
    if case.ends:
        (only,) = partitions.values()
        options: dict[str, Any] = {"segments": only}
        return entry | {"plugin": "sequence", "batchSize": case.a_read, "options": options}
    feed(folder / name, dict(partitions), 100, ends=True)
    options = {"feed": str(folder / name), "aRead": case.a_read}
    return entry | {"plugin": f"{INPUTS}:fed", "options": options}


def outputs() -> list[dict[str, Any]]:
    return [
        {"name": name, "type": "output", "plugin": "files",
         "options": {"path": name, "format": "jsonl"}}
        for name in ("write", "late")
    ]  # fmt: skip


def results(
    case: Case, folder: Path, catalog: Sequence[dict[str, Any]], edges: list[list[str]],
    conditions: Sequence[dict[str, Any]] = (),
) -> tuple[Rows, Rows]:  # fmt: skip
    """What is written of the last task, and what was late."""
    last = catalog[-1]["name"]
    form = {"batchFormat": "arrow"} if case.columns else {}
    spec = {
        "guarantee": "exactly-once",
        "workflow": [*edges, [last, "write"], [last, "late"]],
        "flowConditions": conditions,
        "catalog": [{**entry, **form} for entry in (*catalog, *outputs())],
    }
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "made"}}
    job = parse_manifest(json.dumps({**head, "spec": {**spec, "engine": "spark"}}).encode())
    modules = (INPUTS, FUNCTIONS)
    if case.ends:
        request = request_of(job, folder, modules)
        reply = run_query(request, Frames(case.buckets))
        assert reply.failure is None, reply.failure
        publish_all(request, reply)
    else:
        in_micro_batches(case, Worker(job, folder, modules))
    return written(folder / "write"), written(folder / "late")


def in_micro_batches(case: Case, worker: Worker) -> None:
    sources = "onyx.spark_query.sources."
    with (
        mock.patch(f"{sources}BATCH_SEGMENTS_MAX", case.a_batch),
        mock.patch(f"{sources}NEWS_S", 0.0),
        mock.patch("onyx.spark_query.folding.share_state.WARM_BYTES_MAX", case.warm),
    ):
        for number, when in case.dies:
            worker.dies = lambda batch, n=number, w=when: w if batch.number == n else ""  # type: ignore[misc]
            worker.run(buckets=case.buckets)
        worker.dies = lambda batch: ""
        reply = worker.run(buckets=case.buckets)
        assert reply.failure is None, reply.failure


def written(folder: Path) -> Rows:
    texts = [path.read_text() for path in folder.glob("part-*")]
    return [json.loads(line) for text in texts for line in text.splitlines()]


@given(cases(), rows(), st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_two_inputs_meet_as_in_a_nested_loop(case: Case, all_rows: Rows, split: bool) -> None:
    sides = {side: [row for row in all_rows if row["side"] == side] for side in (LEFT, RIGHT)}
    several = split and not case.ends
    parts = {
        side: {"a": its[::2], "b": its[1::2]} if several else {"a": its}
        for side, its in sides.items()
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = [read(case, side, parts[side], folder) for side in (LEFT, RIGHT)]
        edges = [[LEFT, "both"], [RIGHT, "both"]]
        made, late = results(case, folder, [*inputs, join(case, LEFT, RIGHT)], edges)
    assert late == []
    assert counted(made) == counted(case.plain.join(sides[LEFT], sides[RIGHT]))


@pytest.mark.slow
@given(cases(), rows(), rows(), st.integers(0, 15))
@settings(max_examples=examples(40), deadline=None)
def test_a_join_of_what_a_join_has_made_finds_no_row_late(
    case: Case, all_rows: Rows, others: Rows, within: int
) -> None:
    assume(case.plain.how not in ("right", "outer"))  # whose rows may have no time of the left side
    sides = {side: [row for row in all_rows if row["side"] == side] for side in (LEFT, RIGHT)}
    again = Plain("left", (("k",), ("k",)), within, within, prefixes=("", "s_"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        catalog = [
            *(read(case, side, {"a": its}, folder) for side, its in sides.items()),
            read(case, "others", {"a": others}, folder),
            join(case, LEFT, RIGHT) | {"lateTo": "never"},
            {"name": "never", "type": "output", "plugin": "files", "options": {"path": "never"}},
            join(replace(case, plain=again), "both", "others", "twice"),
        ]
        edges = [[LEFT, "both"], [RIGHT, "both"], ["both", "never"], ["both", "twice"],
                 ["others", "twice"]]  # fmt: skip
        made, late = results(case, folder, catalog, edges)
    assert late == []
    once = case.plain.join(sides[LEFT], sides[RIGHT])
    assert counted(made) == counted(again.join(once, others))


@given(cases(), rows(behind_max=5 * DISORDER, least=12))
@settings(max_examples=examples(100), deadline=None)
def test_rows_behind_the_watermark_go_apart_and_all_others_meet(case: Case, all_rows: Rows) -> None:
    """Both sides come from one input, whose reads say where the watermark is."""
    late: Rows = []
    there: dict[str, Rows] = {LEFT: [], RIGHT: []}
    newest = -(2**40)
    for its in case.reads(all_rows):
        for row in its:
            behind = is_late(case.plain, row["at"], newest - DISORDER)
            (late if behind else there[row["side"]]).append(row)
        newest = max(newest, *(row["at"] for row in its))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        catalog = [
            read(case, "read", {"a": all_rows}, folder),
            *({"name": side, "type": "function", "fn": f"{FUNCTIONS}:same"}
              for side in (LEFT, RIGHT)),
            join(case, LEFT, RIGHT),
        ]  # fmt: skip
        edges = [["read", LEFT], ["read", RIGHT], [LEFT, "both"], [RIGHT, "both"]]
        apart = [{"from": "read", "to": [side], "predicate": ["==", "side", side]}
                 for side in (LEFT, RIGHT)]  # fmt: skip
        made, found = results(case, folder, catalog, edges, apart)
    assert counted(found) == counted(late)
    assert counted(made) == counted(case.plain.join(there[LEFT], there[RIGHT]))


def is_late(plain: Plain, time: int, watermark: int) -> bool:
    if plain.range is not None:
        return time // plain.range < watermark // plain.range
    return time < watermark
