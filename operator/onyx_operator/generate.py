"""Write the pages of the operator's metrics and settings under `docs/reference`.

Call it as `python -m onyx_operator.generate [--check]`. With `--check` nothing is written; the exit
code is 1 when a page is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from onyx.model.reference import settings
from onyx.telemetry.generate import row
from onyx_operator.metrics import METRICS
from onyx_operator.settings import OperatorSettings

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

_METRICS_HEAD = """\
# Metrics of the operator

Generated from `operator/onyx_operator/metrics.py` by `python -m onyx_operator.generate`.

The operator serves these at `/metrics` on port 9601. `kind` is `OnyxJob` or `OnyxCluster`; no label
is the name of an object: the state of single objects is in their status, and for
kube-state-metrics. [Metrics of workers](metrics.md)

| name | type | labels | meaning |
|---|---|---|---|
"""
_SETTINGS_HEAD = """\
# Settings of the operator

Generated from `operator/onyx_operator/settings.py` by `python -m onyx_operator.generate`.

The value `operator.settings` of the chart sets these variables. How the operator reaches ZooKeeper
is set by `ONYX_ZOOKEEPER_*`, as for [workers](settings.md).

"""


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    rows = "".join(settings.rows(OperatorSettings(), "ONYX_OPERATOR"))
    return {
        "operator-metrics.md": _METRICS_HEAD + "".join(f"{row(metric)}\n" for metric in METRICS),
        "operator-settings.md": _SETTINGS_HEAD + settings.TABLE + rows,
    }


def main(arguments: list[str], folder: Path = FOLDER) -> int:
    """Write the pages to a folder, or check them; returns the exit code."""
    stale = [
        folder / name
        for name, text in pages().items()
        if not (folder / name).exists() or (folder / name).read_text("utf-8") != text
    ]
    for path in stale:
        if "--check" in arguments:
            sys.stderr.write(f"{path} is stale: run python -m onyx_operator.generate\n")
        else:
            path.write_text(pages()[path.name], "utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
