"""Write `docs/reference/metrics.md` from the catalog.

Call it as `python -m onyx.telemetry.generate [--check]`. With `--check` nothing is written; the
exit code is 1 when the page is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from onyx.telemetry.catalog import EXPORTED, Metric
from onyx.telemetry.labels import CLOSED_LABELS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"

_HEAD = """\
# Metrics

Generated from `worker/onyx/telemetry/catalog.py` by `python -m onyx.telemetry.generate`.

A worker serves these at `/metrics` when `ONYX_TELEMETRY_METRICS_PORT` is set, beside `/livez`
(the process is not stuck) and `/readyz` (it takes part in the cluster). `job` and `task` are
names; the other labels have the values listed below. A supervisor of several worker processes
(`--processes`) serves the series of all of them, each with one label more: `process`.
`/metrics?name[]=NAME`, as often as wanted, asks for some series only.

| name | type | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = "\n".join(row(metric) for metric in EXPORTED)
    values = "\n".join(
        f"| `{label}` | {', '.join(f'`{value}`' for value in sorted(CLOSED_LABELS[label]))} |"
        for label in sorted(CLOSED_LABELS)
    )
    return (
        f"{_HEAD}{rows}\n\n## Values of labels\n\n| label | values |\n|---|---|\n{values}\n"
        "| `fn` | the names of log commands, `other` |\n"
    )


def row(metric: Metric) -> str:
    """A line of the table of metrics."""
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |"


def main(arguments: list[str]) -> int:
    """Write or check the page; the exit code."""
    if "--check" in arguments:
        fresh = PAGE.exists() and PAGE.read_text("utf-8") == page()
        if not fresh:
            sys.stderr.write(f"{PAGE} is stale: run python -m onyx.telemetry.generate\n")
        return 0 if fresh else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
