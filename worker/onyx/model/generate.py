"""Write the CRDs and the reference pages of keys and settings.

Call it as `python -m onyx.model.generate [--check]`. With `--check` nothing is written; the exit
code is 1 when a file is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from onyx.model.crd import cluster as crd_cluster
from onyx.model.crd import job as crd
from onyx.model.crd import parts as crd_parts
from onyx.model.reference import settings
from onyx.model.reference.pages import pages

ROOT = Path(__file__).parents[3]
CRDS = "charts/onyx/crds"
"""Where Helm finds them, which takes no links to files out of a chart; `crds/` has links."""


def files(root: Path = ROOT) -> dict[Path, str]:
    """Every generated file with its text."""
    crds = {"onyxjob": crd.definition(), "onyxcluster": crd_cluster.definition()}
    return {
        **{root / CRDS / f"{name}.yaml": crd_parts.written(each) for name, each in crds.items()},
        **{
            root / "docs" / "reference" / name: page
            for name, page in (pages() | {"settings.md": settings.page()}).items()
        },
    }


def stale(root: Path = ROOT) -> list[Path]:
    """Files that are missing or not what the model says."""
    return [
        path
        for path, text in files(root).items()
        if not path.exists() or path.read_text("utf-8") != text
    ]


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write all files below `root`, or check them; returns the exit code."""
    if "--check" in arguments:
        for path in stale(root):
            sys.stderr.write(f"{path} is stale: run python -m onyx.model.generate\n")
        return 1 if stale(root) else 0
    for path, text in files(root).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
