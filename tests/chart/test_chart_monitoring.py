"""Dashboards and alert rules ask for metrics and labels that the code exports, and are whole."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.generated import promql
from tests.support.generated.chart import ROOT, named, objects, value_set

from onyx.model.crd.status import PHASES
from onyx.telemetry import catalog, labels
from onyx_operator import metrics as operator_metrics

METRICS = {each.name: each for each in (*catalog.EXPORTED, *operator_metrics.METRICS)}
SUFFIXES = {"_bucket": {"le"}, "_sum": set(), "_count": set()}
SCRAPED = {"namespace", "pod", "onyx_cluster"}
"""Labels that the PodMonitor brings."""
CLOSED = {**labels.CLOSED_LABELS, "phase": frozenset(PHASES)}
OF_NAMESPACES = frozenset(("watched", "refused"))
QUERIES = [
    pytest.param(name, expr, legend, id=f"{name}: {title}: {legend or number}")
    for name in promql.DASHBOARDS
    for number, (title, expr, legend) in enumerate(promql.queries(name))
]
RULES = {rule["alert"]: rule for rule in promql.rules()}
EXPRESSIONS = [
    *(pytest.param(each.values[1], id=each.id) for each in QUERIES),
    *(pytest.param(rule["expr"], id=f"alert {name}") for name, rule in RULES.items()),
]


def metric_of(series: str) -> tuple[catalog.Metric, set[str]]:
    """The metric that exports a series, and the labels that the series has of its own."""
    for suffix, more in SUFFIXES.items():
        base = METRICS.get(series.removesuffix(suffix))
        if series.endswith(suffix) and base is not None and base.kind == "histogram":
            return base, {*base.labels, *more}
    metric = METRICS.get(series)
    assert metric is not None, f"nothing exports {series}"
    assert metric.kind != "histogram", f"{series} is a histogram: _bucket, _sum or _count"
    return metric, set(metric.labels)


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_a_query_asks_for_what_the_code_exports(expr: str) -> None:
    found = promql.selected(expr)
    assert found

    for each in found:
        _, labels = metric_of(each.metric)
        assert {label for label, _, _ in each.matchers} <= labels | SCRAPED
        for label, operator, value in each.matchers:
            if label in CLOSED and operator == "Equal":
                values = OF_NAMESPACES if "namespaces" in each.metric else CLOSED[label]
                assert value in values, f"{label}={value} never happens"
    available = set().union(*(metric_of(each.metric)[1] for each in found)) | SCRAPED
    assert promql.grouped(expr) <= available


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_counters_are_looked_at_by_their_rate_and_gauges_are_not(expr: str) -> None:
    over_time = promql.over_time(expr)
    for function, series in over_time:
        counts = metric_of(series)[0].kind in ("counter", "histogram")
        assert counts == (function in ("rate", "increase")), f"{function} of {series}"
    for each in promql.selected(expr):
        if metric_of(each.metric)[0].kind != "gauge":
            assert each.metric in {series for _, series in over_time}, f"{each.metric} as it is"


@pytest.mark.parametrize(("dashboard", "expr", "legend"), QUERIES)
def test_a_legend_names_labels_that_are_left(dashboard: str, expr: str, legend: str) -> None:
    shown = set(re.findall(r"{{(\w+)}}", legend))
    kept = promql.grouped(expr) - {"le"}

    assert shown <= kept | ({"pod"} if "group_right" in expr else set())
    if "sum by" in expr and legend:
        assert kept - {"namespace", "onyx_cluster"} <= shown | {"task"}


@pytest.mark.parametrize("name", promql.DASHBOARDS)
def test_a_query_selects_by_the_variables_of_its_dashboard(name: str) -> None:
    dashboard = json.loads(promql.DASHBOARDS[name].read_text())
    variables = {each["name"] for each in dashboard["templating"]["list"]} - {"DS_PROMETHEUS"}

    used = set()
    for _, expr, _ in promql.queries(name):
        for each in promql.selected(expr):
            mine = {value for _, _, value in each.matchers if value.startswith("$")}
            assert "$namespace" in mine
            used |= {value[1:] for value in mine}
    assert used == variables


@pytest.mark.parametrize("name", promql.DASHBOARDS)
def test_a_dashboard_is_whole(name: str) -> None:
    dashboard = json.loads(promql.DASHBOARDS[name].read_text())
    panels = dashboard["panels"]

    assert dashboard["uid"] == f"onyx-{name}"
    assert len({each["id"] for each in panels}) == len(panels)
    for panel in promql.panels(name):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${DS_PROMETHEUS}"
    assert overlaps(panels) == []


def overlaps(panels: list[dict[str, Any]]) -> list[tuple[str, str]]:
    taken: dict[tuple[int, int], str] = {}
    found = []
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                if other != panel["title"]:
                    found.append((other, panel["title"]))
    return found


def test_the_variables_of_a_dashboard_list_labels_that_exist() -> None:
    for name, path in promql.DASHBOARDS.items():
        for variable in json.loads(path.read_text())["templating"]["list"]:
            if variable["type"] == "query":
                query = variable["query"]["query"]
                selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
                (each,) = promql.selected(selector)
                assert label in metric_of(each.metric)[1] | SCRAPED, f"{name}: {query}"


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_an_alert_says_what_is_wrong_how_badly_and_where(rule: dict[str, Any]) -> None:
    texts = rule["annotations"]

    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert texts.keys() == {"summary", "description"}
    assert all(text.endswith(".") for text in texts.values())
    kept = promql.grouped(rule["expr"]) | (SCRAPED if "group_left" in rule["expr"] else set())
    kept |= {"namespace", "pod"} if rule["expr"].startswith("delta") else set()
    for text in texts.values():
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= kept


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    folder = ROOT / "docs" / "operations" / "alerts"
    listed = re.findall(r"\(alerts/(\w+)\.md\)", folder.with_suffix(".md").read_text())

    assert listed == list(RULES)
    assert sorted(path.stem for path in folder.iterdir()) == sorted(RULES)
    for name in listed:
        title, text = (folder / f"{name}.md").read_text().split("\n", 1)
        assert title == f"# {name}"
        assert re.findall(r"^- \*\*(.*?):\*\*", text, re.MULTILINE) == ["Means", "Look at", "Do"]


def test_the_rules_are_installed_as_they_are_written() -> None:
    values = value_set("production")
    groups = named("PrometheusRule", "onyx", values)["spec"]["groups"]
    installed = {rule["alert"]: rule for group in groups for rule in group["rules"]}

    assert installed.keys() == RULES.keys()
    for name, rule in installed.items():
        assert rule["labels"].pop("team") == "platform"
        url = rule["annotations"].pop("runbook_url")
        assert url == f"docs/operations/alerts/{name}.md"
        assert rule == RULES[name]


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://wiki.example/onyx/", "https://wiki.example/onyx/OnyxJobFailed"),
        ("https://wiki.example/{alert}.html", "https://wiki.example/OnyxJobFailed.html"),
        ("", None),
    ],
)
def test_an_alert_leads_to_the_page_that_the_values_name(base: str, url: str | None) -> None:
    values = {"metrics": {"prometheusRule": {"create": True, "runbookBaseUrl": base}}}
    groups = named("PrometheusRule", "onyx", values)["spec"]["groups"]
    found = {rule["alert"]: rule["annotations"] for group in groups for rule in group["rules"]}

    assert found["OnyxJobFailed"].get("runbook_url") == url


def test_the_dashboards_are_installed_as_they_are() -> None:
    config_maps = {
        path.stem: named("ConfigMap", f"onyx-dashboard-{path.stem}", value_set("production"))
        for path in promql.DASHBOARDS.values()
    }

    for name, config_map in config_maps.items():
        (text,) = config_map["data"].values()
        assert json.loads(text) == json.loads(promql.DASHBOARDS[name].read_text())
        assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_monitors_keep_the_labels_that_queries_need() -> None:
    worker = named("PodMonitor", "onyx-worker", value_set("production"))["spec"]
    (endpoint,) = worker["podMetricsEndpoints"]

    assert endpoint["honorLabels"] is True
    assert [each["targetLabel"] for each in endpoint["relabelings"]] == ["onyx_cluster"]


@pytest.mark.parametrize("wanted", [True, False])
def test_native_histograms_are_made_beside_the_classic_ones(wanted: bool) -> None:
    values = {"metrics": {"podMonitor": {"create": True, "nativeHistograms": wanted}}}
    for name in ("onyx-worker", "onyx-operator"):
        spec = named("PodMonitor", name, values)["spec"]
        assert spec.get("convertClassicHistogramsToNHCB", False) is wanted
        assert spec.get("scrapeClassicHistograms", False) is wanted


def test_spark_servers_are_scraped_where_there_may_be_some() -> None:
    values = {"metrics": {"podMonitor": {"create": True}}, "spark": {"enabled": True}}
    monitor = named("PodMonitor", "onyx-spark", values)["spec"]
    server = yaml.safe_load_all((ROOT / "tests/operator/golden/cluster-spark.yaml").read_text())
    template = next(each for each in server if each["kind"] == "Deployment")["spec"]["template"]
    ports = {each["name"] for each in template["spec"]["containers"][0]["ports"]}

    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports
    assert "onyx-spark" not in {
        each["metadata"]["name"]
        for each in objects({**values, "spark": {"enabled": False}})
        if each["kind"] == "PodMonitor"
    }


def test_monitoring_is_left_out_where_kubernetes_does_not_know_it() -> None:
    kinds = {each["kind"] for each in objects()}

    assert not {"PodMonitor", "PrometheusRule"} & kinds


def test_the_page_is_where_the_rules_say() -> None:
    comment = promql.RULES.read_text().partition("groups:")[0]

    for path in re.findall(r"docs/\S+\.md", comment):
        assert Path(ROOT, path).exists()


IN_NO_PANEL = {
    "onyx_replica_digest": "a hash shows nothing: OnyxReplicasDiffer compares those of workers",
}
"""Metrics that no dashboard shows, each with the reason."""


def test_each_metric_is_in_a_panel_or_there_is_a_reason() -> None:
    exprs = [each.values[1] for each in QUERIES]
    series = {each.metric for expr in exprs for each in promql.selected(expr)}
    shown = {metric_of(each)[0].name for each in series}

    assert METRICS.keys() - shown == IN_NO_PANEL.keys()
