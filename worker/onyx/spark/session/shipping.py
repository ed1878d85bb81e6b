"""The modules of a user, for Spark processes that do not run from this worker's folders.

A function that is given to Spark (a UDF, or a task of a job) is sent by its name, and looked up by
Spark's Python workers, wherever they run. So its top module or package goes along, and what that
imports. What is installed for the worker is installed for Spark too.
"""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onyx.errors import UserError
from onyx.user_code.code_hash import find_top, imported_by, is_installed, top_of

logger = logging.getLogger("onyx.spark")
BYTES_MAX = 67_108_864
"""The size of the Python files of a package."""
MODULES_MAX = 256
"""Top modules and packages that are sent."""
FILES_MAX = 2_000
"""The files of a package, that are looked through for what they import."""


def ship(session: Any, stage: str, scratch: Path) -> None:
    """Let the session's Python workers import the module of a stage, and what it imports.

    Raises:
        UserError: its package is too large.
    """
    top = top_of(stage)
    source = _source_of(top)
    if source is not None:
        session.addArtifacts(str(_file_of(top, source, scratch)), pyfile=True)
    _send(session, [each for each in _with_imports([top]) if each != top], scratch)


def ship_modules(session: Any, modules: Iterable[str], scratch: Path) -> None:
    """Let the session's Python workers import these modules, and what they import. One that is
    installed here, or too large, has to be there."""
    _send(session, _with_imports(sorted({top_of(module) for module in modules})), scratch)


def _send(session: Any, tops: Iterable[str], scratch: Path) -> None:
    for top in sorted(tops):
        source = _source_of(top)
        if source is None or is_installed(top, source):
            continue
        try:
            file = _file_of(top, source, scratch)
        except UserError as error:
            logger.warning("%s; it is taken to be there", error)
            continue
        session.addArtifacts(str(file), pyfile=True)


def _with_imports(tops: Iterable[str]) -> list[str]:
    """These, and what they import, except for what is installed."""
    found, waiting = list[str](), list(tops)
    while waiting and len(found) < MODULES_MAX:
        top = waiting.pop()
        source = None if top in found else _source_of(top)
        if source is None or is_installed(top, source):
            continue
        found.append(top)
        files = sorted(source.parent.rglob("*.py")) if source.name == "__init__.py" else [source]
        waiting += sorted({each for file in files[:FILES_MAX] for each in _imported_by(file)})
    return found


def _imported_by(file: Path) -> set[str]:
    """Top modules that a file imports; of one that cannot be read, none."""
    try:
        return {top_of(each) for each in imported_by(file.read_bytes())}
    except OSError:
        return set()


def _source_of(top: str) -> Path | None:
    """The file of a module; of a package its `__init__.py`. None if there is none: such a package
    cannot be distinguished from its neighbours."""
    spec = find_top(top)
    found = None if spec is None or spec.origin is None else Path(spec.origin)
    return found if found is not None and found.suffix == ".py" else None


def _file_of(top: str, source: Path, scratch: Path) -> Path:
    """What is sent of a module or package."""
    if source.name != "__init__.py":
        return source
    return _zipped(source.parent, scratch / f"{top}.zip")


def _zipped(package: Path, target: Path) -> Path:
    size_bytes = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*.py")):
            size_bytes += path.stat().st_size
            if size_bytes > BYTES_MAX:
                raise UserError(
                    f"the Python files of {package} have more than {BYTES_MAX} bytes, too many to "
                    "send to Spark: put the stage into a package of its own"
                )
            archive.write(path, path.relative_to(package.parent))
    return target
