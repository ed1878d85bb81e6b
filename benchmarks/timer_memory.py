"""Many timers: the memory of a process whose function sets one for each key, and what one costs.

    python -m benchmarks.timer_memory [--keys 10000000] [--quick] [--json FILE]

Each key comes once, in an order of no meaning, keeps a number, and sets a timer by event time.
Times lie within ten days. At most 200,000 states are in memory, and the rest on disk. Changes are
taken after each ten batches, as for chunks of the state log, which is not written. Then the
watermark rises day by day until all have fired. Memory is what a fresh process has beyond its
start.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from benchmarks import harness
from benchmarks.figures import Figure, Measured, Options, parser, run

from onyx.base.seams import SystemClock
from onyx.flow.groups.keys import shard_of
from onyx.keystate.groups import Shards
from onyx.model.parsing.job import parse_mapping
from onyx.operators.keyed.definition import keyed_function
from onyx.operators.keyed.operator import KeyedOperator
from onyx.state.local.spilled import Spill

BATCH, BATCHES_A_CHUNK = 2_000, 10
STRIDE = 7_368_787
"""A prime: its multiples, modulo the number of keys, are all keys in a mixed order."""
FROM_MS, DAY_MS, DAYS = 1_700_000_000_000, 86_400_000, 10
MIB = 1_048_576
GOAL_MIB = 1_024.0


def seen(segment: dict[str, Any], state: Any) -> None:
    """Keep a number, and set a timer."""
    state.last = segment["n"]
    state.set_timer("silent", segment["at"])


def silent(timer: Any, state: Any) -> dict[str, Any]:
    """The timer is due."""
    return {"last": state.last}


FUNCTIONS: dict[str, Callable[..., Any]] = {"m:seen": seen, "m:silent": silent}
JOB = {
    "apiVersion": "onyx.dev/v1beta1",
    "kind": "OnyxJob",
    "metadata": {"name": "bench-timers"},
    "spec": {
        "guarantee": "exactly-once",
        "workflow": [["read", "watch"], ["watch", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "channel"},
            {"name": "watch", "type": "function", "fn": "m:seen", "onTimer": "m:silent",
             "groupByKey": "key", "fluxPolicy": "continue", "state": {"last": "value[int]"}},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
    },
}  # fmt: skip


def states_of(folder: Path, extents_max: int) -> KeyedOperator:
    """What a task with the function keeps, with nothing in it."""
    its = keyed_function(parse_mapping(JOB), "watch", FUNCTIONS.__getitem__)
    assert its is not None, "the task has state"
    holder = Spill(folder, extents_max)
    return KeyedOperator(its, (), Shards(shard_of), holder, SystemClock())


def measure_one(keys: int, extents_max: int) -> dict[str, float]:
    """Memory, and CPU of a timer that is set, and of one that fires."""
    process = psutil.Process()
    before = process.memory_info().rss
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as folder:
        states = states_of(Path(folder), extents_max)
        began = time.process_time()
        for batch, first in enumerate(range(0, keys, BATCH), 1):
            for number in range(first, min(first + BATCH, keys)):
                key = number * STRIDE % keys
                at = FROM_MS + key * (DAYS * DAY_MS // keys)
                states.call(seen, key, {"n": number, "at": at}, FROM_MS)
            states.trim()
            if batch % BATCHES_A_CHUNK == 0:
                states.take_changes()
        states.take_changes()
        found["us to set"] = (time.process_time() - began) / keys * 1e6
        found["set MiB"] = (process.memory_info().rss - before) / MIB
        began, fired = time.process_time(), 0
        for day in range(1, DAYS + 1):
            for page in states.advance(FROM_MS + day * DAY_MS):
                fired += len(page)
                states.take_changes()
        found["us to fire"] = (time.process_time() - began) / keys * 1e6
        assert fired == keys, f"{fired} timers fired of {keys}"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
        found["most MiB"] = (peak - before) / MIB
    return found


def measure(options: argparse.Namespace) -> Measured:
    keys = options.keys
    found = harness.fresh(measure_one, keys, options.extents_max)
    note = f"{found['us to set']:.0f} us to set, {found['us to fire']:.0f} us to fire"
    name = f"memory of {keys:,} keys with timers, on disk"
    return Measured([Figure(name, found["most MiB"], "MiB", GOAL_MIB, note=note)], {"found": found})


def options() -> Options:
    made = parser(__doc__)
    made.sized("--keys", 10_000_000, 100_000, 5_000)
    made.sized("--extents-max", 200_000, 10_000, 500, "states in memory")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
