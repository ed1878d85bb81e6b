"""The flights of the example as the data of a benchmark: CSV files, and what its job must write.

The answer is computed from the records of the package, by a plain loop over the example's own
functions, so that a program that loses or repeats a record cannot agree with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks import data
from benchmarks.data import Answer, Data

EXAMPLE = Path(__file__).parents[1] / "examples" / "flights"
FLIGHTS = 336_776


def flights(records: int) -> Data:
    """The first flights of the year, and seven bad records.

    The answer: how many segments the four routes have and how many groups the aggregation, and the
    sum of row numbers in the one and of minutes late in the other.
    """
    folder = data.ROOT / f"flights-{records}"
    path = folder / "answer.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_made(folder / "data", records)))
    count, total = json.loads(path.read_text())
    return Data(folder / "data", records, (count, total))


def _made(folder: Path, records: int) -> Answer:
    if str(EXAMPLE) not in sys.path:
        sys.path.insert(0, str(EXAMPLE))
    prepare: Any = import_module("prepare")
    read = [*islice(prepare.raw(), records)]
    with patch.object(prepare, "raw", lambda: iter(read)):
        prepare.prepare(folder)
    tasks: Any = import_module("flights.tasks")
    numbered = [{"row": str(number), **record} for number, record in enumerate(read, 1)]
    bad = [*prepare.bad_records(read[0], len(read))]
    found = [*_segments(tasks, numbered)]
    groups = {(each["carrier"], each["origin"], each["month"]) for each in found if _flown(each)}
    minutes = sum(each["delay"] or 0 for each in found if _flown(each))
    rows = sum(each["row"] for each in found) + sum(int(each["row"]) for each in bad)
    return len(found) + len(bad) + len(groups), rows + minutes


def _segments(tasks: Any, records: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """What reaches the routes."""
    for record in records:
        yield tasks.derive(tasks.parse(record))


def _flown(flight: dict[str, Any]) -> bool:
    return flight["dep_time"] is not None
