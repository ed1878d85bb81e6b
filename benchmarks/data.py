"""The data of the benchmarks: records in two files, from a fixed seed, and the right answer.

The answer is computed while generating, from the numbers and not from the files, so that a program
that loses or repeats a record cannot agree with it.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1] / "bench-data"
FILES = 2
SEED = 7
ROW_GROUP = 100_000

WORDS_A_LINE = 10
SKEW = 1.2
"""Exponent of the Zipf distribution of words."""
WORDS = 20_000

KEYS = 1_000
WINDOW_MS = 60_000
FIRST_MS = 1_700_000_040_000
"""Event time of the first event: the start of a minute."""
EVENT_EVERY_MS = 0.6
DISORDER_MS = 500
"""How much earlier an event may be than one before it, at most."""

Answer = tuple[int, int]
"""How many results there are, and the sum of their values."""


@dataclass(frozen=True)
class Data:
    """Records on disk, and what a right program makes of them."""

    folder: Path
    records: int
    answer: Answer

    @property
    def pattern(self) -> str:
        """Glob of its files."""
        return str(self.folder / "part-*")

    def as_parquet(self) -> Data:
        """The same records as Parquet files, made at the first use."""
        return replace(self, folder=parquet_twin(self.folder))


class Generator(Protocol):
    """Makes records, and knows the answer when all are made."""

    suffix: str
    """Of the files."""

    def lines(self, records: int) -> Iterator[str]: ...

    def answer(self) -> Answer: ...


def segments(records: int) -> Data:
    """Workload a: `{"id":0,"name":"user-339563-abcdefgh","n":970}`, about 50 bytes each.

    The answer: how many have an even `n` after adding one, and the sum of these `n`.
    """
    return _kept("segments", records, Segments())


def words(records: int) -> Data:
    """Workload b: lines of ten words, some much more frequent than others; a record is a word.

    The answer: how many different words, and how many words.
    """
    return _kept("words", records, Words())


def events(records: int) -> Data:
    """Workload c: `{"key":"k331","ts":1700000040485,"v":0}`, with event times in ms.

    The times are out of order, and the second file goes on where the first ends. The answer: how
    many windows of a minute of a key have events, and the sum of their sums of `v`.
    """
    return _kept("events", records, Events())


def _kept(name: str, records: int, generator: Generator) -> Data:
    """The data set, made at its first use."""
    folder = ROOT / f"{name}-{records}"
    path = folder / "answer.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, generator.suffix, list(generator.lines(records)))
        path.write_text(json.dumps(generator.answer()))
    count, total = json.loads(path.read_text())
    return Data(folder, records, (count, total))


def _write(folder: Path, suffix: str, lines: list[str]) -> None:
    for number in range(FILES):
        first, last = (len(lines) * each // FILES for each in (number, number + 1))
        with open(folder / f"part-{number}.{suffix}", "w", encoding="ascii") as file:
            file.writelines(line + "\n" for line in lines[first:last])


def parquet_twin(folder: Path) -> Path:
    """Parquet files beside those of a folder: JSON Lines as they are, text in a column `line`."""
    twin = folder.with_name(f"{folder.name}-parquet")
    if not twin.exists():
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
        for path in sorted(folder.glob("part-*")):
            lines = path.suffix == ".txt"
            table = (
                pa.table({"line": path.read_text().splitlines()}) if lines else pj.read_json(path)
            )
            pq.write_table(table, unfinished / f"{path.stem}.parquet", row_group_size=ROW_GROUP)
        unfinished.rename(twin)
    return twin


class Segments:
    suffix = "jsonl"

    def __init__(self) -> None:
        self._count = self._total = 0

    def lines(self, records: int) -> Iterator[str]:
        draw = random.Random(SEED)
        for each in range(records):
            name, n = draw.randrange(10**6), draw.randrange(1000)
            if (n + 1) % 2 == 0:
                self._count, self._total = self._count + 1, self._total + n + 1
            yield f'{{"id":{each},"name":"user-{name:06d}-abcdefgh","n":{n}}}'

    def answer(self) -> Answer:
        return self._count, self._total


class Words:
    suffix = "txt"

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def lines(self, records: int) -> Iterator[str]:
        ranks = range(1, WORDS + 1)
        shares = list(accumulate(rank**-SKEW for rank in ranks))
        numbers = random.Random(SEED).choices(ranks, cum_weights=shares, k=records)
        self._counts.update(numbers)
        for first in range(0, records, WORDS_A_LINE):
            yield " ".join([f"w{number}" for number in numbers[first : first + WORDS_A_LINE]])

    def answer(self) -> Answer:
        return len(self._counts), self._counts.total()


class Events:
    suffix = "jsonl"

    def __init__(self) -> None:
        self._sums: Counter[tuple[int, int]] = Counter()

    def lines(self, records: int) -> Iterator[str]:
        draw = random.Random(SEED)
        for each in range(records):
            key = draw.randrange(KEYS)
            time_ms = FIRST_MS + int(each * EVENT_EVERY_MS) + draw.randrange(DISORDER_MS)
            value = each % 100
            self._sums[key, time_ms // WINDOW_MS] += value
            yield f'{{"key":"k{key}","ts":{time_ms},"v":{value}}}'

    def answer(self) -> Answer:
        return len(self._sums), self._sums.total()
