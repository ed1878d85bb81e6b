"""Writes events as files: `python generate.py [--events 500000] [--seed 7] [--folder data]`

Each kind of event has two files, `bids-0.parquet` and `bids-1.parquet`, so that two peers can read.
Events are dealt to them in turn, half a second of event time at a time: a watermark has to wait for
neither. `side-input.parquet` is a small table, for q13.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from nexmark.events import KINDS, SEED, events, side_input

DATA = Path(__file__).parent / "data"
EVENTS = 500_000
FILES = 2
DEALT_EVENTS = 5_000
ROW_GROUP_EVENTS = 500_000


def generate(folder, count, seed=SEED):
    """Write `count` events into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(FILES):
        for kind in KINDS:
            write(folder / f"{kind}-{file}.parquet", kind, file, count, seed)
    pq.write_table(side_input(), folder / "side-input.parquet")


def write(path, kind, file, count, seed):
    writer = None
    for first in range(0, max(count, 1), ROW_GROUP_EVENTS):
        numbers = np.arange(first, min(first + ROW_GROUP_EVENTS, count), dtype=np.int64)
        batch = events(kind, numbers[numbers // DEALT_EVENTS % FILES == file], seed)
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--folder", type=Path, default=DATA)
    given = parser.parse_args()
    generate(given.folder, given.events, given.seed)
    print(f"{given.events:,} events in {given.folder}")
