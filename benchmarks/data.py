"""The data of the benchmarks: JSON Lines in two files, from a fixed seed, and the right answer.

The answer is computed while generating, from the numbers and not from the files, so that a program
that loses or repeats a record cannot agree with it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1] / "bench-data"
FILES = 2
SEED = 7


@dataclass(frozen=True)
class Data:
    """Records on disk, and what workload a makes of them."""

    folder: Path
    records: int
    count: int
    """How many have an even `n` after adding one."""
    total: int
    """The sum of these `n`."""


def segments(records: int) -> Data:
    """`records` records of about 50 bytes: `{"id":0,"name":"user-339563-abcdefgh","n":970}`."""
    folder = ROOT / f"segments-{records}"
    answer = folder / "answer.json"
    if not answer.exists():
        folder.mkdir(parents=True, exist_ok=True)
        answer.write_text(json.dumps(_write(folder, records)))
    count, total = json.loads(answer.read_text())
    return Data(folder, records, count, total)


def _write(folder: Path, records: int) -> tuple[int, int]:
    draw = random.Random(SEED)
    count = total = written = 0
    for number in range(FILES):
        with open(folder / f"part-{number}.jsonl", "w", encoding="ascii") as file:
            for each in range(written, records * (number + 1) // FILES):
                name, n = draw.randrange(10**6), draw.randrange(1000)
                file.write(f'{{"id":{each},"name":"user-{name:06d}-abcdefgh","n":{n}}}\n')
                if (n + 1) % 2 == 0:
                    count, total = count + 1, total + n + 1
            written = records * (number + 1) // FILES
    return count, total
