"""A real Prometheus scrapes real workers and the operator, and answers every query that we ship.

The operator runs as it is against the fake API server, the workers are processes, ZooKeeper is
real; jobs reach them as OnyxJobs. One is busy, one reads a file and is sent requests over HTTP and
gRPC, one keeps states with timers, of which some are on disk, and joins two streams, one does not
begin.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from tests.monitoring import busy_job
from tests.monitoring.prometheus import INSTALLED, SCRAPE_S, Prometheus
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Operator, settings
from tests.support.generated import promql
from tests.support.generated.chart import ROOT
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster
from tests.support.servers.ports import free_port

from onyx import api
from onyx.errors import OnyxError
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.settings import HttpSettings, Settings, TelemetrySettings
from onyx.telemetry.collectors import ZooKeeperCollector
from onyx.telemetry.http_server import TelemetryServer

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,  # until all has been scraped
    INSTALLED,
]
WORKERS, PEERS = 2, 13
"""Whichever job comes first, the busy one has a peer on either worker, which it needs."""
LINES = 500_000
"""Of a file that is longer than the test."""
KNOWN = 10
"""Of these lines, those that are in the table."""
IN_MEMORY = 200
"""Extents of a task with state; its groups are more."""
API = "onyx.dev/v1beta1"
SLOW = {
    "name": "slow", "type": "function", "fn": "busy_job:slow", "batchSize": 200,
    "requiredTags": ["w1"],
}  # fmt: skip
"""All on one worker: where they run, they leave no time to the input that is to be quick."""
NOWHERE = {"name": "nowhere", "type": "output", "plugin": "blackhole", "batchSize": 200}
COUNTS = {
    "name": "counts", "type": "function", "fn": "busy_job:counted", "onTimer": "busy_job:later",
    "state": {"seen": "value[int]"}, "groupByKey": "group", "fluxPolicy": "continue",
    "deduplicate": False, "batchSize": 200,
}  # fmt: skip
MEET = {
    "name": "meet", "type": "join", "how": "inner", "within": {"before": 500, "after": 500},
    "left": {"task": "slow", "key": "n", "at": "n"},
    "right": {"task": "counts", "key": "n", "at": "n", "prefix": "its_"},
    "deduplicate": False, "batchSize": 200,
}  # fmt: skip
RETRY = {
    "from": "slow",
    "to": "none",
    "predicate": "busy_job:is_connection_error",
    "thrownException": True,
    "shortCircuit": True,
    "action": "retry",
}


def numbers(segments: int) -> dict[str, Any]:
    """An input that is quicker than what follows."""
    return {
        "name": "numbers",
        "type": "input",
        "plugin": "generator",
        "batchSize": 200,
        "maxPending": 100_000,
        "options": {"segments": segments, "partitions": 2},
        "watermarkKey": "n",
    }


def specs(lines: Path, table: Path) -> dict[str, dict[str, Any]]:
    """The jobs by their names."""
    lines_in = {"path": str(lines), "format": "jsonl"}
    table_in = {"path": str(table), "format": "jsonl"}
    jobs: dict[str, dict[str, Any]] = {
        "busy": {
            "workflow": [["numbers", "slow"], ["slow", "nowhere"]],
            "catalog": [
                {**numbers(100_000_000), "requiredTags": ["w0"]},
                SLOW,
                {**NOWHERE, "deduplicate": False},
            ],
            "windows": [
                {"id": "counted", "task": "nowhere", "type": "global", "aggregation": "count"},
            ],
            "flowConditions": [RETRY],
        },
        "asked": {
            "workflow": [["lines", "slow"], ["slow", "nowhere"], ["requests", "nowhere"]],
            "catalog": [
                {"name": "lines", "type": "input", "plugin": "files", "options": lines_in},
                {"name": "requests", "type": "input", "plugin": "http"},
                {
                    "name": "few",
                    "type": "table",
                    "plugin": "files",
                    "key": "n",
                    "options": table_in,
                },
                {**SLOW, "join": {"table": "few", "key": "n"}},
                NOWHERE,
            ],
            "flowConditions": [RETRY],
        },
        "kept": {
            "workflow": [
                ["numbers", "slow"],
                ["slow", "counts"],
                ["slow", "meet"],
                ["counts", "meet"],
                ["meet", "nowhere"],
            ],
            "catalog": [
                numbers(100_000_000),
                {**SLOW, "fn": "busy_job:grouped", "deadLetter": "letters"},
                COUNTS,
                MEET,
                NOWHERE,
                {**NOWHERE, "name": "letters"},
            ],
        },
        "stuck": {
            "workflow": [["numbers", "nowhere"]],
            "catalog": [numbers(1), NOWHERE],
            "lifecycles": [{"task": "nowhere", "calls": "busy_job:never"}],
        },
    }
    for job in jobs.values():  # else the first one takes all peers
        job["catalog"] = [
            entry if entry["type"] == "table" else {**entry, "maxPeers": 1}
            for entry in job["catalog"]
        ]
    return jobs


GRAFANA = {
    "$__rate_interval": f"{4 * SCRAPE_S}s",
    "$namespace": ".*",
    "$cluster": ".*",
    "$job": "busy|asked|kept|stuck",
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
    "onyx_http_served_requests_total",
    "onyx_request_seconds_count",
    "onyx_task_join_misses_total",
    "onyx_task_dead_letters_total",
    "onyx_join_expired_rows_total",
}
"""Counters that these jobs keep increasing."""


@pytest.fixture(scope="module")
def prometheus(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Everything runs, and has been scraped for a while."""
    folder = tmp_path_factory.mktemp("monitoring")
    lines, table = folder / "lines.jsonl", folder / "table.jsonl"
    for path, count in ((lines, LINES), (table, KNOWN)):
        path.write_text("".join(f'{{"n": {n}}}\n' for n in range(count)))
    crds = sorted((ROOT / "crds").glob("*.yaml"))
    pages, targets = free_port(), []
    with (
        Cluster(zookeeper.address, folder, Path(busy_job.__file__)) as cluster,
        FakeApi(*crds) as kubernetes,
        Operator(
            kubernetes,
            ZooKeeperClientLog,
            settings(
                SERVER_PORT=str(pages),
                ZOOKEEPER_ADDRESSES=zookeeper.address,
                TENANCIES=f"default/{cluster.settings.tenancy_id}",
            ),
        ),
        contextlib.closing(pages_of(zookeeper)) as of_zookeeper,
    ):
        state = replace(cluster.settings.state, memory_extents_max=IN_MEMORY)
        plain = replace(cluster.settings, state=state)
        for number in range(WORKERS):
            port = free_port()
            telemetry = TelemetrySettings(metrics_port=port, job_stalled_after_s=1.0)
            cluster.settings = replace(plain, telemetry=telemetry, http=HttpSettings(free_port()))
            cluster.start_worker(PEERS)
            labels = {"namespace": "default", "onyx_cluster": "onyx", "pod": f"onyx-{number}"}
            targets.append((f"127.0.0.1:{port}", labels))
        for name, port in (("onyx-operator", pages), ("onyx-zookeeper", of_zookeeper.port)):
            targets.append((f"127.0.0.1:{port}", {"namespace": "default", "pod": name}))
        cluster.await_members(cluster.workers, PEERS)
        address = {"address": zookeeper.address}
        spec = {"tenancyId": plain.tenancy_id, "zookeeper": address, "modules": ["busy_job"]}
        spec["http"] = {}
        kubernetes.create({"apiVersion": API, "kind": "OnyxCluster", "metadata": {"name": "onyx"},
                    "spec": spec})  # fmt: skip
        for name, spec in specs(lines, table).items():
            kubernetes.create({"apiVersion": API, "kind": "OnyxJob", "metadata": {"name": name},
                        "spec": spec})  # fmt: skip
        url = f"http://127.0.0.1:{cluster.settings.http.port}/jobs/asked/requests"
        with Prometheus(folder, targets, promql.RULES) as running, asking(url), sending(plain):
            for metric in sorted(MOVING):
                running.until(
                    lambda m=metric: running.query(f"sum(rate({m}[4s])) > 0"), metric, WAIT_S
                )
            yield running


