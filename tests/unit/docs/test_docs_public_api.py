"""The page of the public API lists what is exported; guides and examples use nothing else."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.generated.public_api import MODULES, PAGE, public_names

ROOT = Path(__file__).parents[3]
GUIDES = [ROOT / "README.md", *sorted(ROOT.glob("docs/guide/*.md"))]
EXAMPLES = sorted(ROOT.glob("examples/**/*.py"))
PACKAGES = {each.stem for each in (ROOT / "worker" / "onyx").iterdir() if each.stem.islower()}
INTERNAL = re.compile(r"\bonyx\.([a-z_]+)((?:\.\w+)*)")


def exported(name: str) -> set[str]:
    """Dotted names that a user may write: a public module and what it offers."""
    return {name} | {f"{name}.{each}" for each in public_names(importlib.import_module(name))}


PUBLIC = set[str]().union(*map(exported, MODULES))


def imported(code: str) -> Iterator[str]:
    """Dotted names that code imports from Onyx."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "onyx":
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] == "onyx")


def test_the_page_lists_what_is_exported() -> None:
    listed: dict[str, list[str]] = {}
    for line in PAGE.read_text().splitlines():
        if heading := re.fullmatch(r"## `(.+)`", line):
            listed[heading[1]] = []
        elif row := re.match(r"\| `(.+?)` \|", line):
            listed[list(listed)[-1]].append(row[1])

    assert listed == {
        each: list(public_names(importlib.import_module(each))) for each in MODULES
    }, "run python -m tests.support.generated.public_api"


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_there(name: str) -> None:
    module = importlib.import_module(name)

    assert [each for each in public_names(module) if not hasattr(module, each)] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_import_only_public_names(path: Path) -> None:
    assert set(imported(path.read_text())) - PUBLIC == set()


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_guides_name_only_public_modules(path: Path) -> None:
    text = path.read_text()
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        assert set(imported(code)) - PUBLIC == set()
    named = {f"onyx.{first}{rest}" for first, rest in INTERNAL.findall(text) if first in PACKAGES}
    assert named - PUBLIC == set()
