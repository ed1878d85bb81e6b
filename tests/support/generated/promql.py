"""PromQL as the tests look at it: which series an expression asks for, by which labels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import yaml

FILES = Path(__file__).parents[3] / "charts" / "onyx" / "files"
DASHBOARDS = {path.stem: path for path in sorted(FILES.glob("grafana-dashboards/*.json"))}
RULES = FILES / "alerts" / "onyx.yaml"

VARIABLES = {"$__rate_interval": "1m"}
"""What Grafana puts in; `$namespace` and so on stand in matchers only, where any text is valid."""


@dataclass(frozen=True, slots=True)
class Selected:
    """One selector in an expression."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator, value."""


def parse(expression: str) -> promql_parser.Expr:
    """The syntax tree.

    Raises:
        ValueError: it is no PromQL.
    """
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return promql_parser.parse(expression)


def selected(expression: str) -> list[Selected]:
    """Every selector in an expression."""
    found: list[Selected] = []

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            matchers = tuple(
                (each.name, str(each.op).rpartition(".")[2], each.value)
                for each in node.matchers.matchers
            )
            found.append(Selected(node.name or "", matchers))

    promql_parser.walk(parse(expression), visit)
    return found


def over_time(expression: str) -> list[tuple[str, str]]:
    """Function and series wherever an expression looks at a range of time: `rate(series[1m])`."""
    found: list[tuple[str, str]] = []

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.Call):
            ranges = [each for each in node.args if isinstance(each, promql_parser.MatrixSelector)]
            found.extend((node.func.name, each.vector_selector.name or "") for each in ranges)

    promql_parser.walk(parse(expression), visit)
    return found


def grouped(expression: str) -> set[str]:
    """Labels that an expression groups or joins by."""
    labels: set[str] = set()

    def visit(node: promql_parser.Expr) -> None:
        modifier = getattr(node, "modifier", None)
        if isinstance(node, promql_parser.AggregateExpr) and modifier is not None:
            labels.update(modifier.labels)
        if isinstance(node, promql_parser.BinaryExpr) and modifier is not None:
            labels.update(modifier.matching.labels if modifier.matching else ())

    promql_parser.walk(parse(expression), visit)
    return labels


def panels(dashboard: str) -> list[dict[str, Any]]:
    """The panels of a dashboard that show something."""
    found = json.loads(DASHBOARDS[dashboard].read_text())["panels"]
    return [each for each in found if each["type"] != "row"]


def queries(dashboard: str) -> Iterator[tuple[str, str, str]]:
    """Panel, expression and legend of each query of a dashboard."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


def rules() -> list[dict[str, Any]]:
    """Every alert rule."""
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]
