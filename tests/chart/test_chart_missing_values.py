"""`helm upgrade --reuse-values`: the values of a release that an older chart made, which lack what
has come since, give what the same choices give with the defaults of today."""

from __future__ import annotations

import copy
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml
from charts.missing_values import REMOVABLE
from tests.support.generated.chart import CHART, NAMESPACE, RELEASE, Object, render

RELEASED = sorted(
    (Path(__file__).parents[1] / "support" / "generated" / "values_released").glob("*.yaml")
)
VALUES: Object = yaml.safe_load((CHART / "values.yaml").read_text())


def paths(values: Object = VALUES, path: str = "") -> list[str]:
    """Every value, and every map of values."""
    found = []
    for key, each in values.items():
        here = f"{path}.{key}" if path else key
        found.append(here)
        if isinstance(each, dict) and here not in REMOVABLE:
            found += paths(each, here)
    return found


def without(path: str) -> Object:
    """Null takes a value away before templates see it."""
    *parents, last = path.split(".")
    values: Object = {}
    inner = values
    for key in parents:
        inner = inner.setdefault(key, {})
    inner[last] = None
    return values


def at(values: Object, path: str) -> Any:
    found: Any = values
    for key in path.split("."):
        found = (found or {}).get(key)
    return found


def take_away_news(ours: Object, theirs: Object) -> None:
    """Null for what the older map lacks, which Helm would add."""
    for key, each in ours.items():
        if isinstance(each, dict) and isinstance(theirs.get(key), dict):
            take_away_news(each, theirs[key])
        else:
            theirs.setdefault(key, None)


def reusing(old: Path, tmp_path: Path) -> dict[str, str]:
    """Today's templates on the values of an older chart."""
    folder = tmp_path / "onyx"
    shutil.copytree(CHART, folder)
    shutil.copy(old, folder / "values.yaml")
    with helm_python.Chart.load(folder) as chart:
        rendered = chart.render({}, name=RELEASE, namespace=NAMESPACE)
    return {
        path.removeprefix("onyx/templates/"): text
        for path, text in sorted(rendered.items())
        if text.strip()
    }


@cache
def defaults() -> dict[str, str]:
    return render()


@pytest.mark.parametrize("old", RELEASED, ids=lambda path: path.stem)
def test_values_of_an_older_chart_get_the_defaults_that_they_lack(
    old: Path, tmp_path: Path
) -> None:
    """Maps such as resources, of which each line is the user's to take away, stay as they were."""
    values = yaml.safe_load(old.read_text())
    for path in REMOVABLE:
        ours, theirs = at(VALUES, path), at(values, path)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            take_away_news(ours, theirs)
    assert reusing(old, tmp_path) == render(values)


def test_no_values_at_all_are_the_defaults(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.yaml"
    nothing.write_text("{}")
    removed = copy.deepcopy(VALUES)
    for path in REMOVABLE:
        *parents, last = path.split(".")
        inner: Any = removed
        for key in parents:
            inner = inner[key]
        inner[last] = None
    assert reusing(nothing, tmp_path) == render(removed)


@pytest.mark.short(40)
@pytest.mark.parametrize("path", [each for each in paths() if each not in REMOVABLE])
def test_a_value_that_is_missing_is_the_default(path: str) -> None:
    inside = any(each.startswith(f"{path}.") for each in REMOVABLE)
    if inside:
        assert render(without(path)), "it renders; what null takes away stays away"
    else:
        assert render(without(path)) == defaults()


@pytest.mark.parametrize("path", REMOVABLE)
def test_null_takes_these_away(path: str) -> None:
    assert render(without(path)) != defaults()


def test_every_template_fills_in_what_is_missing() -> None:
    """Nothing says in which order they are rendered."""
    templates = [
        path
        for path in (CHART / "templates").rglob("*")
        if path.suffix in (".yaml", ".txt") and path.is_file()
    ]
    assert len(templates) > 15
    first = '{{- include "onyx.defaults" . }}'
    assert [path for path in templates if path.read_text().splitlines()[0] != first] == []
