"""The module of a stage, for Spark processes that do not run from this worker's folders.

A function that a stage gives to Spark (a UDF) is sent by its name, and looked up by Spark's Python
workers, wherever they run. So the top module or package of the stage goes along; what else it
imports has to be installed there. With a whole job go all modules that its worker offers and that
are not installed, because what is installed for the worker is installed for Spark too.
"""

from __future__ import annotations

import importlib
import logging
import sysconfig
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onyx.errors import UserError

logger = logging.getLogger("onyx.spark")
BYTES_MAX = 67_108_864
"""Of the Python files of a package."""
_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")
"""Where installed modules are (`sysconfig`)."""


def ship(session: Any, stage: str, scratch: Path) -> None:
    """Let the session's Python workers import the module of a stage.

    Raises:
        UserError: the package is too large.
    """
    file = _file_of(_top(stage.partition(":")[0]), scratch)
    if file is not None:
        session.addArtifacts(str(file), pyfile=True)


def ship_modules(session: Any, modules: Iterable[str], scratch: Path) -> None:
    """Let the session's Python workers import these modules. One that is installed here, or too
    large, has to be there."""
    installed = [Path(sysconfig.get_path(each)) for each in _INSTALLED]
    for top in sorted({_top(module) for module in modules}):
        origin = importlib.import_module(top).__file__
        if origin is None or any(Path(origin).is_relative_to(each) for each in installed):
            continue
        try:
            file = _file_of(top, scratch)
        except UserError as error:
            logger.warning("%s; it is taken to be there", error)
            continue
        session.addArtifacts(str(file), pyfile=True)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _file_of(top: str, scratch: Path) -> Path | None:
    """What is sent of a module or package."""
    module = importlib.import_module(top)
    if module.__file__ is None:
        return (
            None  # a package without files of its own cannot be distinguished from its neighbours
        )
    file = Path(module.__file__)
    return _zipped(file.parent, scratch / f"{top}.zip") if hasattr(module, "__path__") else file


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