def pages_of(zookeeper: ZooKeeperServer) -> TelemetryServer:
    """What `onyx zookeeper` serves of its server."""
    registry = CollectorRegistry()
    registry.register(
        ZooKeeperCollector(zookeeper.figures, zookeeper.disk_bytes, zookeeper.heap_bytes)
    )
    return TelemetryServer("127.0.0.1", 0, registry, lambda: True, lambda: True)


@contextlib.contextmanager
def asking(url: str) -> Iterator[None]:
    """A client sends one request after the other; that the job is not there yet is an answer."""
    pool = urllib3.PoolManager(retries=False, timeout=5.0)
    ids = (f"request-{number}" for number in itertools.count())

    def ask() -> None:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            pool.request("POST", url, json={"n": 1}, headers={"Idempotency-Key": next(ids)})

    with repeated(ask):
        yield
    pool.clear()


@contextlib.contextmanager
def sending(settings: Settings) -> Iterator[None]:
    """Another one does so over gRPC, also to a job that is not there."""
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(api.appender(settings, job)) for job in ("asked", "<script>")
        ]

        def send() -> None:
            for client in clients:
                with contextlib.suppress(OnyxError, TimeoutError):
                    client.append({"n": 1}, timeout_s=2.0)

        with repeated(send):
            yield


