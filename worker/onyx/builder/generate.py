"""Write the typed parts of the builder: `python -m onyx.builder.generate [--check]`.

They lie in `generated`: `keys.py` has a TypedDict for the keys of each part of a job, by the
information model; `plugins.py` has a function for each plugin, by the structs of its options. With
`--check` nothing is written; the exit code is 1 when a file is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from onyx.builder.generating import keys, plugins

FOLDER = Path(__file__).parent / "generated"


def files(folder: Path = FOLDER) -> dict[Path, str]:
    """The two generated modules, each path with its text."""
    return {folder / "keys.py": keys.module(), folder / "plugins.py": plugins.module()}


def stale(folder: Path = FOLDER) -> list[Path]:
    """Modules that are missing or not what the model says."""
    return [
        path
        for path, text in files(folder).items()
        if not path.exists() or path.read_text("utf-8") != text
    ]


def main(arguments: list[str], folder: Path = FOLDER) -> int:
    """Write both modules, or check them; returns the exit code."""
    if "--check" in arguments:
        for path in stale(folder):
            sys.stderr.write(f"{path} is stale: run python -m onyx.builder.generate\n")
        return 1 if stale(folder) else 0
    for path, text in files(folder).items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
