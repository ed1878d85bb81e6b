"""The jobs of `examples/nexmark` against others. `python -m benchmarks.nexmark [--query q5]`

`onyx-1` has all tasks in one process, `onyx-3` in each of three; `-columns` has record batches.
Bytewax and Pathway are streams; Polars, DuckDB and Spark compute over whole tables, on one thread:
the limit. The answer of each run is compared with that of pandas. Figures are CPU seconds per
million events, of which 920,000 are bids; q3 and q8 read the other 80,000. A query that does little
with an event has more events, so that the work is several times what starts of a worker differ by.
All jobs are exactly once, and what they keep goes to a state log on disk.

Events a second a core are those seconds turned round, beside what the Nexmark project publishes of
open Flink 1.13 (exactly once, RocksDB, eight cores of another machine): an order of magnitude, not
a comparison, which is what runs on one machine are for. q10 to q12 and q14 to q22 are not here:
they need time of the machine, regular expressions, or counts of distinct values a day.

All read the same Parquet files, and Pathway the same events as JSON Lines. What comes out is
counted, and one column added up. Pathway needs a venv of its own, because it wants another pandas:

    python3.11 -m venv bench-data/pathway
    bench-data/pathway/bin/pip install pathway==0.33.0
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import yaml
from benchmarks import data, onyx_run
from benchmarks.checkout import ROOT, python_path
from benchmarks.data import Data
from benchmarks.figures import (
    TOO_NOISY,
    Figure,
    Measured,
    Options,
    Repeats,
    Size,
    parser,
    ratio,
    run,
)
from benchmarks.harness import Absent, Contender, Result, compare, printed_answer, report, used
from benchmarks.onyx_ways import SHARES, shares
from benchmarks.peers import CONTENDERS, HERE, absent, by_name, spark_environment
from benchmarks.workload import REPEATS, TIMEOUT_S

EXAMPLE = ROOT / "examples" / "nexmark"
CODE = {"PYTHONPATH": python_path(HERE / "jobs", CONTENDERS, EXAMPLE)}
PATHWAY = "pathway"
"""Folder of its venv, among the data."""
OF_STREAMS = ("q3", "q4", "q6", "q9", "q13")
"""Queries that are not written for Pathway: its joins keep all."""
SUMMED = {
    "q0": "price",
    "q1": "price",
    "q2": "price",
    "q3": "auction",
    "q4": "price",
    "q5": "auction",
    "q6": "price",
    "q7": "price",
    "q8": "person",
    "q9": "price",
    "q13": "price",
}
"""Each query, and the column of its result that is added up."""
EVENTS = {
    "q0": 10_000_000,
    "q1": 10_000_000,
    "q2": 10_000_000,
    "q3": 5_000_000,
    "q4": 1_000_000,
    "q5": 1_000_000,
    "q6": 1_000_000,
    "q7": 4_000_000,
    "q8": 2_000_000,
    "q9": 1_000_000,
    "q13": 10_000_000,
}
"""So many that the work of a stream of dicts is several times the start of a worker."""
WORK_S_MIN = 0.005
"""CPU seconds a million events: a start of a program varies by more than less of it."""
EVENTS_TINY = 3_000
"""With `--tiny`: so few that a query ends at once, and so many that each finds something."""
GOALS = {"onyx-1": 1.0, "onyx-1-columns": 0.5}
RATES = {
    "q0": 1_500,
    "q1": 1_500,
    "q2": 1_500,
    "q3": 152,
    "q4": 300,
    "q5": 22,
    "q7": 12,
    "q8": 146,
    "q9": 150,
    "q13": 131,
}
"""Thousand events a second a core that columns are to reach: above what is published of open Flink
(155, 158, 175, 152, 34, 22, 12, 146, 14 and 131; q6 is not there), and more where we said so."""
QUICK = ("onyx-1", "onyx-1-columns", "bytewax", "polars", "duckdb")


def events(query: str, count: int) -> Data:
    """The files of so many events, made at the first use, and the answer of a query."""
    if str(EXAMPLE) not in sys.path:
        sys.path.insert(0, str(EXAMPLE))
    from generate import generate
    from nexmark.answers import answer

    folder = data.ROOT / f"nexmark-{count}"
    if not (folder / "made").exists():
        generate(folder, count)
        (folder / "made").touch()
    path = folder / f"answer-{query}.json"
    if not path.exists():
        found = answer(query, folder)[SUMMED[query]]
        path.write_text(json.dumps([len(found), int(found.sum())]))
    rows, total = json.loads(path.read_text())
    return Data(folder, count, (rows, total))


# Programs


def contenders(query: str) -> dict[str, Contender | Absent]:
    """By name."""
    ours = [_onyx(query, processes, columns) for columns in (False, True) for processes in (1, 3)]
    bytewax = _contender("bytewax", partial(_bytewax, query), "1 process, no recovery store")
    pathway = _contender("pathway", partial(_pathway, query), "static tables, 1 thread")
    python = data.ROOT / PATHWAY
    theirs = [
        bytewax
        if importlib.util.find_spec("bytewax")
        else absent("bytewax", "pip install bytewax"),
        _pathway_or_why(query, python.exists(), pathway),
        _spark(query),
    ]
    frames = [
        _contender(engine, partial(_frames, engine, query), "whole tables, 1 thread")
        if importlib.util.find_spec(engine)
        else absent(engine, f"pip install {engine}")
        for engine in ("polars", "duckdb")
    ]
    return by_name(*ours, *theirs, *frames)


def _pathway_or_why(query: str, there: bool, pathway: Contender) -> Contender | Absent:
    if query in OF_STREAMS:
        return absent("pathway", f"a query other than {query}")
    return pathway if there else absent("pathway", f"pip install pathway, in {PATHWAY}")


def _spark(query: str) -> Contender | Absent:
    if not importlib.util.find_spec("pyspark"):
        return absent("spark", "pip install 'onyx-on-kubernetes[spark]'")
    command = partial(_spark_command, query)
    note = "SQL over whole tables, local[1], warm"
    return Contender("spark", command, printed_answer, spark_environment(), note, tells_cpu=True)


def _spark_command(query: str, data: Data, folder: Path) -> Sequence[str]:
    program = str(CONTENDERS / "spark_nexmark.py")
    return [sys.executable, program, query, SUMMED[query], str(data.folder), str(folder)]


def _contender(name: str, command: Any, note: str) -> Contender:
    environment = {**CODE, "POLARS_MAX_THREADS": "1", "PATHWAY_THREADS": "1"}
    return Contender(name, command, printed_answer, environment, note)


def _onyx(query: str, processes: int, columns: bool) -> Contender:
    name = f"onyx-{processes}{'-columns' * columns}"
    note = f"{processes} process{'es' * (processes > 1)}, {'columns' if columns else 'dicts'}"
    command = partial(_job, query, processes, columns)
    return Contender(name, command, shares, CODE, note)


def _job(query: str, processes: int, columns: bool, data: Data, folder: Path) -> Sequence[str]:
    name, batch_format = (f"{query}-columns", "arrow") if columns else (query, "dicts")
    job = yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text())
    spec = job["spec"]
    spec["guarantee"] = "exactly-once"
    windowed = {window["task"] for window in spec.get("windows", [])}
    for entry in spec["catalog"]:
        if entry["type"] != "table":
            owned = entry["name"] in windowed and not {"groupByKey", "groupByFn"} & entry.keys()
            entry["nPeers"] = 1 if owned else processes
        if entry["type"] in ("input", "table"):
            path = Path(entry["options"]["path"]).with_suffix(".parquet").name
            entry["options"]["path"] = str(data.folder / path)
    write = next(entry for entry in spec["catalog"] if entry["type"] == "output")
    column = SUMMED[query]
    write |= {"plugin": "function", "cooperative": True, "batchFormat": batch_format}
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
            with lines.open("wb") as file:
                for batch in pq.ParquetFile(path).iter_batches():
                    file.write(msgspec.json.Encoder().encode_lines(batch.to_pylist()))
    python = str(data.ROOT / PATHWAY / "bin" / "python")
    return [python, str(CONTENDERS / "pathway_nexmark.py"), query, str(events.folder)]


# Figures


def figures(query: str, results: Sequence[Result | Absent]) -> list[Figure]:
    """Onyx in dicts and in columns over Bytewax: that a stream of Python is no slower here. Then
    events a second a core, of columns first and of all others beside it."""
    cpu = used(results)
    ratios = [
        ratio(f"{query}: CPU of {name} / bytewax", cpu[name], cpu["bytewax"], goal)
        for name, goal in GOALS.items()
        if name in cpu and "bytewax" in cpu
    ]
    return [*ratios, *_rates(query, results)]


def _rates(query: str, results: Sequence[Result | Absent]) -> list[Figure]:
    here = {each.name: each for each in results if isinstance(each, Result)}
    columns = here.pop("onyx-1-columns", None)
    if columns is None:
        return []
    others = [f"{each.name} {_rate_and_memory(each)}" for each in here.values()]
    note = "; ".join([f"{columns.pss_peak_bytes / 2**20:,.0f} MiB", *others])
    cpu, name = columns.cpu_s_per_million, f"{query}: events a second a core, columns"
    rate, best = _rate(cpu), None if cpu.too_noisy else 1e3 / cpu.best
    return [Figure(name, rate, "k/s", RATES.get(query), at_least=True, best=best, note=note)]


def _rate_and_memory(of: Result) -> str:
    rate = _rate(of.cpu_s_per_million)
    shown = TOO_NOISY if rate is None else f"{rate:,.0f}"
    return f"{shown} in {of.pss_peak_bytes / 2**20:,.0f} MiB"


def _rate(cpu: Repeats) -> float | None:
    """Thousand events a second a core; None where that cannot be said, as where the work takes less
    than starts differ by."""
    return None if cpu.too_noisy or cpu.typical < WORK_S_MIN else 1e3 / cpu.typical


def measure(options: argparse.Namespace) -> Measured:
    found: list[Figure] = []
    details: dict[str, Mapping[str, Any]] = {}
    for query in options.query or SUMMED:
        every = contenders(query)
        names = options.contender or (every if options.size is Size.FULL else QUICK)
        sizes = EVENTS[query], EVENTS[query] // 2, EVENTS_TINY
        count = options.events or sizes[options.size]
        few = events(query, options.few_events) if options.few_events else None
        results = compare(
            [every[name] for name in names], events(query, count), few, options.repeats, TIMEOUT_S
        )
        rates = {each: _rate(cpu) for each, cpu in used(results).items()}
        known = {each: rate for each, rate in rates.items() if rate is not None}
        table = report(f"Nexmark {query}, {count:,} events", results, "onyx-1")
        details[query] = {**table, "rates": known}
        found += figures(query, results)
    return Measured(found, details)


def options() -> Options:
    made = parser(__doc__)
    made.add_argument("--query", action="append", choices=list(SUMMED), help="repeatable")
    made.add_argument("--contender", action="append", help="only this; repeatable")
    made.add_argument("--events", type=int)
    made.sized("--few-events", 2_000, 2_000, 0, "to tell the start-up; 0 leaves it in")
    made.sized("--repeats", *REPEATS)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
