"""The chart rendered by Helm itself, which comes as a library in a wheel: no helm, no cluster.

`python -m tests.support.generated.chart` renews the golden renderings after a change of the chart.
"""

from __future__ import annotations

import json
import sys
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import helm_python
import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "onyx"
VALUES = ROOT / "tests" / "chart" / "values"
GOLDEN = ROOT / "tests" / "chart" / "golden"
SETS = ("default", "production", "shared", "small")
NAMESPACE = "onyx"
RELEASE = "onyx"
RENDERED_MAX = 32
"""Renderings that are kept: many tests look at the same few."""
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as fast where libyaml is there."""

Object = dict[str, Any]


def value_set(name: str) -> Object:
    """One of the sets of values that are tested as a whole: the chart's own, and more."""
    shipped = CHART / "values" / f"{name}.yaml"
    path = shipped if shipped.exists() else VALUES / f"{name}.yaml"
    loaded: Object = yaml.safe_load(path.read_text())
    return loaded


@cache
def chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)


def render(values: Object | None = None, release: str = RELEASE) -> dict[str, str]:
    """Text by template, without those that are empty.

    Raises:
        helm_python.HelmError: the values are refused.
    """
    return dict(_rendered(json.dumps(values or {}), release))


@lru_cache(maxsize=RENDERED_MAX)
def _rendered(values: str, release: str) -> dict[str, str]:
    rendered = chart().render(json.loads(values), name=release, namespace=NAMESPACE)
    return {
        path.removeprefix("onyx/templates/"): text
        for path, text in sorted(rendered.items())
        if text.strip()
    }


def notes(values: Object | None = None) -> str:
    """What Helm says after an installation."""
    return render(values)["NOTES.txt"]


def objects(values: Object | None = None, release: str = RELEASE) -> list[Object]:
    """All objects that are installed, those of the test included."""
    texts = render(values, release)
    texts.pop("NOTES.txt")
    return [each for text in texts.values() for each in yaml.load_all(text, LOADER) if each]


def named(kind: str, name: str, values: Object | None = None) -> Object:
    """The one object of this kind and name."""
    (found,) = (
        each for each in objects(values) if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )
    return found


def outside(found: list[Object]) -> list[Object]:
    """Those that the deletion of the namespace of the release does not delete by itself."""
    return [
        each
        for each in found
        if each["metadata"].get("namespace") != NAMESPACE
        and "helm.sh/hook" not in each["metadata"].get("annotations", {})
    ]


def pod_specs(values: Object | None = None) -> dict[str, Object]:
    """Every pod that the chart itself makes, by kind and name."""
    found = {}
    for each in objects(values):
        spec = each.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        pod = spec if each["kind"] == "Pod" else spec.get("template", {}).get("spec")
        if pod and "containers" in pod:
            found[f"{each['kind']}/{each['metadata']['name']}"] = pod
    return found


def golden(values: Object) -> str:
    """The installation as one file, which kubectl could apply."""
    texts = render(values)
    texts.pop("NOTES.txt")
    parts = [
        f"# {path}\n{text.strip().removeprefix('---').strip()}\n" for path, text in texts.items()
    ]
    lines = "---\n".join(parts).splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip()) + "\n"


def main() -> int:
    GOLDEN.mkdir(exist_ok=True)
    for name in SETS:
        (GOLDEN / f"{name}.yaml").write_text(golden(value_set(name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
