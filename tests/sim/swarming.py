"""What the tests of every world of jobs ask of its runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Container, Iterable
from pathlib import Path

from tests.sim.windows.run import Outcome, Simulate, explain, outcomes

ROOT = Path(__file__).parents[2]
SEEDS_OF_HASHES = 3


def first_found(runs: Iterable[Outcome]) -> Outcome | None:
    """The first run in which an invariant broke."""
    return next((each for each in runs if each.problem is not None), None)


SEEDS_MAX = 60
"""So many seeds are looked at for a planted bug."""


def check_that_nothing_breaks(seeds: range, world: str, simulate: Simulate) -> None:
    """No invariant breaks."""
    for outcome in outcomes(seeds, bug=None, jobs=1, one_of=simulate):
        assert outcome.problem is None, explain(outcome, None, world)


def check_that_it_is_found(
    bug: str, first: int, by: Container[str], world: str, simulate: Simulate
) -> None:
    """A planted bug is found.

    Args:
        first: seed to begin with.
        by: the invariants by which it may be: another one would mean that it is not understood.
    """
    seeds = range(first, first + SEEDS_MAX)
    found = first_found(outcomes(seeds, bug, jobs=1, one_of=simulate))
    assert found is not None, f"{bug} is not found"
    assert found.problem is not None
    assert found.problem.split(":")[0] in by, explain(found, bug, world)


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
