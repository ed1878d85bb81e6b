"""What an installation consists of, for some sets of values: a change shows in the review."""

from __future__ import annotations

import helm_python
import pytest
import yaml
from charts import generate
from tests.support.generated.chart import CHART, GOLDEN, NAMESPACE, SETS, golden, value_set


@pytest.mark.parametrize("name", SETS)
def test_the_rendering_is_the_golden_one(name: str) -> None:
    expected = (GOLDEN / f"{name}.yaml").read_text()

    assert golden(value_set(name)) == expected, "if this is meant: make golden"


@pytest.mark.parametrize("name", SETS)
def test_a_golden_file_is_what_kubectl_would_apply(name: str) -> None:
    loaded = list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text()))

    assert len(loaded) > 10
    assert all(each["apiVersion"] and each["metadata"]["name"] for each in loaded)


@pytest.mark.parametrize("name", SETS)
def test_helm_lint_finds_nothing(name: str) -> None:
    report = helm_python.lint(CHART, value_set(name), strict=True, namespace=NAMESPACE)

    assert report["errors"] == []
    warnings = [each for each in report["messages"] if each["severity"] >= 2]
    assert warnings == []


def test_dashboards_and_the_page_of_values_are_fresh() -> None:
    assert generate.stale() == []


def test_the_crds_are_the_generated_ones() -> None:
    with helm_python.Chart.load(CHART) as chart:
        shipped = {each["filename"].rpartition("/")[2]: each["data"] for each in chart.crds}

    crds = CHART.parents[1] / "crds"
    assert shipped == {path.name: path.read_text() for path in crds.glob("*.yaml")}
