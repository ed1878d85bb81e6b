"""Compares random jobs with DuckDB: `--seeds 2000` of each world, or `--world sql --seed 7`."""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from pathlib import Path

from tests.engines.cases import WORLDS, case
from tests.engines.running import difference


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.engines", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many of each world, from 0")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--world", choices=WORLDS, help="this one only")
    chosen = parser.parse_args()
    seeds = range(chosen.seeds) if chosen.seed is None else [chosen.seed]
    for world in [chosen.world] if chosen.world else WORLDS:
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                found = difference(case(world, seed), Path(folder))
                gc.collect()  # stores on disk close before their folder goes
            if found:
                print(f"{found}\npython -m tests.engines --world {world} --seed {seed}")
                return 1
        print(f"{world}: {len(seeds)} jobs write what DuckDB gives")
    return 0


if __name__ == "__main__":
    sys.exit(main())
