"""A real Prometheus scrapes real workers and the operator, and answers every query that we ship.

The operator runs as it is against the fake API server, the workers are processes, ZooKeeper is
real; the job reaches them as an OnyxJob.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.monitoring import busy_job
from tests.monitoring.prometheus import SCRAPE_S, Prometheus
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Operator, settings
from tests.support.generated import promql
from tests.support.generated.chart import ROOT
from tests.support.servers.cluster import Cluster
from tests.support.servers.ports import free_port

from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.settings import TelemetrySettings

WORKERS, PEERS = 2, 2
JOB = {
    "apiVersion": "onyx.dev/v1alpha1",
    "kind": "OnyxJob",
    "metadata": {"name": "busy"},
    "spec": {
        "workflow": [["numbers", "slow"], ["slow", "nowhere"]],
        "catalog": [
            {
                "name": "numbers",
                "type": "input",
                "plugin": "generator",
                "batchSize": 200,
                "maxPending": 100_000,
                "options": {"segments": 100_000_000, "partitions": 2},
                "watermarkKey": "n",
            },
            {"name": "slow", "type": "function", "fn": "busy_job:slow", "batchSize": 200},
            {
                "name": "nowhere",
                "type": "output",
                "plugin": "blackhole",
                "batchSize": 200,
                "deduplicate": False,
            },
        ],
        "windows": [
            {"id": "counted", "task": "nowhere", "type": "global", "aggregation": "count"},
        ],
        "flowConditions": [
            {
                "from": "slow",
                "to": "none",
                "predicate": "busy_job:is_connection_error",
                "thrownException": True,
                "shortCircuit": True,
                "action": "retry",
            },
        ],
    },
}
GRAFANA = {
    "$__rate_interval": f"{4 * SCRAPE_S}s",
    "$namespace": ".*",
    "$cluster": ".*",
    "$job": "busy",
    "$task": ".*",
}
"""What Grafana puts in for its variables."""
QUERIES = [
    pytest.param(expr, id=f"{dashboard}: {title}: {legend}")
    for dashboard in promql.DASHBOARDS
    for title, expr, legend in promql.queries(dashboard)
]
MOVING = {
    "onyx_task_segments_in_total",
    "onyx_task_segments_out_total",
    "onyx_task_busy_seconds_total",
    "onyx_task_backpressured_seconds_total",
    "onyx_task_retries_total",
    "onyx_grpc_stream_bytes_total",
    "onyx_operator_api_requests_total",
}
"""Counters that this job keeps increasing."""


@pytest.fixture(scope="module")
def prometheus(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Everything runs, and has been scraped for a while."""
    folder = tmp_path_factory.mktemp("monitoring")
    crds = sorted((ROOT / "crds").glob("*.yaml"))
    pages, targets = free_port(), []
    with (
        Cluster(zookeeper.address, folder, Path(busy_job.__file__)) as cluster,
        FakeApi(*crds) as api,
        Operator(
            api,
            ZooKeeperClientLog,
            settings(
                SERVER_PORT=str(pages),
                ZOOKEEPER_ADDRESSES=zookeeper.address,
                TENANCIES=f"default/{cluster.settings.tenancy_id}",
            ),
        ),
    ):
        plain = cluster.settings
        for number in range(WORKERS):
            port = free_port()
            telemetry = TelemetrySettings(metrics_port=port)
            cluster.settings = replace(plain, telemetry=telemetry)
            cluster.start_worker(PEERS)
            labels = {"namespace": "default", "onyx_cluster": "onyx", "pod": f"onyx-{number}"}
            targets.append((f"127.0.0.1:{port}", labels))
        targets.append((f"127.0.0.1:{pages}", {"namespace": "default", "pod": "onyx-operator"}))
        cluster.await_members(cluster.workers, PEERS)
        address = {"address": zookeeper.address}
        spec = {"tenancyId": plain.tenancy_id, "zookeeper": address, "modules": ["busy_job"]}
        onyx_cluster = {"apiVersion": JOB["apiVersion"], "kind": "OnyxCluster", "spec": spec}
        api.create({**onyx_cluster, "metadata": {"name": "onyx"}})
        api.create(JOB)
        with Prometheus(folder, targets, promql.RULES) as running:
            for metric in sorted(MOVING):
                running.until(lambda m=metric: running.query(f"sum(rate({m}[4s])) > 0"), metric)
            yield running


@pytest.mark.parametrize("expr", QUERIES)
def test_a_query_of_a_dashboard_finds_series(prometheus: Prometheus, expr: str) -> None:
    for variable, value in GRAFANA.items():
        expr = expr.replace(variable, value)
    assert "$" not in expr

    assert prometheus.until(lambda: prometheus.query(expr), expr)


def test_the_rules_are_healthy_and_only_what_is_wrong_is_told(prometheus: Prometheus) -> None:
    rules = prometheus.until(
        lambda: [each for each in prometheus.rules() if each["health"] == "ok"], "rules are read"
    )

    assert {each["name"] for each in rules} == {each["alert"] for each in promql.rules()}
    reported = {each["name"] for each in rules if each["state"] != "inactive"}
    assert "OnyxJobRetries" in reported
    assert not reported & {"OnyxOperatorAbsent", "OnyxClusterWithoutWorkers", "OnyxJobStalled"}


def test_series_have_the_labels_that_are_documented(prometheus: Prometheus) -> None:
    (series, *_) = prometheus.query('onyx_task_segments_in_total{task="slow"}')

    assert series["metric"].keys() >= {"namespace", "onyx_cluster", "pod", "job", "task"}
    assert series["metric"]["job"] == "busy"
