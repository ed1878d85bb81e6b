"""The architecture page and the import contracts say the same as the packages themselves."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "worker" / "onyx"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]["contracts"]


def packages() -> set[str]:
    """Everything directly below `onyx`: packages, and modules beside them."""
    found = {path.parent.name for path in ENGINE.glob("*/__init__.py")}
    return found | {path.stem for path in ENGINE.glob("*.py") if path.stem != "__init__"}


def zones() -> dict[str, str]:
    """Package to zone, from the table under "Where to find what"."""
    table = PAGE[PAGE.index("## Where to find what") :]
    rows = re.findall(r"^\| (`.*?) \| .* \| (.*?) \|$", table, re.MULTILINE)
    return {name: zone for names, zone in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_architecture_page_lists_every_package() -> None:
    assert zones().keys() - packages() == set()
    assert packages() - zones().keys() == set()


def test_the_pure_zone_of_the_page_is_that_of_the_import_contract() -> None:
    contract = next(each for each in CONTRACTS if "pure zone" in each["name"])
    fenced = {name.removeprefix("onyx.") for name in contract["source_modules"]}
    said = {name for name, zone in zones().items() if zone == "pure"}

    assert {name for name in fenced if "." not in name} == said
