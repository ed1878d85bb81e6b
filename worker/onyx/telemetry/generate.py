"""Write `docs/reference/metrics.md` from the catalog of metrics, and `events.md` from the table of
events.

Call it as `python -m onyx.telemetry.generate [--check]`. With `--check` nothing is written; the
exit code is 1 when a page is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from onyx.replica.job_events import FROM_A_WORKER, FROM_THE_LOG, EventKind
from onyx.telemetry.catalog import EXPORTED, Metric
from onyx.telemetry.labels import CLOSED_LABELS

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PAGE = REFERENCE / "metrics.md"
EVENTS_PAGE = REFERENCE / "events.md"

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

_EVENTS_HEAD = """\
# Events

Generated from `worker/onyx/replica/job_events.py` by `python -m onyx.telemetry.generate`.

`what` is the field of this name in a line of JSON, of a worker's log (logger `onyx.jobs`) and of
`onyx events --json`; `text` is the sentence, with other fields in their places.
[What to look for](../operations/events.md).

## What the log of the cluster says

`onyx events` shows these, and workers log those about jobs that they work on. Events in *italics*
are one of many alike: a worker logs those about itself, and `onyx events` shows them with `--all`.

| what | when | text | more fields | level |
|---|---|---|---|---|
"""
_WORKERS_HEAD = """
## What only a worker sees

| what | when | text | more fields | level |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page of metrics."""
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


def events_page() -> str:
    """The whole page of events."""
    both, workers = ("".join(map(event_row, rows)) for rows in (FROM_THE_LOG, FROM_A_WORKER))
    return f"{_EVENTS_HEAD}{both}{_WORKERS_HEAD}{workers}"


def event_row(kind: EventKind) -> str:
    """A line of the table of events."""
    what = f"*`{kind.name}`*" if kind.detail else f"`{kind.name}`"
    more = ", ".join(f"`{name}`" for name in kind.also)
    return f"| {what} | {kind.meaning} | {kind.text} | {more} | {kind.level} |\n"


def main(arguments: list[str]) -> int:
    """Write or check the pages; the exit code."""
    pages = {PAGE: page(), EVENTS_PAGE: events_page()}
    if "--check" in arguments:
        stale = [at for at, text in pages.items() if not at.exists() or at.read_text() != text]
        for at in stale:
            sys.stderr.write(f"{at} is stale: run python -m onyx.telemetry.generate\n")
        return 1 if stale else 0
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    for at, text in pages.items():
        at.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
