"""What durable state costs: appending chunks, recovering, and telling repeats.

    python -m benchmarks.bench_state [--quick] [--directory DIR] [--json FILE]

Append: chunks of 10,000 applied ids and 1,000 records over 32 shards, each forced to disk; CPU time
beside it, because a disk waits but does not compute. Recovery: a snapshot of 1 GB (64 MB with
--quick), encoded, until every record is decoded, by a process that has not read it before (it is in
the page cache of the system, though). Applied ids: batches of 1,000, nothing replayed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from benchmarks.figures import Figure, Measured, Options, parser, run

from onyx.codec.records import encode_records
from onyx.keystate.records import Record, SetStates
from onyx.ledger.applied import Applied
from onyx.ledger.lineage import U64, pack_roots
from onyx.settings import StateSettings
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.recovery import recover
from onyx.storage.folder import Folder

SHARDS = 32
CHUNK_IDS, CHUNK_RECORDS = 10_000, 1_000
STATE_BYTES = 1_000_000_000
"""Of which the goal is."""
GOAL_RECOVERY_S, GOAL_APPLIED_NS, GOAL_APPEND_NS = 30.0, 10.0, 100.0
BATCH = 1_000
SETTINGS = StateSettings()
RANDOM = np.random.default_rng(1)


def record(number: int) -> Record:
    """The state of one extent of one group, as windows write it."""
    lower = 60_000 * (number % 97)
    return SetStates("hourly", lower, [f"group-{number}"], [number * 7])


def random_ids(count: int) -> U64:
    return RANDOM.integers(0, 2**64, count, dtype=np.uint64)


def change(number: int) -> Chunk:
    each = CHUNK_RECORDS // SHARDS
    shards = {
        shard: ShardChange([record(each * shard + i) for i in range(each)])
        for shard in range(SHARDS)
    }
    positions = np.arange(number * CHUNK_IDS, (number + 1) * CHUNK_IDS, dtype=np.uint64)
    return Chunk(shards, pack_roots(number % 3, 0, positions), random_ids(CHUNK_IDS))


def appending(directory: Path, count: int) -> tuple[float, float]:
    """Median seconds of an append, and CPU seconds of one."""
    log = recover(Folder(directory), "job", "append", 1, 0, range(SHARDS), SETTINGS).log
    chunks = [change(number) for number in range(count)]
    times = []
    cpu_s = time.process_time()
    for chunk in chunks:
        start_s = time.perf_counter()
        log.append(chunk)
        times.append(time.perf_counter() - start_s)
    return statistics.median(times), (time.process_time() - cpu_s) / count


def recovering(directory: Path, size_bytes: int) -> tuple[float, float, int]:
    """Seconds to write a snapshot, to recover it, and bytes of it on disk."""
    store = Folder(directory)
    known = [record(number) for number in range(100_000)]
    each = size_bytes * len(known) // len(encode_records(known)) // SHARDS
    repeated = (known * (each // len(known) + 1))[:each]
    ids = random_ids(1_000_000)
    log = recover(store, "job", "recover", 1, 0, range(SHARDS), SETTINGS).log
    start_s = time.perf_counter()
    log.snapshot(Chunk({shard: ShardChange(repeated) for shard in range(SHARDS)}, ids, ids))
    log.collect()
    written_s = time.perf_counter() - start_s
    stored = sum(found.size_bytes for found in store.list("job/recover/"))
    start_s = time.perf_counter()
    found = recover(store, "job", "recover", 2, 0, range(SHARDS), SETTINGS)
    for shard in found.shards.values():
        deque(shard.records(), maxlen=0)
    return written_s, time.perf_counter() - start_s, stored


def applied_ns(applied: Applied, first: int, batches: int, again: bool = False) -> float:
    """Nanoseconds an id of telling repeats in some batches and adding them; best of five parts."""
    given = []
    for number in range(batches):
        positions = np.arange(first + number * BATCH, first + (number + 1) * BATCH)
        given.append((pack_roots(0, int(again), positions.astype(np.uint64)), random_ids(BATCH)))

    def work(part: list[tuple[U64, U64]]) -> None:
        for roots, ids in part:
            applied.known(roots, ids)
            applied.add(roots, ids)

    remaining = iter(given)
    parts = [list(islice(remaining, batches // 5)) for _ in range(5)]
    return min(seconds(partial(work, part)) / len(part) for part in parts) / BATCH * 1e9


def seconds(work: Callable[[], None]) -> float:
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


def measure(options: argparse.Namespace) -> Measured:
    size_bytes = options.state_mb * 10**6
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        append_s, append_cpu_s = appending(Path(folder), options.chunks)
        written_s, recovered_s, stored = recovering(Path(folder), size_bytes)
    applied = Applied()
    first_ns = applied_ns(applied, 0, options.batches)
    forget_s = seconds(lambda: applied.forget({0: 900 * options.batches}))
    applied.rewired()
    retries_ns = applied_ns(applied, 2_000 * options.batches, options.batches // 5, again=True)
    mb = size_bytes / 1e6
    return Measured(
        [
            Figure(
                "CPU of appending 10,000 ids and 1,000 records", append_cpu_s / CHUNK_IDS * 1e9,
                "ns an id", GOAL_APPEND_NS, note=f"an append takes {append_s * 1e3:.1f} ms",
            ),
            Figure(
                "recovery of a GB of state", recovered_s * STATE_BYTES / size_bytes, "s",
                GOAL_RECOVERY_S,
                note=f"of {mb:,.0f} MB; {stored / 1e6:,.0f} MB on disk",
            ),
            Figure(
                "applied ids, nothing replayed", first_ns, "ns an id", GOAL_APPLIED_NS,
                note=f"every one a retry: {retries_ns:.0f} ns",
            ),
        ],
        {
            "append_s": append_s,
            "snapshot_mb_s": mb / written_s,
            "recovery_mb_s": mb / recovered_s,
            "forget_s": forget_s,
            "retries_ns": retries_ns,
        },
    )  # fmt: skip


def options() -> Options:
    made = parser(__doc__)
    made.add_argument("--directory", type=Path, help="where the disk is that is measured")
    made.sized("--state-mb", 1_000, 64, 2, "of state that is recovered")
    made.sized("--chunks", 200, 40, 4, "that are appended")
    made.sized("--batches", 1_000, 1_000, 25, "of 1,000 ids that are told from repeats")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
