"""A job whose functions have state, in a simulated world. All in it is real: states, timers, what
is spilled to the local disk, and tables, which each process reads for itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from msgspec.structs import replace
from tests.sim.keyed.checks import KeyedChecks
from tests.sim.keyed.process import KeyedProcess
from tests.sim.keyed.story import KeyedStory, draw
from tests.sim.windows.world import Options, World

from onyx.operators.keyed import keyed_states, states, timers
from onyx.state.local import spilled
from onyx.task import questions

MINUTES_A_DAY = 10
"""Here: so that timers get into slots of days as well."""


class KeyedWorld(World):
    """One run."""

    process = KeyedProcess
    made_checks = KeyedChecks  # type: ignore[assignment]
    story: KeyedStory

    def __init__(self, seed: int) -> None:
        self._limits = random.Random(f"{seed}/keyed/limits")
        self._answers = random.Random(f"{seed}/keyed/answers")
        self._maps = random.Random(f"{seed}/keyed/maps")
        super().__init__(seed)
        self.story.calls.wall_ms = self.clock.wall_ms

    def draw(self, seed: int) -> KeyedStory:
        return draw(seed)

    def draw_options(self, seed: int) -> Options:
        """Some tasks hold only a few states in memory."""
        drawn = super().draw_options(seed)
        extents_max = self._limits.choice((0, 0, 0, 3, 20))
        state = replace(drawn.settings.state, memory_extents_max=extents_max)
        return replace(drawn, settings=replace(drawn.settings, state=state))

    @contextmanager
    def patched(self) -> Iterator[None]:
        minute_ms = self._limits.choice((1_000, 5_000, 60_000))
        at_once = self._limits.choice((1, 2, 64))
        together, page, entries = (self._maps.choice((1, 2, 1_024)) for _ in range(3))
        answer_bytes = self._answers.choice((1, 8, 1_000_000))
        with ExitStack() as stack:
            stack.enter_context(super().patched())
            for module, name, value in (
                (timers, "MINUTE_MS", minute_ms),
                (timers, "DAY_MS", MINUTES_A_DAY * minute_ms),
                (keyed_states, "TIMERS_AT_ONCE", at_once),
                (spilled, "TOGETHER_MAX", together),
                (spilled, "PAGE", page),
                (states, "ENTRIES_MAX", entries),
                (questions, "STATES_BYTES_MAX", answer_bytes),
            ):
                stack.enter_context(mock.patch.object(module, name, value))
            yield
