"""Run seeds: `python -m tests.sim --seeds 2000`, or look at one: `--seed 17`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.sim.bugs import NAMES
from tests.sim.cluster import Outcome, simulate

STEPS = 1_000
CHUNK_SEEDS = 20


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
    return f"make sim SEED={outcome.seed} STEPS={steps}" + (f" BUG={bug}" if bug else "")


def explain(outcome: Outcome, steps: int, bug: str | None) -> str:
    lines = [
        f"seed {outcome.seed}: {outcome.problem}",
        f"repeat with: {command(outcome, steps, bug)}",
        f"options: {outcome.options}",
        *(f"  {replica}" for replica in outcome.replicas),
        *(f"  {event}" for event in outcome.recent),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many, from 0")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--steps", type=int, default=STEPS, help="events of the chaos phase")
    parser.add_argument("--bug", choices=NAMES, help="plant this bug; finding it is success")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args()
    seeds = range(args.seeds) if args.seed is None else range(args.seed, args.seed + 1)
    began_s, steps, entries, virtual_s, done = time.monotonic(), 0, 0, 0.0, 0
    for outcome in outcomes(seeds, args.steps, args.bug, args.jobs):
        done += 1
        steps, entries = steps + outcome.steps, entries + outcome.entries
        virtual_s += outcome.virtual_s
        if outcome.problem is not None:
            print(explain(outcome, args.steps, args.bug))
            return 0 if args.bug else 1
    took_s = time.monotonic() - began_s
    print(
        f"{done} schedules in {took_s:.1f} s ({done / took_s:.0f}/s): no invariant broken; "
        f"{steps} events, {entries} log entries, {virtual_s:.0f} virtual seconds"
    )
    return 1 if args.bug else 0


if __name__ == "__main__":
    sys.exit(main())
