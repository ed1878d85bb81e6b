"""The ways in which Onyx runs a workload, as contenders.

Onyx runs as its users run it, by `onyx run`, with its own ZooKeeper: a manifest of `jobs/`, in
which the data, the guarantee and the numbers of peers are filled in.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import onyx_run
from benchmarks.data import Answer, Data
from benchmarks.harness import Contender, WrongAnswer
from benchmarks.peers import CODE

OUT = "out"
"""Folder of what the job writes."""
SHARES = "shares"
"""Folder in which each process that had the sink leaves its share of the answer."""


@dataclass(frozen=True)
class Way:
    job: str
    """A manifest of `jobs/`."""
    note: str
    processes: int = 1
    guarantee: str = "at-least-once"
    modules: Sequence[str] = ()
    """Of `jobs/`, besides those of the workload."""
    parquet: bool = False
    """It reads the Parquet files."""
    batch_size: int | None = None
    """Of all tasks; otherwise as the manifest has it."""
    apart: bool = False
    """Each task has one peer, in a process of its own; otherwise one in each process."""


def contenders(
    ways: Mapping[str, Way], modules: Sequence[str], answer: Callable[[str, Path], Answer]
) -> dict[str, Contender]:
    """By name; `modules` are those whose functions the jobs name."""
    return {
        name: Contender(
            name, partial(_command, way, [*modules, *way.modules]), answer, CODE, way.note
        )
        for name, way in ways.items()
    }


def _command(way: Way, modules: Sequence[str], data: Data, folder: Path) -> Sequence[str]:
    pattern = (data.as_parquet() if way.parquet else data).pattern
    job = onyx_run.manifest(way.job)
    spec = job["spec"]
    spec["guarantee"] = way.guarantee
    for entry in spec["catalog"]:
        entry["nPeers"] = 1 if way.apart else way.processes
        if way.batch_size:
            entry["batchSize"] = way.batch_size
        if entry["type"] == "reduce" and way.guarantee != "exactly-once":
            entry["deduplicate"] = False
        if way.guarantee == "at-most-once":
            entry.pop("maxPending", None)  # nothing is pending, and the key is refused
        if entry.get("plugin") == "files":
            read = entry["type"] == "input"
            entry["options"]["path"] = pattern if read else str(folder / OUT)
    (folder / SHARES).mkdir()
    for entry in spec.get("lifecycles", []):
        entry["options"]["folder"] = str(folder / SHARES)
    return onyx_run.command(job, folder, modules, way.processes, way.apart)


def shares(output: str, folder: Path) -> Answer:
    """The sum of what the processes had that ran the sink (`bench_tasks.leave_answer`)."""
    found = [json.loads(path.read_text()) for path in sorted((folder / SHARES).glob("*.json"))]
    if not found:
        raise WrongAnswer(f"no process left an answer:\n{output[-3000:]}")
    return sum(count for count, _ in found), sum(total for _, total in found)


def emitted(output: str, folder: Path) -> Answer:
    """Groups and their states in the rows that windows emitted; repeats are added up."""
    values: Counter[tuple[str, int | None]] = Counter()
    for path in sorted((folder / OUT).glob("*.jsonl")):
        for line in path.read_text().splitlines():
            segment = json.loads(line)
            values[segment["group"], segment["lower"]] += segment["state"]
    return len(values), values.total()
