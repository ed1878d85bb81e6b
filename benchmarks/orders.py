"""A first job of a newcomer, beside Bytewax and Polars: `python -m benchmarks.orders`

300,000 orders as JSON Lines, one line in 250 cut off. Each gets the country of its user from a
table. Their worth is added up by country and minute. Who orders for 900 or more three times within
ten minutes is named, by a state and a timer. Both results are files, and so are the bad lines.
`onyx` has dicts, `onyx-columns` columns where it can: a function with a timer is over dicts.
Bytewax does it with the same functions, without timers, and keeps nothing; Polars over the whole
table, on one thread. All write JSON Lines, which must be the same rows.

Figures are CPU seconds of whole process trees from start to end, and ratios of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import data, onyx_run
from benchmarks.data import Answer, Data
from benchmarks.figures import Figure, Measured, Options, Repeats, parser, ratio, run, typical
from benchmarks.harness import Absent, Contender, Result, compare, report, used
from benchmarks.peers import CODE, CONTENDERS, absent, by_name
from benchmarks.workload import TIMEOUT_S

BAD_EVERY = 250
USERS, COUNTRIES = 1_000, 20
EVERY_MS = 100
AMOUNT_MAX = 100_000
ORDERS = (300_000, 60_000, 2_000)
REPEATS = (3, 1, 1)
"""Both by size."""
GOAL_S, GOAL = 12.0, 1.4
"""In all, and over Bytewax."""
PROGRAMS = ("onyx", "onyx-columns")
KEYS = {"minutes": ("group", "lower", "state"), "alerts": ("user", "since", "large"), "bad": ()}
"""What is compared of each output; of bad lines how many there are, as they look different."""


# The orders


def orders(count: int) -> Data:
    """Files of so many orders and their users, made at the first use."""
    folder = data.ROOT / f"orders-{count}"
    if not (folder / "answer.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        drawn = random.Random(data.SEED)
        of_user = {f"u{n}": f"c{drawn.randrange(COUNTRIES)}" for n in range(USERS)}
        users = [f"{user},{country}" for user, country in of_user.items()]
        (folder / "users.csv").write_text("\n".join(["user,country", *users]) + "\n")
        made = [_order(n, drawn) for n in range(count)]
        lines = [
            json.dumps(each)[: None if (n + 1) % BAD_EVERY else -9] for n, each in enumerate(made)
        ]
        (folder / "orders.jsonl").write_text("\n".join(lines) + "\n")
        good = [each for n, each in enumerate(made) if (n + 1) % BAD_EVERY]
        rows = _right(good, of_user)
        rows["bad"] = [{}] * (count // BAD_EVERY)
        (folder / "answer.json").write_text(json.dumps(summed(rows)))
    found, total = json.loads((folder / "answer.json").read_text())
    return Data(folder, count, (found, total))


def _order(number: int, drawn: random.Random) -> dict[str, Any]:
    user, amount = drawn.randrange(USERS), drawn.randrange(AMOUNT_MAX)
    at = data.FIRST_MS + number * EVERY_MS
    return {"order": number, "user": f"u{user}", "amount": amount, "at": at}


def _right(
    good: Sequence[Mapping[str, Any]], of_user: Mapping[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """The rows of both results, by a loop over all orders."""
    sys.path.append(str(onyx_run.JOBS))
    from bench_orders import LARGE, MINUTE_MS, WITHIN_MS, alert

    sums = Counter[tuple[str, int]]()
    alerts, known = [], dict[str, tuple[int, int]]()
    for order in good:
        user, at = order["user"], order["at"]
        sums[of_user[user], at // MINUTE_MS * MINUTE_MS] += order["amount"]
        if order["amount"] >= LARGE:
            since, large = known.get(user, (at, 0))
            if at >= since + WITHIN_MS:
                alerts.append(alert(user, since, large))
                since, large = at, 0
            known[user] = since, large + 1
    alerts += [alert(user, *each) for user, each in known.items()]
    minutes = [{"group": c, "lower": at, "state": total} for (c, at), total in sums.items()]
    return {"minutes": minutes, "alerts": [each for each in alerts if each]}


def summed(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Answer:
    """How many rows all outputs have, and the sum of a code of each: they have no order."""
    codes = [
        zlib.crc32(json.dumps([output, *(row[key] for key in KEYS[output])]).encode())
        for output, found in rows.items()
        for row in found
    ]
    return len(codes), sum(codes)


def written(output: str, folder: Path) -> Answer:
    """What a program has left in its folder."""
    return summed({name: list(_rows(folder, name)) for name in KEYS})


def _rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Of a file, or of the files of an output of Onyx."""
    for path in [*folder.glob(f"{name}.jsonl"), *folder.glob(f"{name}/**/*.jsonl")]:
        yield from map(json.loads, path.read_text().splitlines())


