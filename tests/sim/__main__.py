"""Run seeds: `python -m tests.sim --seeds 2000`, or look at one: `--seed 17 --world cluster`.

There are two worlds: `cluster` (the replica and its groups under a simulated ZooKeeper) and
`windows` (the tasks of a windowed job over stores that fail). A run of the second takes so much
longer that it gets a tenth of the seeds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.sim.bugs import NAMES
from tests.sim.cluster import Outcome, simulate
from tests.sim.windows import run as windows
from tests.sim.windows.bugs import NAMES as WINDOW_NAMES

STEPS = 1_000
CHUNK_SEEDS = 20
WINDOWS_SHARE = 10
"""Seeds of the cluster for each one of the windows."""


def outcomes(seeds: range, steps: int, bug: str | None, jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order of the seeds, computed by `jobs` processes."""
    one = partial(simulate, steps=steps, bug=bug)
    if jobs == 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(one, seeds, chunksize=CHUNK_SEEDS)


def command(outcome: Outcome, steps: int, bug: str | None) -> str:
    """The one line that repeats this run."""
    return f"make sim WORLD=cluster SEED={outcome.seed} STEPS={steps}" + (
        f" BUG={bug}" if bug else ""
    )


def explain(outcome: Outcome, steps: int, bug: str | None) -> str:
    lines = [
        f"seed {outcome.seed}: {outcome.problem}",
        f"repeat with: {command(outcome, steps, bug)}",
        f"options: {outcome.options}",
        *(f"  {replica}" for replica in outcome.replicas),
        *(f"  {event}" for event in outcome.recent),
    ]
    return "\n".join(lines)


def run_cluster(seeds: range, steps: int, bug: str | None, jobs: int) -> bool:
    """Whether an invariant was broken, which is printed."""
    began_s = time.monotonic()
    events, entries, virtual_s, done = 0, 0, 0.0, 0
    for outcome in outcomes(seeds, steps, bug, jobs):
        done += 1
        events, entries = events + outcome.steps, entries + outcome.entries
        virtual_s += outcome.virtual_s
        if outcome.problem is not None:
            print(explain(outcome, steps, bug))
            return True
    took_s = time.monotonic() - began_s
    print(
        f"cluster: {done} schedules in {took_s:.1f} s ({done / took_s:.0f}/s): no invariant "
        f"broken; {events} events, {entries} log entries, {virtual_s:.0f} virtual seconds"
    )
    return False


def run_windows(seeds: range, bug: str | None, jobs: int) -> bool:
    """Whether an invariant was broken, which is printed."""
    began_s = time.monotonic()
    rounds, virtual_s, done = 0, 0.0, 0
    for outcome in windows.outcomes(seeds, bug, jobs):
        done += 1
        rounds, virtual_s = rounds + outcome.rounds, virtual_s + outcome.virtual_s
        if outcome.problem is not None:
            print(windows.explain(outcome, bug))
            return True
    took_s = time.monotonic() - began_s
    print(
        f"windows: {done} jobs in {took_s:.1f} s ({done / took_s:.1f}/s): no invariant broken; "
        f"{rounds} rounds, {virtual_s:.0f} virtual seconds"
    )
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many, from 0")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--steps", type=int, default=STEPS, help="events of the chaos phase")
    bugs = (*NAMES, *WINDOW_NAMES)
    parser.add_argument("--bug", choices=bugs, help="plant this bug; finding it is success")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--world", choices=("cluster", "windows"), help="this one only")
    args = parser.parse_args()
    if args.bug is not None:
        args.world = "windows" if args.bug in WINDOW_NAMES else "cluster"
    one = None if args.seed is None else range(args.seed, args.seed + 1)
    found = False
    if args.world != "windows":
        found = run_cluster(one or range(args.seeds), args.steps, args.bug, args.jobs)
    if args.world != "cluster" and not found:
        seeds = args.seeds if args.world else max(1, args.seeds // WINDOWS_SHARE)
        found = run_windows(one or range(seeds), args.bug, args.jobs)
    return int(found == (args.bug is None))


if __name__ == "__main__":
    sys.exit(main())
