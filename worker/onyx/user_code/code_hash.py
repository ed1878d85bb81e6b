"""One short hash over the source of the modules that a worker was started with.

It covers the modules that are listed, all Python files of packages that are listed, and what these
import of the user's own files: who changes a helper changes the job as well. What is installed for
Python is covered only where it is listed. Content counts, with the names of modules: paths and
times differ between machines that run the same code. Versions that users maintain were rejected:
the change that goes unnoticed is the one without a new version.

Imports are read from the source. To import a module and look what is there then would run it, and
would miss what a function imports when it is called.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import logging
import os
import pkgutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

logger = logging.getLogger(__name__)
DIGITS = 8
FILES_MAX = 2_000
BYTES_MAX = 67_108_864
"""The size of all files together."""
LOOKED_THROUGH_MAX = 256
"""Files that are looked through for what they import."""
_SUFFIX = ".py"


def code_hash(modules: Sequence[str]) -> str:
    """The hash in hexadecimal digits; empty without modules. What cannot be read counts as empty.

    Reads files and imports nothing. The modules should be imported already.
    """
    if not modules:
        return ""
    found = _Sources(modules)
    digest = hashlib.sha256()
    for name, data in sorted(found.contents.items()):
        digest.update(f"{len(name)} {len(data)} {name}\n".encode("utf-8", "surrogateescape"))
        digest.update(data)
    if found.cut:
        logger.warning(
            "the modules %s have more than %s files or %s bytes: the hash of the code covers only "
            "the first of them",
            ", ".join(modules),
            f"{FILES_MAX:,}",
            f"{BYTES_MAX:,}",
        )
    return digest.hexdigest()[:DIGITS]


class _Sources:
    """The files of some modules and of what they import, by the names of modules."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.contents: dict[str, bytes] = {}
        self.cut = False
        self._bytes_left = BYTES_MAX
        self._waiting: list[str] = []
        self._looked_through = 0
        for name in sorted(set(modules)):
            chain = _chain(name)
            for spec in chain:
                self._add_module(spec)
            if chain and chain[-1].name == name:
                self._add_package(chain[-1])
        self._add_imports()

    def _add_imports(self) -> None:
        seen: set[str] = set()
        while self._waiting:
            level, self._waiting = sorted(set(self._waiting) - seen), []
            seen.update(level)
            for name in level:
                chain = _chain(name)
                if chain and not _is_installed(chain[0]):
                    for spec in chain:
                        self._add_module(spec)

    def _add_module(self, spec: ModuleSpec) -> None:
        if spec.origin is not None and spec.has_location:
            is_package = spec.submodule_search_locations is not None
            self._add(spec.name, Path(spec.origin), spec.name if is_package else spec.parent or "")

    def _add_package(self, spec: ModuleSpec) -> None:
        for folder in spec.submodule_search_locations or ():
            for path in _python_files(Path(folder)):
                if len(self.contents) >= FILES_MAX:
                    self.cut = True
                    return
                *inner, last = path.relative_to(folder).with_suffix("").parts
                package = ".".join((spec.name, *inner))
                self._add(package if last == "__init__" else f"{package}.{last}", path, package)

    def _add(self, name: str, path: Path, package: str) -> None:
        if name in self.contents:
            return
        data = _read(path, self._bytes_left + 1)
        if len(self.contents) >= FILES_MAX or len(data) > self._bytes_left:
            self.cut = True
            return
        self._bytes_left -= len(data)
        self.contents[name] = data
        if path.suffix == _SUFFIX and self._looked_through < LOOKED_THROUGH_MAX:
            self._looked_through += 1
            self._waiting += imported_by(data, package)


def _chain(name: str) -> list[ModuleSpec]:
    """A module after the packages that it is in, as far as they are found."""
    found = list[ModuleSpec]()
    spec = find_top(top_of(name))
    for part in [*name.split(".")[1:], ""]:
        if spec is None:
            break
        found.append(spec)
        if not part or spec.submodule_search_locations is None:
            break
        spec = _inside(spec.submodule_search_locations, f"{spec.name}.{part}")
    return found


def _inside(folders: Iterable[str], name: str) -> ModuleSpec | None:
    """A module of a package that need not be imported: Python's own search asks what is imported
    where a folder without `__init__.py` is inside a package."""
    open_folder = None
    for folder in folders:
        finder = pkgutil.get_importer(folder)
        spec = None if finder is None else finder.find_spec(name)
        if spec is not None and spec.loader is not None:
            return spec
        open_folder = open_folder or spec
    return open_folder


def _is_installed(spec: ModuleSpec) -> bool:
    paths = list(spec.submodule_search_locations or ())
    paths += [spec.origin] if spec.origin is not None and spec.has_location else []
    return all(is_installed(spec.name, Path(each)) for each in paths)


def _python_files(folder: Path) -> Iterator[Path]:
    """The files of Python below a folder, in a fixed order, without hidden folders: in a mounted
    ConfigMap these hold every file once more, under a name with a time."""
    for below, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for each in sorted(files):
            if each.endswith(_SUFFIX) and not each.startswith("."):
                yield Path(below, each)


def _read(path: Path, bytes_max: int) -> bytes:
    try:
        if path.is_file():
            with path.open("rb") as file:
                return file.read(bytes_max)
    except OSError as error:
        logger.info("%s is left out of the hash of the code: %s", path, error)
    return b""


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
