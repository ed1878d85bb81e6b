"""Write `docs/reference/operator-metrics.md` from the table of metrics.

Call it as `python -m onyx_operator.generate [--check]`. With `--check` nothing is written; the exit
code is 1 when the page is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from onyx.telemetry.generate import row
from onyx_operator.metrics import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "operator-metrics.md"

_HEAD = """\
# Metrics of the operator

Generated from `operator/onyx_operator/metrics.py` by `python -m onyx_operator.generate`.

The operator serves these at `/metrics` on port 9601. `kind` is `OnyxJob` or `OnyxCluster`; no label
is the name of an object: the state of single objects is in their status, and for
kube-state-metrics. [Metrics of workers](metrics.md)

| name | type | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "\n".join(row(metric) for metric in METRICS) + "\n"


def main(arguments: list[str], path: Path = PAGE) -> int:
    if "--check" in arguments:
        fresh = path.exists() and path.read_text("utf-8") == page()
        if not fresh:
            sys.stderr.write(f"{path} is stale: run python -m onyx_operator.generate\n")
        return 0 if fresh else 1
    path.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
