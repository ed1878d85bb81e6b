"""Which seeds `make test` runs: in `seeds.json` stands a seed of each planted bug that finds it.

They are few and are taken so that many bugs share one. So these seeds, run on the product as it is,
are as good at finding bugs like these as many more that are drawn. A change of the product or of a
world draws other faults for a seed, and then some bug shows elsewhere:

    python -m tests.sim.seeds [--world keyed]

looks for seeds anew (3 minutes of CPU for all) and writes them down.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path

from tests.sim.worlds import WORLDS, Outcome

FILE = Path(__file__).with_name("seeds.json")
FOUND: dict[str, dict[str, int]] = json.loads(FILE.read_text())
"""By world and bug."""
SEEDS_MAX = {"cluster": 1_000}
SEEDS_MAX_OF_JOBS = 300
COMMAND = "python -m tests.sim.seeds --world"


def chosen(world: str) -> list[int]:
    """The seeds of a world that `make test` runs."""
    return sorted(set(FOUND[world].values()))


def run_with(world: str, bug: str, seed: int) -> Outcome:
    """What came of a seed with a planted bug."""
    (outcome,) = WORLDS[world].outcomes([seed], bug)
    return outcome


def is_found(world: str, bug: str, seed: int) -> bool:
    """Whether a seed finds a planted bug, by an invariant by which it may be found."""
    problem: str | None = run_with(world, bug, seed).problem
    return problem is not None and problem.split(":")[0] in WORLDS[world].found_by[bug]


def first_found(world: str, bug: str, seeds: Iterable[int]) -> int | None:
    """The first of some seeds that finds a bug."""
    return next((seed for seed in seeds if is_found(world, bug, seed)), None)


def cover(world: str) -> dict[str, int]:
    """Seeds that find all bugs. Those of rare bugs come first, because they have to be there: they
    stand in the file now, and have great numbers."""
    left = dict.fromkeys(WORLDS[world].plants)
    found: dict[str, int] = {}
    known = sorted(chosen(world), reverse=True)
    seeds = dict.fromkeys((*known, *range(SEEDS_MAX.get(world, SEEDS_MAX_OF_JOBS))))
    for seed in seeds:
        began_s = time.process_time()
        mine = [bug for bug in left if is_found(world, bug, seed)]
        if mine:
            (outcome,) = WORLDS[world].outcomes([seed])
            assert outcome.problem is None, WORLDS[world].explain(outcome, None)
        found |= dict.fromkeys(mine, seed)
        for bug in mine:
            del left[bug]
        took_s = time.process_time() - began_s
        print(f"{world}, seed {seed}: {' '.join(mine) or 'nothing'} ({took_s:.1f} s)", flush=True)
        if not left:
            return found
    raise SystemExit(f"{world}: {', '.join(left)} are found by none of the seeds")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.seeds", description=__doc__)
    parser.add_argument("--world", choices=WORLDS, help="this one only")
    args = parser.parse_args()
    for world in [args.world] if args.world else WORLDS:
        found = cover(world)
        FOUND[world] = {bug: found[bug] for bug in WORLDS[world].plants}
        FILE.write_text(json.dumps(FOUND, indent=1) + "\n")


if __name__ == "__main__":
    main()
