"""The jobs that `spark_faults` runs: how each kind uses Spark, who may die in it, and what it must
have written.

Their functions are slow, so that there is a middle to die in. Every segment is computed from its
number, so what a job has to write is a plain loop.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from tests.chaos import spark_job
from tests.support.jobs.exactly_once import compare

SEGMENTS, PARTITIONS = 2_000, 2
RATE_PER_SECOND = 100
"""Of each partition of what comes in time."""
BUNDLE_SEGMENTS = 400
RANGE_MS = 500
"""Of a window: four extents."""
HELD_S = 60.0
"""Longest time for which a micro-batch is held between its commit and its publication."""
JVM, PYTHON = "SparkSubmit", "pyspark.daemon"
QUERY, CHILD = "onyx.spark_query", "onyx.spark.child.serve"
HELD = f"""
import pathlib, os, sys, time

def hold(publish):
    def held(*arguments):
        notes = pathlib.Path(os.environ[{spark_job.NOTES!r}])
        if (notes.parent / "hold").exists():
            (notes / "committed").touch()
            until_s = time.monotonic() + {HELD_S}
            while (notes.parent / "hold").exists() and time.monotonic() < until_s:
                time.sleep(0.02)
        return publish(*arguments)
    return held

if "onyx.peer.group" in sys.modules:
    from onyx.spark.driver.outputs import Outputs
    Outputs.publish = hold(Outputs.publish)
"""
"""Of the module of the jobs, for workers alone: queries of Spark and its Python workers import that
too."""
Row = tuple[int, ...]
Happened = Callable[[], bool]


@dataclass(frozen=True)
class Kind:
    """One way to use Spark."""

    spec: Callable[[Path], dict[str, Any]]
    """Of a job that writes to a folder, without its master."""
    expected: Mapping[str, Counter[Row]]
    """By folder of an output, what is written there."""
    victims: Mapping[str, str]
    """Who may die, and what the command line of that process has; empty: found otherwise."""
    driver: str = CHILD
    """What the command line of the process has that drives Spark."""
    moments: tuple[str, ...] = ("begun", "working")
    """At which anybody may die."""
    of_worker: tuple[str, ...] = ("ending",)
    """At which only the worker may."""
    working_s: float = 2.0
    """Longest delay between the moment "working" and a kill."""
    connect: bool = False
    """Whether the master is a Spark Connect server."""
    master: Callable[[dict[str, Any], str], None] = lambda spec, master: spec.update(
        spark={"master": master, "sparkConf": {"spark.sql.shuffle.partitions": "2"}}
    )
    """Puts the master into the spec."""


def prepared(folder: Path) -> Path:
    """The module of the jobs, with what holds a micro-batch between its commit and its
    publication."""
    code = folder / "code"
    code.mkdir()
    source = Path(spark_job.__file__)
    (code / source.name).write_text(source.read_text() + HELD)
    return code / source.name


def manifest(name: str, folder: Path, master: str) -> dict[str, Any]:
    """A job of a kind, which writes to a folder."""
    kind = KINDS[name]
    spec = {"guarantee": "exactly-once", **kind.spec(folder)}
    kind.master(spec, master)
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": f"faults-{name}"},
        "spec": spec,
    }


def check(name: str, folder: Path) -> None:
    """Raises AssertionError: the outputs are not what they must be, as multisets."""
    for output, expected in KINDS[name].expected.items():
        parts = (folder / output).glob("part-*")
        rows = (json.loads(line) for part in parts for line in part.read_text().splitlines())
        compare(Counter(tuple(row[key] for key in sorted(row)) for row in rows), expected)


def sign(name: str, moment: str, folder: Path, state: Path, notes: Path, query: int) -> Happened:
    """Whether a moment has come since now.

    Args:
        folder: of the job.
        state: where workers keep theirs.
        query: process id of what drives Spark.
    """
    if moment == "ending" and name == "job":  # whose process ends with its reply
        return lambda: not psutil.pid_exists(query)
    if moment in ("working", "committed") and name != "window":
        return lambda: any(notes.glob("committed" if moment == "committed" else "[0-9]*"))
    place, pattern = {
        "stage": (folder, "out/**/.staging/**/part-*.json"),
        "connect": (folder, "out/**/.staging/**/part-*.json"),
        "middle": (folder, "bundles/*/results/0*"),
        "window": (state, "**/r-*/_temporary" if moment == "working" else "**/r-*/_SUCCESS"),
    }[name]

    def found() -> set[Path]:
        with contextlib.suppress(
            FileNotFoundError
        ):  # a folder of a job that has ended goes just now
            return set(place.glob(pattern))
        return set()

    before = found()
    return lambda: bool(found() - before)


def _read(**more: Any) -> dict[str, Any]:
    options = {"segments": SEGMENTS, "partitions": PARTITIONS, "fn": "spark_job:row", **more}
    return {"name": "read", "type": "input", "plugin": "generator", "batchSize": 100,
            "options": options}  # fmt: skip


def _files(name: str, folder: Path) -> dict[str, Any]:
    options = {"path": str(folder / name), "format": "jsonl"}
    return {"name": name, "type": "output", "plugin": "files", "options": options}


def _job(folder: Path) -> dict[str, Any]:
    return {
        "engine": "spark",
        "workflow": [["read", "slow"], ["slow", "sum"], ["slow", "each"], ["sum", "out"]],
        "catalog": [
            _read(),
            {"name": "slow", "type": "function", "fn": "spark_job:slow"},
            {"name": "sum", "type": "reduce", "groupByKey": "key", "fluxPolicy": "continue"},
            _files("each", folder),
            _files("out", folder),
        ],
        "windows": [{"id": "sums", "task": "sum", "type": "global", "aggregation": ["sum", "v"]}],
        "triggers": [{"windowId": "sums", "type": "segment", "threshold": [10**6, "elements"],
                      "refinement": "accumulating", "emit": "spark_job:emit_sum"}],
    }  # fmt: skip


def _micro(folder: Path) -> dict[str, Any]:
    """A plugin of the user's is an input without end, until it has come to one."""
    read = _read(ratePerSecond=RATE_PER_SECOND) | {"plugin": "spark_job:numbers"}
    return {
        "engine": "spark",
        "workflow": [["read", "slow"], ["slow", "each"], ["slow", "again"]],
        "catalog": [
            read,
            {"name": "slow", "type": "function", "fn": "spark_job:slow"},
            _files("each", folder),
            _files("again", folder),
        ],
    }


