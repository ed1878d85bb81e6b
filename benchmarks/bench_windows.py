"""How fast windows take segments in: state, triggers and changes, without a job around them.

    python -m benchmarks.bench_windows [--quick] [--json FILE]

CPU time of one thread for each segment, best of several runs. The stream is in order, of 1,000
keys, with 100,000 segments a minute; after each batch the watermark rises, and after each ten
batches changes are taken, as for a chunk of the state log. Groups are given, as their shards are
when a task has been routed to by group. Columns come in larger batches, and their groups are read
from them as a task does, into states in dicts, and into arrays,
which tasks over columns have.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.figures import Figure, Measured, Options, parser, run

from onyx.flow.columns.record_batch import from_dicts
from onyx.flow.groups.codes import KeyCodes
from onyx.flow.groups.keys import shard_of
from onyx.keystate.coded import GroupKeys
from onyx.keystate.groups import hashable_keys
from onyx.model.job import CatalogEntry, Job, Trigger, Window
from onyx.windows.compile import compile_windows
from onyx.windows.compiled import CompiledWindows
from onyx.windows.task_windows import TaskWindows

KEYS = 1_000
SEGMENTS_A_MINUTE = 100_000
BATCH = 2_000
BATCH_COLUMNS = 10_000
BATCHES_A_CHUNK = 10
DISORDER_MS = 1_000
START_MS = 1_600_000_000_000
GOAL_SUM_US, GOAL_COUNT_US = 0.35, 0.2
GOAL_COLUMNS_US, GOAL_SESSIONS_US = 0.1, 2.0
MINUTE = (1, "minutes")
AT_WATERMARK = {"type": "watermark", "refinement": "discarding"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tumbling sum": ({"type": "fixed", "aggregation": ("sum", "v"), "range": MINUTE}, AT_WATERMARK),
    "tumbling average": (
        {"type": "fixed", "aggregation": ("average", "v"), "range": MINUTE},
        AT_WATERMARK,
    ),
    "tumbling conj": ({"type": "fixed", "aggregation": "conj", "range": MINUTE}, AT_WATERMARK),
    "sliding count, 5 extents": (
        {"type": "sliding", "aggregation": "count", "range": (5, "minutes"), "slide": MINUTE},
        AT_WATERMARK,
    ),
    "global count": ({"type": "global", "aggregation": "count"}, AT_WATERMARK),
    "session count": (
        {"type": "session", "aggregation": "count", "timeout_gap": (1, "seconds")},
        AT_WATERMARK,
    ),
    "tumbling count, every 100 segments": (
        {"type": "fixed", "aggregation": "count", "range": MINUTE},
        {"type": "segment", "threshold": (100, "elements"), "refinement": "accumulating"},
    ),
}


def windows(window: dict[str, Any], trigger: dict[str, Any], columns: bool = False) -> TaskWindows:
    return TaskWindows(compiled(window, trigger, columns), shard_of)


def compiled(
    window: dict[str, Any],
    trigger: dict[str, Any],
    columns: bool = False,
    key: str = "k",
    at: str = "t",
) -> CompiledWindows:
    """The windows of a task that groups by `key`, along the times under `at`."""
    entry = CatalogEntry(
        "gather",
        "reduce",
        1,
        group_by_key=key,
        flux_policy="recover",
        batch_format="arrow" if columns else "dicts",
    )
    read = CatalogEntry("read", "input", 1, watermark_key=at)
    job = Job(
        "bench",
        (("read", "gather"),),
        (read, entry),
        windows=(Window("w", "gather", window_key=at, **window),),
        triggers=(Trigger("w", id="t", **trigger),),
    )
    made = compile_windows(job, "gather", _none_needed)
    assert made is not None
    return made


def _none_needed(name: str) -> Callable[..., Any]:
    raise KeyError(name)


def stream(many: int, batch: int = BATCH) -> list[list[dict[str, Any]]]:
    """Batches in order of time."""
    chosen = random.Random(1)
    step_ms = MINUTE[0] * 60_000 / SEGMENTS_A_MINUTE
    keys = [f"key-{number}" for number in range(KEYS)]
    segments = [
        {"t": START_MS + int(number * step_ms), "k": chosen.choice(keys), "v": chosen.random()}
        for number in range(many)
    ]
    return [segments[begin : begin + batch] for begin in range(0, many, batch)]


def cpu_us(batches: list[list[dict[str, Any]]], made: TaskWindows) -> dict[str, float]:
    """Microseconds a segment, by part."""
    groups = [hashable_keys([each["k"] for each in batch]) for batch in batches]
    ends = [batch[-1]["t"] for batch in batches]
    return spent_us(
        made,
        ends,
        lambda number: made.add(batches[number], groups[number], 0),
        sum(map(len, batches)),
    )


def columns_us(batches: list[list[dict[str, Any]]], made: TaskWindows) -> dict[str, float]:
    """The same for columns."""
    given = [from_dicts(batch)[0] for batch in batches]
    ends = [batch[-1]["t"] for batch in batches]
    groups = GroupKeys()

    def add(number: int) -> None:
        columns = given[number]
        made.add(columns, groups.of(KeyCodes.of_column(columns, "k")), 0)

    return spent_us(made, ends, add, sum(map(len, batches)))


def spent_us(
    made: TaskWindows, ends: list[int], add: Callable[[int], object], many: int
) -> dict[str, float]:
    """Of so many segments; `ends` are the last places of batches."""
    spent = {"add": 0.0, "advance": 0.0, "changes": 0.0}
    for number, end in enumerate(ends):
        start = time.thread_time()
        add(number)
        added = time.thread_time()
        deque(made.advance(end - DISORDER_MS), 0)
        advanced = time.thread_time()
        if number % BATCHES_A_CHUNK == BATCHES_A_CHUNK - 1:
            made.take_changes()
        spent["add"] += added - start
        spent["advance"] += advanced - added
        spent["changes"] += time.thread_time() - advanced
    return {part: seconds / many * 1e6 for part, seconds in spent.items()}


def measure(options: argparse.Namespace) -> Measured:
    many = options.segments
    dicts, columns = stream(many), stream(many, BATCH_COLUMNS)
    details = {}
    for name, (window, trigger) in CASES.items():
        for shown, us_of, batches, arrays in (
            (name, cpu_us, dicts, False),
            (f"{name}, columns", columns_us, columns, False),
            (f"{name}, arrays", columns_us, columns, True),
        ):
            found = [
                us_of(batches, windows(window, trigger, arrays)) for _ in range(options.repeats)
            ]
            details[shown] = min(found, key=lambda parts: sum(parts.values()))
            parts = "  ".join(f"{part} {us:6.3f}" for part, us in details[shown].items())
            print(f"{shown:44} {sum(details[shown].values()):6.3f} us/segment   {parts}")
    goals = {
        "tumbling sum": GOAL_SUM_US,
        "global count": GOAL_COUNT_US,
        "tumbling sum, arrays": GOAL_COLUMNS_US,
        "global count, arrays": GOAL_COLUMNS_US,
        "session count, arrays": GOAL_SESSIONS_US,
    }
    return Measured(
        [
            Figure(
                f"{name} over {KEYS:,} keys", sum(details[name].values()), "us/segment", goal,
                note="CPU, with watermarks and changes",
            )
            for name, goal in goals.items()
        ],
        details,
    )  # fmt: skip


def options() -> Options:
    made = parser(__doc__)
    made.sized("--segments", 500_000, 100_000, 1_000)
    made.sized("--repeats", 3, 3, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
