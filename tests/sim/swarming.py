"""What the tests of every world of jobs ask of its runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.sim.windows.run import Outcome

ROOT = Path(__file__).parents[2]
SEEDS_OF_HASHES = 3


def first_found(runs: Iterable[Outcome]) -> Outcome | None:
    """The first run in which an invariant broke."""
    return next((each for each in runs if each.problem is not None), None)


def check_that_runs_depend_on_their_seeds(simulate: Callable[[int], Outcome]) -> None:
    """Another process, whose sets have another order, gives the same runs."""
    script = (
        f"from {simulate.__module__} import simulate\n"
        f"for seed in range({SEEDS_OF_HASHES}): print(simulate(seed).trace_hash)"
    )
    reported = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    here = [simulate(seed).trace_hash for seed in range(SEEDS_OF_HASHES)]
    assert reported.split() == here
    assert len(set(here)) == SEEDS_OF_HASHES
