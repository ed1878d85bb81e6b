"""Style that no linter checks, as tests: sizes, docstrings, forbidden names, the operator trap."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "worker" / "onyx", ROOT / "operator" / "onyx_operator")
SOURCES = sorted(
    path for package in PACKAGES for path in package.rglob("*.py") if "wire" not in path.parts
)
FILE_LINES_MAX = 500
FILE_LINES_MEDIAN_MAX = 150
FUNCTION_LINES_MAX = 60
TABLES = {"information.py", "catalog.py"}
"""Tables of data may be long."""
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
FORBIDDEN_CALLS = {"eval", "exec"}


def line_count(path: Path) -> int:
    return path.read_text().count("\n")


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_files_are_small() -> None:
    large = {
        str(path.relative_to(ROOT)): line_count(path)
        for path in SOURCES
        if path.name not in TABLES and line_count(path) > FILE_LINES_MAX
    }

    assert large == {}
    assert statistics.median(map(line_count, SOURCES)) <= FILE_LINES_MEDIAN_MAX


def test_functions_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in functions(path)
        if (node.end_lineno or node.lineno) - node.lineno > FUNCTION_LINES_MAX
    ]

    assert long == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]

    assert silent == []


def test_nothing_is_unpickled_or_evaluated() -> None:
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            if FORBIDDEN_MODULES.intersection(names):
                found.append(f"{path}: imports {names}")
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name) and called.id in FORBIDDEN_CALLS:
                found.append(f"{path}:{node.lineno} calls {called.id}")

    assert found == []


@pytest.mark.parametrize("folder", ["operator", "worker"])
def test_a_top_folder_is_no_package(folder: str) -> None:
    """An `__init__.py` in `operator/` would shadow the standard library's module of that name."""
    assert not (ROOT / folder / "__init__.py").exists()


def test_the_standard_operator_module_is_found_from_the_root() -> None:
    command = [sys.executable, "-c", "import operator; operator.eq(1, 1)"]

    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def name_of(node: ast.expr) -> str:
    """`prepared` of `@prepared`, `json.decode` of `msgspec.json.decode(...)`."""
    return ast.unparse(node).removeprefix("msgspec.")


def classes_read(path: Path) -> Iterator[str]:
    """Names of the classes that msgspec is told to read when a value comes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and name_of(node.func) in READERS:
            kinds = [each.value for each in node.keywords if each.arg == "type"]
            kinds += node.args[1:] if name_of(node.func) == "convert" else []
            yield from (kind.id for kind in kinds if isinstance(kind, ast.Name))


READERS = ("convert", "json.decode", "msgpack.decode")
CHECKED_OTHERWISE = {"hint"}
"""A variable and not a class: `onyx.structs.convert`, whose callers see to it."""


def test_classes_that_msgspec_reads_are_prepared_for_threads() -> None:
    """Why: `onyx.structs`."""
    prepared = {
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and "prepared" in map(name_of, node.decorator_list[:1])
    }
    read = {name for path in SOURCES for name in classes_read(path)}

    assert len(read) > 5
    assert read - prepared - CHECKED_OTHERWISE == set()
