"""The walk through the code names modules that exist, each once."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

WALK = Path(__file__).parents[3] / "docs" / "walk.md"


def walks() -> list[list[str]]:
    """The first cells of the tables, one list a table."""
    _, *parts = WALK.read_text().split("\n## ")
    return [re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE) for part in parts]


def test_every_step_of_the_walk_is_in_the_code() -> None:
    steps = [step for walk in walks() for step in walk]
    assert len(steps) > 30
    for step in steps:
        module, _, name = step.partition(":")
        package = "" if module.startswith("onyx_operator/") else "onyx."
        found = importlib.import_module(f"{package}{module.replace('/', '.')}")
        assert hasattr(found, name), step


def test_a_walk_takes_no_step_back() -> None:
    for walk in walks():
        modules = [step.partition(":")[0] for step in walk]
        assert len(set(modules)) == len(modules)
