"""The cluster survives everything that the simulator can do to it, and a seed means one run."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from tests.sim.__main__ import STEPS, explain, outcomes
from tests.sim.cluster import simulate
from tests.sim.swarm import FAMILIES, draw_options

pytestmark = pytest.mark.simulation
SEEDS = range(500)
LONG_SEEDS = range(500, 3_000)
PART_SEEDS = 100
"""Of one test: several run at once, and none takes long enough to look as if it hung."""
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "first",
    [
        *SEEDS[::PART_SEEDS],
        *(pytest.param(each, marks=pytest.mark.slow) for each in LONG_SEEDS[::PART_SEEDS]),
    ],
)
def test_no_invariant_breaks(first):
    seeds = range(first, first + PART_SEEDS)
    for outcome in outcomes(seeds, STEPS, bug=None, jobs=1):
        assert outcome.problem is None, explain(outcome, STEPS, bug=None)


def test_every_fault_family_is_on_in_a_third_of_the_schedules():
    on = [family for seed in SEEDS for family, _ in draw_options(seed).periods_s]

    assert [family for family in FAMILIES if on.count(family) < len(SEEDS) / 3] == []


def test_the_same_seed_is_the_same_run():
    seeds = range(10)
    first = [simulate(seed, STEPS).trace_hash for seed in seeds]

    assert first == [simulate(seed, STEPS).trace_hash for seed in seeds]
    assert len(set(first)) == len(seeds)


def test_a_run_does_not_depend_on_the_hash_seed():
    with ProcessPoolExecutor(2) as pool:
        one, other = pool.map(_hashes_under, ("1", "2"))

    assert one == other
    assert one.count("\n") == 10


def _hashes_under(hash_seed: str) -> str:
    script = (
        "from tests.sim.cluster import simulate\n"
        "for seed in range(10): print(simulate(seed, 1000).trace_hash)"
    )
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
