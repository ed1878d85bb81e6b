"""Run seeds: `python -m tests.sim --seeds 2000`, or look at one: `--seed 17 --world cluster`.

There are five worlds: `cluster` (the replica and its groups under a simulated ZooKeeper), `windows`
(the tasks of a windowed job over stores that fail), `requests` (jobs whose segments clients hand
over, and their journals), `keyed` (jobs whose functions have state and timers, and tables) and
`joins` (of two streams). A run of the last four takes so much longer that each gets a tenth of the
seeds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.sim.cluster import STEPS
from tests.sim.worlds import WORLD_OF, WORLDS

JOBS_SHARE = 10
"""Seeds of the cluster for each one of another world."""
COUNTED = ("steps", "entries", "rounds", "virtual_s")
"""What is added up of all runs, where the world counts it."""


def run(world: str, seeds: range, bug: str | None, jobs: int, **more: int) -> bool:
    """Whether an invariant was broken, which is printed."""
    began_s, kind = time.monotonic(), WORLDS[world]
    done: Counter[str] = Counter()
    for outcome in kind.outcomes(seeds, bug, jobs, **more):
        done.update({each: getattr(outcome, each, 0) for each in COUNTED})
        if outcome.problem is not None:
            print(kind.explain(outcome, bug, **more))
            return True
    took_s = time.monotonic() - began_s
    counted = ", ".join(f"{many:.0f} {each}" for each, many in done.items() if many)
    runs = f"{len(seeds)} runs in {took_s:.1f} s ({len(seeds) / took_s:.1f}/s)"
    print(f"{world}: {runs}: no invariant broken; {counted}")
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many, from 0")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--steps", type=int, default=STEPS, help="events of the chaos phase")
    parser.add_argument("--bug", choices=WORLD_OF, help="plant this bug; finding it is success")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--world", choices=WORLDS, help="this one only")
    args = parser.parse_args()
    if args.bug is not None:
        args.world = WORLD_OF[args.bug]
    few = args.seeds if args.world else max(1, args.seeds // JOBS_SHARE)
    found = False
    for world in [args.world] if args.world else WORLDS:
        many = args.seeds if world == "cluster" else few
        seeds = range(many) if args.seed is None else range(args.seed, args.seed + 1)
        more = {"steps": args.steps} if world == "cluster" else {}
        found = run(world, seeds, args.bug, args.jobs, **more)
        if found:
            break
    return int(found == (args.bug is None))


if __name__ == "__main__":
    sys.exit(main())