# Programs


def contenders() -> dict[str, Contender | Absent]:
    """By name."""
    ours = [
        Contender(name, partial(_onyx, name), written, CODE, note)
        for name, note in zip(PROGRAMS, ("dicts", "columns, but for the timer"), strict=True)
    ]
    python = sys.executable
    polars = {**CODE, "POLARS_MAX_THREADS": "1"}
    theirs = [
        _theirs("bytewax", _bytewax, CODE, "no timers, nothing kept"),
        _theirs(
            "polars",
            lambda of, out: [
                python,
                str(CONTENDERS / "polars_orders.py"),
                str(of.folder),
                str(out),
            ],
            polars,
            "whole tables, 1 thread",
        ),
    ]
    return by_name(*ours, *theirs)


def _theirs(
    name: str,
    command: Callable[[Data, Path], Sequence[str]],
    environment: Mapping[str, str],
    note: str,
) -> Contender | Absent:
    if not importlib.util.find_spec(name):
        return absent(name, f"pip install {name}")
    return Contender(name, command, written, environment, note)


def _bytewax(of: Data, out: Path) -> Sequence[str]:
    where = [f"BENCH_FOLDER={of.folder}", f"BENCH_OUT={out}"]
    return ["env", *where, sys.executable, "-m", "bytewax.run", "bytewax_orders"]


def _onyx(name: str, of: Data, folder: Path) -> Sequence[str]:
    job = onyx_run.manifest("orders.yaml")
    paths = {"read": of.folder / "orders.jsonl", "users": of.folder / "users.csv"}
    for entry in job["spec"]["catalog"]:
        if "options" in entry:
            entry["options"]["path"] = str(paths.get(entry["name"], folder / entry["name"]))
        if name == "onyx-columns" and entry["name"] in ("read", "known", "per-minute", "minutes"):
            entry["batchFormat"] = "arrow"
    return onyx_run.command(job, folder, ["bench_orders"])


# Figures


def figures(results: Sequence[Result | Absent], count: int) -> list[Figure]:
    """CPU of each way of Onyx, alone and over the others."""
    cpu = {name: each.per(1e6 / count) for name, each in used(results).items()}
    found = []
    for name in PROGRAMS:
        mine = cpu.get(name, Repeats(()))
        if mine.values:
            found.append(typical(f"CPU of {name}", mine, "s", GOAL_S))
            for other, goal in (("bytewax", GOAL), ("polars", None)):
                if other in cpu:
                    found.append(ratio(f"CPU of {name} / {other}", mine, cpu[other], goal))
    return found


def measure(options: argparse.Namespace) -> Measured:
    every = contenders()
    chosen = [every[name] for name in options.contender or every]
    results = compare(chosen, orders(options.orders), None, options.repeats, TIMEOUT_S)
    details = report(f"{options.orders:,} orders", results, "bytewax")
    return Measured(figures(results, options.orders), details)


def options() -> Options:
    made = parser(__doc__)
    made.add_argument("--contender", action="append", help="only this; repeatable")
    made.sized("--orders", *ORDERS)
    made.sized("--repeats", *REPEATS)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
