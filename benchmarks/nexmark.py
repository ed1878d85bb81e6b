"""The jobs of `examples/nexmark` against others. `python -m benchmarks.nexmark [--query q5]`

`onyx-1` has all tasks in one process, `onyx-3` in three; `-columns` works on record batches.
Bytewax and Pathway are streams, Polars and DuckDB compute over whole tables, on one thread: the
limit. The answer of each run is compared with that of pandas. Figures are CPU seconds per million
events, of which 920,000 are bids; q8 reads the other 80,000.

All read the same Parquet files, and Pathway the same events as JSON Lines. What comes out is
counted, and one column added up. Pathway needs a venv of its own, because it wants another pandas:

    python3.11 -m venv bench-data/pathway
    bench-data/pathway/bin/pip install pathway==0.33.0
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import yaml
from benchmarks import data, onyx_run
from benchmarks.data import Data
from benchmarks.figures import Figure, Measured, parser, publish
from benchmarks.harness import Contender, Result, compare, printed_answer, report
from benchmarks.onyx_ways import SHARES, shares
from benchmarks.peers import CONTENDERS, HERE
from benchmarks.workload import TIMEOUT_S

EXAMPLE = onyx_run.ROOT / "examples" / "nexmark"
CODE = {"PYTHONPATH": os.pathsep.join(map(str, (HERE / "jobs", CONTENDERS, EXAMPLE)))}
PATHWAY = "pathway"
"""Folder of its venv, among the data."""
SUMMED = {
    "q0": "price",
    "q1": "price",
    "q2": "price",
    "q5": "auction",
    "q7": "price",
    "q8": "person",
}
"""Each query, and the column of its result that is added up."""
EVENTS, EVENTS_QUICK, EVENTS_FEW = 1_000_000, 200_000, 2_000
REPEATS = 3


def events(query: str, count: int) -> Data:
    """The files of so many events, made at the first use, and the answer of a query."""
    folder = data.ROOT / f"nexmark-{count}"
    path = folder / "answers.json"
    if not path.exists():
        sys.path.insert(0, str(EXAMPLE))
        from generate import generate
        from nexmark.answers import answer

        generate(folder, count)
        found = {name: answer(name, folder)[column] for name, column in SUMMED.items()}
        answers = {name: (len(each), int(each.sum())) for name, each in found.items()}
        path.write_text(json.dumps(answers))
    rows, total = json.loads(path.read_text())[query]
    return Data(folder, count, (rows, total))


# Programs


def contenders(query: str) -> dict[str, Contender]:
    """Those that are installed, by name."""
    made = [_onyx(query, processes, columns) for columns in (False, True) for processes in (1, 3)]
    if importlib.util.find_spec("bytewax"):
        made.append(_contender("bytewax", partial(_bytewax, query), "1 process, no recovery store"))
    if (data.ROOT / PATHWAY).exists():
        made.append(_contender("pathway", partial(_pathway, query), "static tables, 1 thread"))
    made += [
        _contender(engine, partial(_frames, engine, query), "whole tables, 1 thread")
        for engine in ("polars", "duckdb")
        if importlib.util.find_spec(engine)
    ]
    return {each.name: each for each in made}


def _contender(name: str, command: Any, note: str) -> Contender:
    environment = {**CODE, "POLARS_MAX_THREADS": "1", "PATHWAY_THREADS": "1"}
    return Contender(name, command, printed_answer, environment, note)


def _onyx(query: str, processes: int, columns: bool) -> Contender:
    name = f"onyx-{processes}{'-columns' * columns}"
    note = f"{processes} process{'es' * (processes > 1)}, {'columns' if columns else 'dicts'}"
    command = partial(_job, f"{query}{'-columns' * columns}", processes)
    return Contender(name, command, shares, CODE, note)


def _job(name: str, processes: int, data: Data, folder: Path) -> Sequence[str]:
    job = yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text())
    spec = job["spec"]
    for entry in spec["catalog"]:
        entry["nPeers"] = 1
        if entry["type"] == "input":
            entry["options"]["path"] = (
                str(data.folder / Path(entry["options"]["path"]).name) + ".parquet"
            )
    write = spec["catalog"][-1]
    column = SUMMED[name.partition("-")[0]]
    write |= {"plugin": "function", "cooperative": True}
    write["options"] = {"fn": f"bench_nexmark:{column}s", "batch": True}
    (folder / SHARES).mkdir()
    options = {"folder": str(folder / SHARES)}
    spec["lifecycles"] = [{"task": "write", "calls": "bench_tasks:calls", "options": options}]
    modules = ["bench_tasks", "bench_nexmark", "nexmark.dicts", "nexmark.columns"]
    return onyx_run.command(job, folder, modules, processes)


def _bytewax(query: str, data: Data, folder: Path) -> Sequence[str]:
    program = f"bytewax_nexmark:{query}()"
    return ["env", f"BENCH_FOLDER={data.folder}", sys.executable, "-m", "bytewax.run", program]


def _frames(engine: str, query: str, data: Data, folder: Path) -> Sequence[str]:
    program = str(CONTENDERS / "frames_nexmark.py")
    return [sys.executable, program, engine, query, SUMMED[query], str(data.folder)]


def _pathway(query: str, events: Data, folder: Path) -> Sequence[str]:
    for path in events.folder.glob("*.parquet"):
        lines = path.with_suffix(".jsonl")
        if not lines.exists():
            rows = pq.read_table(path).to_pylist()
            lines.write_bytes(msgspec.json.Encoder().encode_lines(rows))
    python = str(data.ROOT / PATHWAY / "bin" / "python")
    return [python, str(CONTENDERS / "pathway_nexmark.py"), query, str(events.folder)]


# Figures


def figures(query: str, results: Sequence[Result]) -> list[Figure]:
    """Onyx in dicts and in columns over Bytewax: that a stream of Python is no slower here."""
    used = {each.name: each.cpu_s_per_million for each in results}
    if "bytewax" not in used:
        return []
    return [
        Figure(f"{query}: CPU of {name} / bytewax", used[name] / used["bytewax"], "x", 1.0)
        for name in ("onyx-1", "onyx-1-columns")
        if name in used
    ]


def measure(options: argparse.Namespace) -> Measured:
    count = options.events or (EVENTS_QUICK if options.quick else EVENTS)
    found: list[Figure] = []
    details: dict[str, Mapping[str, Any]] = {}
    for query in options.query or SUMMED:
        every = contenders(query)
        chosen = [each for name, each in every.items() if name in (options.contender or every)]
        repeats = options.repeats or (1 if options.quick else REPEATS)
        results = compare(
            chosen, events(query, count), events(query, EVENTS_FEW), repeats, TIMEOUT_S
        )
        details[query] = report(f"Nexmark {query}, {count:,} events", results, "onyx-1")
        found += figures(query, results)
    return Measured(found, details)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--query", action="append", choices=list(SUMMED), help="repeatable")
    made.add_argument("--contender", action="append", help="only this; repeatable")
    made.add_argument("--events", type=int)
    made.add_argument("--repeats", type=int)
    options = made.parse_args()
    publish(measure(options), options.json)


if __name__ == "__main__":
    main()
