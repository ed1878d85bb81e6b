"""Programs of the cluster, built once a version from Go modules.

Each module is built in a scratch module of its own: `go install` refuses modules with replacements,
and several programs of one module then share their dependencies. What has been built is kept by
version; the sources' folder is only needed for building.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.cluster.commands import ClusterError, run
from tests.cluster.components import GO_MODULES, ON_DEMAND, GoModule
from tests.cluster.layout import CACHE

BUILD_TIMEOUT_S = 1800.0
GO_MIN = (1, 26)
_MODULE_FILE = "module {name}\n\ngo 1.26.0\n\nreplace (\n{replaced}\n)\n"


def program(name: str) -> Path:
    """Where a program is, once it has been built."""
    return next(path for path, each, _ in _programs() if each == name)


def are_built() -> bool:
    """Whether all programs are there."""
    return all(target.exists() for target, _, _ in _programs())


def why_impossible() -> str:
    """Why programs that are missing cannot be built; empty when they can, or are there."""
    if are_built():
        return ""
    if shutil.which("go") is None:
        return "programs have to be built, and there is no Go"
    found = re.search(r"go(\d+)\.(\d+)", run("go", "env", "GOVERSION"))
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    own = run("go", "env", "GOTOOLCHAIN").strip() == "local"
    if version < GO_MIN and own:
        return f"programs have to be built with Go {GO_MIN[0]}.{GO_MIN[1]} or later"
    return ""


def build(only: Iterable[str] = ()) -> None:
    """Build what is missing, of all programs of a cluster or of some. Some minutes on two cores.

    Raises:
        ClusterError: there is no Go, or a build failed.
    """
    wanted = set(only) or {name for each in GO_MODULES for name in each.programs}
    for target, name, module in _programs():
        if name in wanted and not target.exists():
            if reason := why_impossible():
                raise ClusterError(f"{name}: {reason}")
            print(f"building {name} {module.version} (once)", flush=True)
            _build(module, module.programs[name], target)


def _programs() -> Iterator[tuple[Path, str, GoModule]]:
    for module in (*GO_MODULES, *ON_DEMAND):
        for name in module.programs:
            yield CACHE / f"{module.name}-{module.version}" / name, name, module


def _build(module: GoModule, package: str, target: Path) -> None:
    folder = CACHE / "src" / f"{module.name}-{module.version}"
    environment = {**os.environ, "CGO_ENABLED": "0"}
    if not (folder / "go.sum").exists():
        _prepare(module, folder, environment)
    flags = " ".join(["-s -w", *(f"-X {each}" for each in module.variables)])
    unfinished = target.with_suffix(".unfinished")
    _go(folder, environment, "build", "-ldflags", flags, "-o", str(unfinished), package)
    unfinished.rename(target)


def _prepare(module: GoModule, folder: Path, environment: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    replaced = "\n".join(f"\t{each}" for each in module.replaced)
    text = _MODULE_FILE.format(name=f"scratch/{module.name}", replaced=replaced)
    (folder / "go.mod").write_text(text)
    packages = [f"{package}@v{module.version}" for package in module.programs.values()]
    _go(folder, environment, "get", "-tool", *packages)


def _go(folder: Path, environment: Mapping[str, str], *arguments: str) -> None:
    run("go", *arguments, timeout_s=BUILD_TIMEOUT_S, cwd=folder, env=environment)
