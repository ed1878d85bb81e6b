"""Every figure, one after the other: `python -m benchmarks [--only NAME...] [--quick] [--page]`

Each benchmark is a process of its own; one that fails is shown as failed and the others go on.
With `--page`, what they find is written into `docs/figures.md`, whose other figures stay.
The exit code is 0 if all ran, whatever they measured, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import checkout, page
from benchmarks.figures import Options, Size, table
from benchmarks.programs import PROGRAMS
from rich.console import Console

TIMEOUT_S = 14_400.0


def measure(name: str, size: Size) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and the whole document of one benchmark.

    Raises:
        RuntimeError: it failed.
    """
    command = f"{PROGRAMS[name].command}{f' --{size.name.lower()}' * (size is not Size.FULL)}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        done = subprocess.run(
            [sys.executable, *command.split()[1:], "--json", str(path)],
            cwd=checkout.ROOT,
            timeout=TIMEOUT_S,
        )
        if done.returncode or not path.exists():
            raise RuntimeError(f"{command}: exit {done.returncode}")
        document = json.loads(path.read_text())
    found = [{**row, "command": command} for row in document["figures"]]
    return found, document


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = Options(__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=list(PROGRAMS), metavar="NAME", help=", ".join(PROGRAMS)
    )
    parser.add_argument(
        "--page", type=Path, nargs="?", const=page.PAGE, metavar="FILE",
        help=f"write the figures into this page; {page.PAGE.relative_to(checkout.ROOT)} by default",
    )  # fmt: skip
    return parser.chosen(arguments)


def main() -> int:
    options = options_of()
    checkout.prefer()
    rows: list[dict[str, Any]] = []
    documents: dict[str, Any] = {}
    failed: list[str] = []
    run = page.this_run(options.size)
    for name in options.only or [name for name, each in PROGRAMS.items() if not each.only_named]:
        print(f"== {name}: {PROGRAMS[name].about}", flush=True)
        try:
            found, documents[name] = measure(name, options.size)
            rows += found
            if options.page:
                for text in page.update(options.page, name, found, run):
                    print(f"{name} has not measured: {text}", file=sys.stderr)
                page.draw(options.page, name, documents[name])
        except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
            failed.append(name)
    Console(width=180).print(table(rows))
    if options.json is not None:
        document = {
            "size": options.size.name.lower(), "figures": rows, "failed": failed,
            "load_average": os.getloadavg(), "benchmarks": documents,
        }  # fmt: skip
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
