"""How much of what is alike tests try: in `make test` a part of what they try in `make test-all`.

Properties try as many examples as the profile of Hypothesis says, which
`tests.support.suite.tiers` chooses. Tests that need another number than its default say it here,
so that the profile counts for them too. Tests of a fault at any moment take every third moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from tests.support.suite.tiers import EXAMPLES

EVERY = 3


def examples(full: int) -> int:
    """As many as the profile tries of so many, and one at least."""
    return max(1, full * settings().max_examples // EXAMPLES["full"])


def some_of(moments: Iterable[Any]) -> list[Any]:
    """Values of a parameter, such as moments at which a peer dies: every third is in both tiers,
    the others are `slow`."""
    return [
        moment if number % EVERY == 0 else pytest.param(moment, marks=pytest.mark.slow)
        for number, moment in enumerate(moments)
    ]
