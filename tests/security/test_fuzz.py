"""A few of the cases that `make long` tries for ten minutes; see `tests.fuzz`."""

from __future__ import annotations

import math

import pytest
from tests.fuzz.__main__ import attack
from tests.fuzz.targets import TARGETS
from tests.support.examples import examples

CASES = 200


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_changed_anywhere_passes_or_is_refused_in_words(target: str) -> None:
    many = examples(CASES)
    assert attack(target, range(many), math.inf) == many
