"""Benchmarks measure the checkout that they stand in, whatever is installed in the interpreter.

An editable install may point to another checkout, which would be measured in silence. So every
process that a benchmark starts has the packages of this checkout first on its path, and what it
then imports is looked at before anything is measured.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = (ROOT / "worker", ROOT / "operator")
"""Where the packages of this checkout are."""
_ASK = "import importlib.util; print(importlib.util.find_spec('onyx').origin)"


def python_path(*folders: Path) -> str:
    """`PYTHONPATH` of a process that needs these folders."""
    return os.pathsep.join(map(str, (*folders, *TREES)))


def prefer() -> None:
    """Processes that this one starts import this checkout, unless they are given another path."""
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [each for each in before if each and Path(each) not in TREES]
    os.environ["PYTHONPATH"] = os.pathsep.join([python_path(), *others])


def enforce() -> None:
    """What a program does before it measures.

    Raises:
        SystemExit: as `check` does.
    """
    prefer()
    check()


def check() -> None:
    """See what this process imports, and what one does that it starts.

    Raises:
        SystemExit: one of them imports `onyx` of another folder.
    """
    spec = importlib.util.find_spec("onyx")
    refuse_others("This process", spec.origin if spec else None)
    child = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True)
    refuse_others("A process that it starts", child.stdout.strip() or None)


def refuse_others(who: str, imported: str | None) -> None:
    """`imported` is the file from which somebody would import `onyx`.

    Raises:
        SystemExit: it is none of this checkout.
    """
    if imported is None or TREES[0] not in Path(imported).parents:
        found = Path(imported).parents[1] if imported else "nowhere"
        raise SystemExit(
            f"{who} imports onyx from {found}, but these benchmarks stand in {TREES[0]}: "
            f"set PYTHONPATH={python_path()}"
        )
