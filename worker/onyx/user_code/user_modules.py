"""Where Python modules come from: the user's own files, or what is installed.

Imports are read from the source. To import a module and look what is there then would run it, and
would miss what a function imports when it is called.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")
"""Where installed modules are (`sysconfig`)."""
_OURS = "onyx"


def top_of(name: str) -> str:
    """The top module or package of a module, or of a function with its module."""
    return name.partition(":")[0].partition(".")[0]


def find_top(top: str) -> ModuleSpec | None:
    """A module or package that is in no other one; None if there is none, or it comes with Python.
    Nothing is imported."""
    if top in sys.stdlib_module_names:
        return None
    try:
        return importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None


def is_installed(top: str, source: Path) -> bool:
    """Whether a module with this source is installed, and so is no code of a user's project."""
    folders = (Path(sysconfig.get_path(each)) for each in _INSTALLED)
    return top == _OURS or any(source.is_relative_to(each) for each in folders)


def imported_by(source: bytes, package: str = "") -> Iterator[str]:
    """What a file imports anywhere in it, with dots: modules, and names in modules, which may be
    modules themselves. Of a file that is not Python, nothing.

    Args:
        package: that the file is in, for relative imports; without it these are left out.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            found = _absolute(node, package)
            if found:
                yield found
                yield from (f"{found}.{each.name}" for each in node.names if each.name != "*")


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parents = package.split(".") if package else []
    above = parents[: max(0, len(parents) - node.level + 1)]
    return ".".join([*above, *filter(None, [node.module])]) if above else ""
