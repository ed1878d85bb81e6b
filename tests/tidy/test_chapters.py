"""A module is a chapter: deep enough to be opened once, and named by words that mean one thing.

What slips cost was measured: 16 % as many lines of imports as of code, and 42 files that a person
opened to follow one batch. The bounds are the product as it is, rounded to the worse side: they are
only ever tightened.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import grimp
from tests.tidy.test_house_rules import ROOT, SOURCES, nodes

CODE_LINES_MEAN_MIN = 106.0
IMPORTS_MAX = 0.134
"""Lines of imports for each line of code."""
SLIP_LINES = 30
SLIPS_MAX = 4
"""Modules with fewer lines of code than `SLIP_LINES` and one importer, which they could join."""
SHARED_NAMES_MAX = 57
"""Names that two classes or more have: who searches for one finds the other."""
ASSERTIONS_MIN = 11.0
"""In a thousand lines of code of what changes state, without those that narrow a type."""
STATE_MACHINES = ("replica", "ledger", "state", "journal", "operators")
LISTED = (
    "cli/commands/", "replica/commands/", "windows/triggers/", "windows/types/",
    "windows/aggregations/", "plugins/", "model/rules/", "model/job/",
)  # fmt: skip
"""What a table lists stays apart, however small."""


@cache
def imports(path: Path) -> int:
    """Lines of imports."""
    return len(
        _lines(node for node in nodes(path) if isinstance(node, ast.Import | ast.ImportFrom))
    )


@cache
def code(path: Path) -> int:
    """Lines without imports, docstrings, comments and blank ones."""
    docstrings = _lines(
        node
        for node in nodes(path)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
    lines = (line.strip() for line in path.read_text().splitlines())
    found = {number for number, line in enumerate(lines, 1) if line and not line.startswith("#")}
    return len(found - docstrings) - imports(path)


def _lines(found: Iterable[ast.stmt]) -> set[int]:
    return {line for node in found for line in range(node.lineno, (node.end_lineno or 0) + 1)}


@cache
def modules() -> list[Path]:
    """What is more than the docstring of a package. Found when it is asked for: each process of
    pytest imports this file, and one of them looks at the sources."""
    return [path for path in SOURCES if code(path)]


def test_modules_are_chapters() -> None:
    lines = sum(map(code, modules()))

    assert lines / len(modules()) >= CODE_LINES_MEAN_MIN
    assert sum(map(imports, modules())) / lines <= IMPORTS_MAX


def test_slips_join_the_chapter_that_needs_them() -> None:
    graph = grimp.build_graph("onyx", "onyx_operator", cache_dir=None)
    slips = [
        str(path.relative_to(ROOT))
        for path in modules()
        if code(path) < SLIP_LINES
        and not any(listed in path.as_posix() for listed in LISTED)
        and len(graph.find_modules_that_directly_import(_name(path))) == 1
    ]

    assert len(slips) <= SLIPS_MAX, slips


def test_a_name_of_a_class_means_one_thing() -> None:
    names = Counter(
        node.name for path in SOURCES for node in nodes(path) if isinstance(node, ast.ClassDef)
    )

    shared = sorted(name for name, count in names.items() if count > 1)
    assert len(shared) <= SHARED_NAMES_MAX, shared


def test_state_machines_assert_what_they_rely_on() -> None:
    """An assertion that only says that a value is there is one for the type checker."""
    engine = ROOT / "worker" / "onyx"
    found = [path for room in STATE_MACHINES for path in SOURCES if engine / room in path.parents]
    asserted = sum(
        isinstance(node, ast.Assert) and not _narrows(node.test)
        for path in found
        for node in nodes(path)
    )

    assert asserted / sum(map(code, found)) * 1_000 >= ASSERTIONS_MIN


def _narrows(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp):
        return all(map(_narrows, test.values))
    if isinstance(test, ast.Compare):
        nothing = test.comparators[0]
        return isinstance(nothing, ast.Constant) and nothing.value is None
    return isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance"


def _name(path: Path) -> str:
    """`onyx.log.zookeeper.subscription` of `worker/onyx/log/zookeeper/subscription.py`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__")