@contextlib.contextmanager
def repeated(call: Callable[[], None]) -> Iterator[None]:
    """A thread calls it again and again."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.05):
            call()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("expr", QUERIES)
def test_a_query_of_a_dashboard_finds_series(prometheus: Prometheus, expr: str) -> None:
    for variable, value in GRAFANA.items():
        expr = expr.replace(variable, value)
    assert "$" not in expr

    assert prometheus.until(lambda: prometheus.query(expr), expr)


@pytest.mark.parametrize("rule", promql.rules(), ids=lambda rule: rule["alert"])
def test_an_alert_finds_the_series_that_it_asks_for(
    prometheus: Prometheus, rule: dict[str, Any]
) -> None:
    """With the labels by which it sums them up; that it fires is tested with made-up series."""
    labels = promql.grouped(rule["expr"])
    for metric in sorted({each.metric for each in promql.selected(rule["expr"])}):
        for series in prometheus.until(lambda m=metric: prometheus.query(m), metric):
            assert labels <= series["metric"].keys()


@pytest.mark.parametrize(
    ("series", "labels"),
    [
        ('onyx_segment_complete_seconds_bucket{job="busy"}', {"partition", "position"}),
        ('onyx_request_seconds_bucket{job="asked", transport="http"}', {"request"}),
    ],
)
def test_a_bucket_leads_to_a_segment_or_request(
    prometheus: Prometheus, series: str, labels: set[str]
) -> None:
    (example, *_) = prometheus.until(lambda: prometheus.exemplars(series), series)

    assert example.keys() == labels
    assert example.get("request", "request-").startswith("request-")


@pytest.mark.parametrize(
    "series",
    [
        'onyx_state_groups{job="kept", task="counts"}',
        'onyx_state_timers{job="kept", task="counts"}',
        'onyx_state_spilled_extents{job="kept", task="counts"}',
        'onyx_state_bytes{job="kept", task="counts"}',
        'onyx_join_side_rows{job="kept", task="meet", side="slow"}',
        'onyx_join_side_bytes{job="kept", task="meet", side="counts"}',
        'onyx_table_rows{job="asked", task="few"}',
        'onyx_request_seconds_count{job="asked", transport="http", status="processed"}',
        'onyx_request_seconds_count{job="asked", transport="grpc", status="processed"}',
        'onyx_request_seconds_count{job="-", transport="grpc", status="unknown"}',
    ],
)
def test_what_a_job_keeps_and_is_asked_is_counted(prometheus: Prometheus, series: str) -> None:
    assert prometheus.until(lambda: prometheus.query(f"sum({series}) > 0"), series)


def test_a_name_that_a_client_has_made_up_is_in_no_series(prometheus: Prometheus) -> None:
    named = {each["metric"]["job"] for each in prometheus.query('{job=~".+"}')}

    assert named >= {"busy", "asked", "kept"}
    assert "<script>" not in named


def test_the_rules_are_healthy_and_only_what_is_wrong_is_told(prometheus: Prometheus) -> None:
    rules = prometheus.until(
        lambda: [each for each in prometheus.rules() if each["health"] == "ok"], "rules are read"
    )

    assert {each["name"] for each in rules} == {each["alert"] for each in promql.rules()}
    reported = {each["name"] for each in rules if each["state"] != "inactive"}
    assert "OnyxJobRetries" in reported
    assert not reported & {"OnyxOperatorAbsent", "OnyxJobFailed", "OnyxJobStalled"}


def test_series_have_the_labels_that_are_documented(prometheus: Prometheus) -> None:
    (series, *_) = prometheus.query('onyx_task_segments_in_total{job="busy", task="slow"}')

    assert series["metric"].keys() >= {"namespace", "onyx_cluster", "pod", "job", "task"}
