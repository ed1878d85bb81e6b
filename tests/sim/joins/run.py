"""Seeds of the world of joins: what came of each."""

from __future__ import annotations

from tests.sim.joins.bugs import planted
from tests.sim.joins.world import JoinWorld
from tests.sim.windows.run import Outcome
from tests.sim.windows.run import simulate as simulate_world


def simulate(seed: int, bug: str | None = None) -> Outcome:
    """One run; the first violation ends it."""
    return simulate_world(seed, bug, JoinWorld, planted)
