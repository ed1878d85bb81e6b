"""What durable state costs: appending chunks, recovering, and telling repeats.

    python -m benchmarks.bench_state [--quick] [--directory DIR] [--json FILE]

Append: chunks of 10,000 applied ids and 1,000 records over 32 shards, each forced to disk; CPU time
beside it, because a disk waits but does not compute. Recovery: a snapshot of 1 GB (64 MB with
--quick), encoded, until every record is decoded, by a process that has not read it before (it is in
the page cache of the system, though). Applied ids: batches of 1,000, nothing replayed. Entries of
a map of one group: calls that add one to an entry of many to those of a few, with the changes
encoded after each hundred, in memory and with one in a hundred entries there.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.figures import Figure, Measured, Options, Repeats, parser, ratio, run

from onyx.codec.values import encode_records
from onyx.flow.groups.keys import shard_of
from onyx.keystate.buckets import InMemory
from onyx.keystate.groups import Shards
from onyx.keystate.records import Record, SetStates
from onyx.ledger.applied import Applied
from onyx.ledger.lineage import U64, pack_roots
from onyx.model.state_types import parse_state_type
from onyx.operators.keyed.definition import KeyedFunction
from onyx.operators.keyed.function_calls import DeclaredStates
from onyx.operators.keyed.store import KeyedStore
from onyx.settings import StateSettings
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.local.spilled import Spill
from onyx.state.recovery import recover
from onyx.storage.folder import Folder

SHARDS = 32
CHUNK_IDS, CHUNK_RECORDS = 10_000, 1_000
STATE_BYTES = 1_000_000_000
"""Of which the goal is."""
FEW = 1_000
"""Entries of a small map."""
CHANGES = 10_000
GOAL_ENTRY = 1.5
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


def changing(entries: int, held_max: int, folder: Path) -> Callable[[], tuple[float, float]]:
    """What gives CPU seconds and bytes of the log of one changed entry, in a map of so many.

    Args:
        held_max: of them in memory; 0: all.
    """
    states = {"sums": parse_state_type("map[str, int]")}
    nothing = frozenset[str]()
    its = KeyedFunction(task="t", states=states, ttl_ms=None, on_timer=None, fed_by=nothing)
    store = KeyedStore(Shards(shard_of), Spill(folder, held_max) if held_max else InMemory())
    held = DeclaredStates(its, store, None, (), lambda: 0)

    def change(numbers: Sequence[int]) -> tuple[float, float]:
        keys, size = [f"item-{number:07}" for number in numbers], 0
        cpu_s = time.process_time()
        for first in range(0, len(keys), 100):
            for key in keys[first : first + 100]:
                held.call(add_one, "group", key)
            size += sum(len(encode_records(each)) for each in store.take_changes().values())
            store.trim()
        return (time.process_time() - cpu_s) / len(keys), size / len(keys)

    change(RANDOM.permutation(entries).tolist())
    return lambda: change(RANDOM.integers(0, entries, CHANGES).tolist())


def add_one(key: str, state: Any) -> None:
    state.sums[key] = state.sums.get(key, 0) + 1


def changed_entries(directory: Path, many: int, repeats: int) -> Iterator[Figure]:
    for where, share, goal in (("in memory", 0, GOAL_ENTRY), ("on disk", 100, None)):
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            maps = [
                changing(entries, entries // share if share else 0, Path(folder))
                for entries in (many, FEW)
            ]
            found = [[each() for each in maps] for _ in range(repeats)]
            del maps
            gc.collect()  # what holds a state is in a cycle
        large, small = (
            Repeats(tuple(cpu_s for cpu_s, _ in its)) for its in zip(*found, strict=True)
        )
        note = f"{large.typical * 1e6:.1f} us and {small.typical * 1e6:.1f} us"
        name = f"CPU of a changed entry of {many:,} to one of {FEW:,}, {where}"
        yield ratio(name, large, small, goal, note)
        if not share:
            (_, most), (_, least) = found[0]
            name = f"bytes logged for a changed entry of {many:,} to one of {FEW:,}"
            yield Figure(name, most / least, "x", GOAL_ENTRY, note=f"{most:.1f} bytes")


def seconds(work: Callable[[], None]) -> float:
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


def measure(options: argparse.Namespace) -> Measured:
    size_bytes = options.state_mb * 10**6
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        append_s, append_cpu_s = appending(Path(folder), options.chunks)
        written_s, recovered_s, stored = recovering(Path(folder), size_bytes)
        entries = list(changed_entries(Path(folder), options.entries, options.repeats))
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
            *entries,
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
    made.sized("--entries", 1_000_000, 1_000_000, 2_000, "of a large map")
    made.sized("--repeats", 5, 3, 1)
    made.sized("--batches", 1_000, 1_000, 25, "of 1,000 ids that are told from repeats")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