def _stage(folder: Path) -> dict[str, Any]:
    options = {"path": str(folder / "out"), "stage": "spark_job:totals",
               "write": {"format": "json"}}  # fmt: skip
    write = {"name": "write", "type": "output", "plugin": "spark", "options": options}
    return {"workflow": [["read", "write"]], "catalog": [_read(), write]}


def _middle(folder: Path) -> dict[str, Any]:
    options = {"path": str(folder / "bundles"), "bundleSegments": BUNDLE_SEGMENTS,
               "rollSeconds": 0.5}  # fmt: skip
    stage = {"name": "stage", "type": "function", "sparkStage": "spark_job:doubled",
             "options": options}  # fmt: skip
    return {
        "workflow": [["read", "stage"], ["stage", "each"]],
        "catalog": [_read(ratePerSecond=RATE_PER_SECOND), stage, _files("each", folder)],
    }


def _window(folder: Path) -> dict[str, Any]:
    read = _read(ratePerSecond=RATE_PER_SECOND)
    return {
        "workflow": [["read", "sum"], ["sum", "out"]],
        "catalog": [
            {**read, "watermarkKey": "n", "allowedDisorder": [100, "milliseconds"]},
            {"name": "sum", "type": "reduce", "groupByKey": "key", "fluxPolicy": "continue"},
            _files("out", folder),
        ],
        "windows": [{"id": "sums", "task": "sum", "engine": "spark", "type": "fixed",
                     "aggregation": ["sum", "v"], "windowKey": "n",
                     "range": [RANGE_MS, "milliseconds"]}],
        "triggers": [{"windowId": "sums", "type": "watermark", "postEvictor": ["all"],
                      "emit": "spark_job:emit_extent"}],
    }  # fmt: skip


def _in_options(spec: dict[str, Any], master: str) -> None:
    options = next(each["options"] for each in spec["catalog"] if "path" in each["options"])
    options["master"] = master
    if not master.startswith("sc://"):
        options["sparkConf"] = {"spark.sql.shuffle.partitions": "2"}


_ROWS = [spark_job.row(number) for number in range(SEGMENTS)]


def _sums(factor: int) -> Counter[Row]:
    """Key and sum."""
    sums: Counter[int] = Counter()
    for each in _ROWS:
        sums[each["key"]] += factor * each["v"]
    return Counter(sums.items())


def _extents() -> Counter[Row]:
    """Lower bound, key and sum."""
    sums: Counter[Row] = Counter()
    for each in _ROWS:
        sums[each["n"] // RANGE_MS * RANGE_MS, each["key"]] += each["v"]
    return Counter((*place, total) for place, total in sums.items())


_DOUBLED: Counter[Row] = Counter((each["key"], each["n"], 2 * each["v"]) for each in _ROWS)
_OF_CHILD = {"worker": "", "driver": CHILD, "jvm": JVM, "python": PYTHON}
_OF_QUERY = {**_OF_CHILD, "driver": QUERY}
KINDS: Mapping[str, Kind] = {
    "job": Kind(_job, {"out": _sums(2), "each": _DOUBLED}, _OF_QUERY, QUERY),
    "micro": Kind(
        _micro, {"each": _DOUBLED, "again": _DOUBLED}, _OF_QUERY, QUERY, of_worker=("committed",)
    ),
    "stage": Kind(_stage, {"out/result": _sums(2)}, _OF_CHILD, master=_in_options),
    "middle": Kind(_middle, {"each": _DOUBLED}, _OF_CHILD, master=_in_options),
    "window": Kind(
        _window, {"out": _extents()}, {"worker": "", "driver": CHILD, "jvm": JVM},
        working_s=0.3,
    ),
    "connect": Kind(
        _stage, {"out/result": _sums(2)}, {"worker": "", "driver": CHILD, "server": ""},
        connect=True, master=_in_options,
    ),
}  # fmt: skip
