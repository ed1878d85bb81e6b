"""Counters, gauges and their labels as a scrape sees them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from onyx.reports.stalls import Reason
from onyx.requests.request import Level, Status
from onyx.telemetry.catalog import (
    JOB_INFO,
    JOB_STALLED,
    LOG_APPLY_SECONDS,
    LOG_ENTRIES,
    METRICS,
    QUEUE,
    QUEUE_CAPACITY,
    SOURCE_OFFSET,
    TASK,
    WATERMARK,
    Metric,
)
from onyx.telemetry.generate import EVENTS_PAGE, PAGE, events_page, page
from onyx.telemetry.interface import NULL_GROUP, GroupMetrics, TaskMetrics
from onyx.telemetry.labels import CLOSED_LABELS
from onyx.telemetry.metrics import PrometheusGroupMetrics
from onyx.telemetry.task_series import TALLIED, PrometheusTaskMetrics

PARSE = {"job": "flights", "task": "parse"}


@pytest.fixture
def group() -> PrometheusGroupMetrics:
    return PrometheusGroupMetrics(commands=("submit-job",), version="1.2.3")


def exercise(group: GroupMetrics) -> None:
    """Every metric once."""
    task = group.task("flights", "parse")
    task.batch(10, 9, read_s=0.01, apply_s=0.02, write_s=0.03)
    for metric in METRICS:
        if metric.name in TALLIED:
            continue
        scope, labels = (task, []) if metric.labels == TASK else (group, labels_of(metric))
        if metric.kind == "counter":
            scope.add(metric, 1, *labels)
        elif metric.kind == "gauge":
            scope.set(metric, 2, *labels)
        else:
            scope.observe(metric, 12.0, *labels)
    group.replace(JOB_STALLED, {("flights", "parse", Reason.FUNCTION): 17.0})


LABELS = {
    "job": "flights",
    "task": "parse",
    "fn": "submit-job",
    "job_id": "0000-1111",
    "side": "clicks",
    "position": "17",
    "guarantee": "at-least-once",
    "version": "1.2.3",
    "python": "3.14",
}


def labels_of(metric: Metric) -> list[str]:
    """A value for each label: one of its closed set, or from above."""
    return [LABELS.get(label) or min(CLOSED_LABELS[label]) for label in metric.labels]


def test_how_requests_may_be_answered_is_a_closed_set() -> None:
    assert CLOSED_LABELS["level"] == set(Level)
    assert CLOSED_LABELS["status"] == set(Status)


def test_a_batch_is_counted_once_with_its_seconds_by_stage(group: PrometheusGroupMetrics) -> None:
    task = group.task("flights", "parse")
    task.batch(1_000, 900, read_s=0.25, apply_s=0.5)
    task.batch(500, 450, apply_s=0.25)
    value = group.registry.get_sample_value
    assert value("onyx_task_segments_in_total", PARSE) == 1_500
    assert value("onyx_task_segments_out_total", PARSE) == 1_350
    assert value("onyx_task_batch_seconds_sum", {**PARSE, "stage": "apply"}) == 0.75
    assert value("onyx_task_batch_seconds_count", {**PARSE, "stage": "read"}) == 1
    assert value("onyx_task_batch_seconds_count", {**PARSE, "stage": "write"}) == 0
    assert value("onyx_task_busy_seconds_total", PARSE) == 1.0


def test_peers_of_one_task_add_up_and_leave_nothing_behind(group: PrometheusGroupMetrics) -> None:
    def waiting() -> float | None:
        return group.registry.get_sample_value("onyx_edge_queue_segments", PARSE)

    first, second = group.task("flights", "parse"), group.task("flights", "parse")
    for task, segments in ((first, 100), (second, 50)):
        task.set(QUEUE, segments)
        task.set(QUEUE_CAPACITY, 1_000)
    assert waiting() == 150
    first.set(QUEUE, 10)
    assert waiting() == 60
    first.close()
    first.close()
    assert waiting() == 50
    second.set(SOURCE_OFFSET, 1_000)
    second.close()
    assert waiting() == 0
    completed = group.registry.get_sample_value("onyx_source_offset", PARSE)
    assert completed == 1_000, "what was completed here stays completed"
    assert group.registry.get_sample_value("onyx_edge_queue_capacity_segments", PARSE) == 0


def test_the_watermark_of_a_task_is_the_least_of_its_peers(group: PrometheusGroupMetrics) -> None:
    def watermark_s() -> float | None:
        return group.registry.get_sample_value("onyx_task_watermark_seconds", PARSE)

    first, second = group.task("flights", "parse"), group.task("flights", "parse")
    assert watermark_s() is None, "nobody knows yet"
    first.set(WATERMARK, 9.5)
    assert watermark_s() == 9.5
    second.set(WATERMARK, -1.0)
    assert watermark_s() == -1.0
    second.close()
    assert watermark_s() == 9.5
    first.close()
    assert watermark_s() is None, "a job that has ended does not lag"


def test_series_of_tasks_that_ended_are_dropped_beyond_the_limit() -> None:
    group = PrometheusGroupMetrics(retained_tasks_max=3)
    running = group.task("long-runner", "read")
    for day in range(20):
        task = group.task(f"job-of-day-{day}", "read")
        task.batch(1, 1)
        task.close()
    running.batch(5, 5)
    jobs = {
        sample.labels["job"]
        for family in group.registry.collect()
        for sample in family.samples
        if "task" in sample.labels
    }
    assert jobs == {"long-runner", "job-of-day-18", "job-of-day-19"}


def test_labels_are_names_of_jobs_and_tasks_or_of_a_closed_set(
    group: PrometheusGroupMetrics,
) -> None:
    exercise(group)
    group.add(LOG_ENTRIES, 1, "a-command-of-a-hostile-writer")
    group.observe(LOG_APPLY_SECONDS, 0.001, "a-command-of-a-hostile-writer")
    allowed = {
        **CLOSED_LABELS,
        "job": {"flights"},
        "task": {"parse"},
        "fn": {"submit-job", "other"},
        "job_id": {"0000-1111"},
        "side": {"clicks"},
        "position": {"17"},
        "guarantee": {"at-least-once"},
    }
    seen = 0
    for family in group.registry.collect():
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label == "le" or family.name == "onyx_build":
                    continue
                if family.name == "onyx_build_info":
                    assert label in {"version", "python"}
                    continue
                assert value in allowed[label], f"{sample.name}: {label}={value}"
                seen += 1
    assert seen > 100


def test_the_registry_exports_exactly_the_catalog(group: PrometheusGroupMetrics) -> None:
    exercise(group)
    families = text_string_to_metric_families(generate_latest(group.registry).decode())
    exported = {family.name: family.type for family in families}
    expected = {metric.name.removesuffix("_total"): metric.kind for metric in METRICS}
    assert exported == expected


def test_openmetrics_has_the_series_of_text(group: PrometheusGroupMetrics) -> None:
    """And is as strict a parser takes it: a supervisor asks its processes for it."""
    exercise(group)
    text = text_string_to_metric_families(generate_latest(group.registry).decode())
    strict = parse_openmetrics(openmetrics(group.registry).decode())
    assert [each.samples for each in strict] == [each.samples for each in text]


def test_no_created_series_double_the_counters(group: PrometheusGroupMetrics) -> None:
    exercise(group)
    assert b"_created" not in generate_latest(group.registry)


def test_a_job_that_ended_has_no_info(group: PrometheusGroupMetrics) -> None:
    labels = {"job": "flights", "job_id": "7", "guarantee": "at-least-once"}
    group.set(JOB_INFO, 1, *labels.values())
    assert group.registry.get_sample_value("onyx_job_info", labels) == 1
    group.remove(JOB_INFO, *labels.values())
    assert group.registry.get_sample_value("onyx_job_info", labels) is None


@pytest.mark.parametrize(
    ("null", "real"),
    [(TaskMetrics, PrometheusTaskMetrics), (GroupMetrics, PrometheusGroupMetrics)],
)
def test_the_twin_that_listens_to_nothing_has_the_same_hooks(null: type, real: type) -> None:
    def hooks(cls: type) -> dict[str, Callable[..., Any]]:
        return {
            name: f for name, f in vars(cls).items() if inspect.isfunction(f) and name[0] != "_"
        }

    for name, hook in hooks(null).items():
        assert name in vars(real), f"{real.__name__} inherits {name}, which does nothing"
        assert inspect.signature(hook) == inspect.signature(getattr(real, name))
    exercise(NULL_GROUP)


def test_names_follow_prometheus_practice() -> None:
    for metric in METRICS:
        assert metric.name.startswith("onyx_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert metric.meaning.endswith(".") or metric.name.endswith("_info")
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_the_reference_page_is_fresh() -> None:
    assert PAGE.read_text("utf-8") == page(), "run python -m onyx.telemetry.generate"
    assert EVENTS_PAGE.read_text("utf-8") == events_page(), "as above"
