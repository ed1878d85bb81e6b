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
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.sim.bugs import NAMES
from tests.sim.cluster import Outcome, simulate
from tests.sim.joins import run as joins
from tests.sim.joins.bugs import NAMES as JOIN_NAMES
from tests.sim.keyed import run as keyed
from tests.sim.keyed.bugs import NAMES as KEYED_NAMES
from tests.sim.requests import run as requests
from tests.sim.requests.bugs import NAMES as REQUEST_NAMES
from tests.sim.windows import run as windows
from tests.sim.windows.bugs import NAMES as WINDOW_NAMES
from tests.sim.windows.run import explain as explain_job
from tests.sim.windows.run import outcomes as outcomes_of_jobs

STEPS = 1_000
CHUNK_SEEDS = 20
JOBS_SHARE = 10
"""Seeds of the cluster for each one of another world."""
WORLDS_OF_JOBS = {
    "windows": (windows.simulate, WINDOW_NAMES),
    "requests": (requests.simulate, REQUEST_NAMES),
    "keyed": (keyed.simulate, KEYED_NAMES),
    "joins": (joins.simulate, JOIN_NAMES),
}
"""With the bugs that can be planted there."""


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


def run_jobs(world: str, seeds: range, bug: str | None, jobs: int) -> bool:
    """Whether an invariant was broken in one of `WORLDS_OF_JOBS`, which is printed."""
    began_s = time.monotonic()
    rounds, virtual_s, done = 0, 0.0, 0
    one_of, _ = WORLDS_OF_JOBS[world]
    for outcome in outcomes_of_jobs(seeds, bug, jobs, one_of):
        done += 1
        rounds, virtual_s = rounds + outcome.rounds, virtual_s + outcome.virtual_s
        if outcome.problem is not None:
            print(explain_job(outcome, bug, world))
            return True
    took_s = time.monotonic() - began_s
    print(
        f"{world}: {done} jobs in {took_s:.1f} s ({done / took_s:.1f}/s): no invariant broken; "
        f"{rounds} rounds, {virtual_s:.0f} virtual seconds"
    )
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many, from 0")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--steps", type=int, default=STEPS, help="events of the chaos phase")
    worlds = {"cluster": NAMES} | {name: bugs for name, (_, bugs) in WORLDS_OF_JOBS.items()}
    bugs = [bug for names in worlds.values() for bug in names]
    parser.add_argument("--bug", choices=bugs, help="plant this bug; finding it is success")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--world", choices=worlds, help="this one only")
    args = parser.parse_args()
    if args.bug is not None:
        args.world = next(world for world, names in worlds.items() if args.bug in names)
    one = None if args.seed is None else range(args.seed, args.seed + 1)
    few = args.seeds if args.world else max(1, args.seeds // JOBS_SHARE)
    found = False
    for world in [args.world] if args.world else worlds:
        if world == "cluster":
            found = run_cluster(one or range(args.seeds), args.steps, args.bug, args.jobs)
        else:
            found = run_jobs(world, one or range(few), args.bug, args.jobs)
        if found:
            break
    return int(found == (args.bug is None))


if __name__ == "__main__":
    sys.exit(main())
