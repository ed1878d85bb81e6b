"""The module of a stage, for Spark processes that do not run from this worker's folders.

A function that a stage gives to Spark (a UDF) is sent by its name, and looked up by Spark's Python
workers, wherever they run. So the top module or package of the stage goes along; what else it
imports has to be installed there.
"""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path
from typing import Any

from onyx.errors import UserError

BYTES_MAX = 67_108_864
"""Of the Python files of a package."""


def ship(session: Any, stage: str, scratch: Path) -> None:
    """Let the session's Python workers import the module of a stage.

    Raises:
        UserError: the package is too large.
    """
    top = importlib.import_module(stage.partition(":")[0].partition(".")[0])
    if top.__file__ is None:
        return  # a package without files of its own cannot be distinguished from what is beside it
    file = Path(top.__file__)
    if hasattr(top, "__path__"):
        file = _zipped(file.parent, scratch / f"{top.__name__}.zip")
    session.addArtifacts(str(file), pyfile=True)


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
