"""The few kinds of Grafana panels that our dashboards are made of, as functions.

A dashboard by hand is 1,500 lines of JSON in which the fifty lines that matter, the queries, cannot
be found. A library for it (grafanalib, the Foundation SDK) brings all of Grafana's model; we need
five panels. What is written here is that part of the model which Grafana does not fill in itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

GRID_COLUMNS = 24
PANEL_ROWS = 8
STAT_ROWS = 4
ALL = {"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}}
DATASOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
"""A variable, so that the dashboard works with any Prometheus; never the uid of ours."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression, with the legend of its series or (in a table) its column."""

    expr: str
    legend: str = ""
    unit: str = ""
    """Of its column in a table; other panels have one unit."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel before it has a place: what Grafana wants, and its size."""

    body: Json
    width: int
    height: int = PANEL_ROWS


@dataclass(frozen=True, slots=True)
class Row:
    """A heading with panels below it."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of the dashboard: the values of a label."""

    name: str
    label: str
    metric: str
    """A selector of the series whose label is listed."""
    many: bool = True


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard; `uid` stays the same for ever, links rest on it."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]
    annotations: Sequence[Query] = field(default_factory=tuple)


def stat(title: str, query: Query, description: str, unit: str = "short", red: float = 0) -> Panel:
    """One number; it turns red from `red` on, unless that is 0."""
    steps: list[Json] = [{"color": "text" if not red else "green", "value": None}]
    if red:
        steps.append({"color": "red", "value": red})
    body = _panel("stat", title, description, [query], unit, instant=True)
    body["fieldConfig"]["defaults"]["thresholds"] = {"mode": "absolute", "steps": steps}
    body["options"] = {"colorMode": "value", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return Panel(body, width=4, height=STAT_ROWS)


def lines(
    title: str,
    queries: Sequence[Query],
    description: str,
    unit: str = "short",
    width: int = 12,
    stacked: bool = False,
) -> Panel:
    """Values over time."""
    body = _panel("timeseries", title, description, queries, unit)
    custom: Json = {"fillOpacity": 25 if stacked else 5, "showPoints": "never"}
    if stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    body["fieldConfig"]["defaults"] |= {"custom": custom, "min": 0}
    body["options"] = {
        "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return Panel(body, width)


def heat(title: str, query: Query, description: str, width: int = 24) -> Panel:
    """A row a series, coloured by a share from 0 to 1 over time."""
    body = _panel("status-history", title, description, [query], "percentunit")
    steps = [("green", None), ("yellow", 0.33), ("orange", 0.66), ("red", 0.9)]
    body["fieldConfig"]["defaults"] |= {
        "color": {"mode": "thresholds"},
        "thresholds": {
            "mode": "absolute",
            "steps": [{"color": color, "value": value} for color, value in steps],
        },
    }
    body["options"] = {"showValue": "never", "legend": {"showLegend": True}}
    body["maxDataPoints"] = 120
    return Panel(body, width)


def table(
    title: str, queries: Sequence[Query], description: str, key: str, width: int = 24
) -> Panel:
    """A row for each value of the label `key`, a column for each query."""
    body = _panel("table", title, description, queries, "short", instant=True)
    names = {f"Value #{target['refId']}": query.legend for target, query in _with_refs(queries)}
    body["transformations"] = [
        {"id": "joinByField", "options": {"byField": key, "mode": "outer"}},
        {"id": "filterFieldsByName", "options": {"include": {"names": [key, *names]}}},
        {"id": "organize", "options": {"renameByName": names}},
    ]
    body["fieldConfig"]["overrides"] = [
        {
            "matcher": {"id": "byName", "options": query.legend},
            "properties": [{"id": "unit", "value": query.unit}],
        }
        for query in queries
        if query.unit
    ]
    return Panel(body, width)


def listing(title: str, query: Query, description: str, columns: Sequence[str]) -> Panel:
    """A row for each series of an info metric, with some of its labels."""
    body = _panel("table", title, description, [query], "short", instant=True)
    body["transformations"] = [
        {"id": "filterFieldsByName", "options": {"include": {"names": list(columns)}}},
    ]
    return Panel(body, width=12)


def render(dashboard: Dashboard) -> Json:
    """The dashboard as Grafana imports it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["onyx"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "links": [
            {
                "type": "dashboards",
                "tags": ["onyx"],
                "title": "Onyx",
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "panels": list(_placed(dashboard.rows)),
    }


def _panel(
    kind: str, title: str, description: str, queries: Sequence[Query], unit: str, **target: Any
) -> Json:
    form = {"format": "table"} if kind == "table" else {}
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [
            {**ref, "expr": query.expr, "legendFormat": query.legend, **form, **target}
            for ref, query in _with_refs(queries)
        ],
    }


def _with_refs(queries: Iterable[Query]) -> Iterable[tuple[Json, Query]]:
    for index, query in enumerate(queries):
        yield {"refId": chr(ord("A") + index), "datasource": DATASOURCE}, query


def _placed(rows: Sequence[Row]) -> Iterable[Json]:
    """Panels from left to right and top to bottom, numbered."""
    top, number = 0, 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": top, "w": GRID_COLUMNS, "h": 1}
        yield {"type": "row", "id": number, "title": row.title, "gridPos": place, "panels": []}
        left, top, line = 0, top + 1, 0
        for panel in row.panels:
            if left + panel.width > GRID_COLUMNS:
                left, top, line = 0, top + line, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {"id": number, "gridPos": place, **panel.body}
            left, line = left + panel.width, max(line, panel.height)
        top += line


def _datasource() -> Json:
    return {
        "name": "DS_PROMETHEUS",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _variable(variable: Variable) -> Json:
    query = f"label_values({variable.metric}, {variable.label})"
    return {
        "name": variable.name,
        "label": variable.name.capitalize(),
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "includeAll": variable.many,
        "multi": variable.many,
        **(ALL if variable.many else {}),
    }
