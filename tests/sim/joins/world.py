"""A job that joins two streams, in a simulated world. The join and what it keeps are real."""

from __future__ import annotations

import random

from msgspec.structs import replace
from tests.sim.joins.checks import JoinChecks
from tests.sim.joins.story import JoinStory, draw
from tests.sim.windows.world import Options, World


class JoinWorld(World):
    """One run."""

    made_checks = JoinChecks  # type: ignore[assignment]
    poisonous = "m:lefts"
    story: JoinStory

    def draw(self, seed: int) -> JoinStory:
        return draw(seed)

    def draw_options(self, seed: int) -> Options:
        """Some joins hold only a few rows in memory."""
        drawn, choice = super().draw_options(seed), random.Random(f"{seed}/joins/limits")
        state = replace(drawn.settings.state, memory_extents_max=choice.choice((0, 0, 0, 4, 20)))
        return replace(drawn, settings=replace(drawn.settings, state=state))
