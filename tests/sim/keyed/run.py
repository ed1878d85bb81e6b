"""Seeds of the world of state by key: what came of each."""

from __future__ import annotations

from tests.sim.keyed.bugs import planted
from tests.sim.keyed.world import KeyedWorld
from tests.sim.windows.run import Outcome
from tests.sim.windows.run import simulate as simulate_world


def simulate(seed: int, bug: str | None = None) -> Outcome:
    """One run; the first violation ends it."""
    return simulate_world(seed, bug, KeyedWorld, planted)
