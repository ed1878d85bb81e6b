"""Write what the chart holds but nobody edits there: dashboards, the page of its values, and the
defaults that its templates fill in.

Its CRDs are written by `python -m onyx.model.generate`.

Call it as `python -m charts.generate [--check]`. With `--check` nothing is written; the exit code
is 1 when a file is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from charts.dashboards import fleet, job, operator
from charts.dashboards.panels import Dashboard, render
from charts.missing_values import defaults
from charts.values_page import page

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "onyx"
DASHBOARDS = {"fleet": fleet.DASHBOARD, "job": job.DASHBOARD, "operator": operator.DASHBOARD}


def files() -> dict[Path, str]:
    """Every generated file with its text."""
    dashboards = CHART / "files" / "grafana-dashboards"
    return {
        **{dashboards / f"{name}.json": _json(each) for name, each in DASHBOARDS.items()},
        CHART / "README.md": page((CHART / "values.yaml").read_text()),
        CHART / "files" / "defaults.yaml": defaults((CHART / "values.yaml").read_text()),
    }


def _json(dashboard: Dashboard) -> str:
    return json.dumps(render(dashboard), indent=1) + "\n"


def stale() -> list[Path]:
    """Files that are missing, not what they should be, or in a generated folder by mistake."""
    expected = files()
    found = set(CHART.glob("files/grafana-dashboards/*"))
    return [
        *(path for path, text in expected.items() if not path.exists() or path.read_text() != text),
        *sorted(found - expected.keys()),
    ]


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        for path in stale():
            sys.stderr.write(f"{path} is stale: run python -m charts.generate\n")
        return 1 if stale() else 0
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
