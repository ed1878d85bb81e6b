"""What a scrape sees of the peers, jobs and traffic of a process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast
from unittest import mock

import pytest
from immutables import Map
from msgspec.structs import replace
from tests.support.log.replica_log import ReplicaLog
from tests.support.log.runs import altered

from onyx.ids import GroupId, JobId, PeerId, Position, TaskName
from onyx.model.job import Job
from onyx.peer.group_telemetry import GroupTelemetry
from onyx.replica import canonical
from onyx.replica.command import Entry
from onyx.replica.commands import Gc
from onyx.replica.state import Replica
from onyx.telemetry.catalog import ACKS, SOURCE_OFFSET
from onyx.telemetry.interface import GroupMetrics, TaskMetrics
from onyx.telemetry.metrics import PrometheusGroupMetrics
from onyx.transport.counters import Counters

G, J, T = GroupId("g"), JobId("0-1"), TaskName("read")
A, B, C = PeerId("a"), PeerId("b"), PeerId("c")
INFO = {"job": "flights", "job_id": J, "guarantee": "at-least-once"}

OFFERED = Replica(groups_index=Map({G: (A, B, C)}))
AT_WORK = altered(
    replace(OFFERED, jobs=(J,)),
    J,
    allocation=Map({T: (A, B)}),
    allocation_version=7,
    ready=Map({A: None}),
)


@pytest.fixture
def metrics() -> PrometheusGroupMetrics:
    return PrometheusGroupMetrics()


def peers(metrics: PrometheusGroupMetrics) -> dict[str, float]:
    states = ("idle", "warming", "allocated", "leaving")
    found = {
        state: metrics.registry.get_sample_value("onyx_peers", {"state": state}) for state in states
    }
    return {state: count for state, count in found.items() if count}


def test_peers_are_counted_by_what_they_do(metrics: PrometheusGroupMetrics) -> None:
    telemetry = GroupTelemetry(G, metrics)
    telemetry.observe(OFFERED)
    assert peers(metrics) == {"idle": 3}
    telemetry.observe(AT_WORK)
    assert peers(metrics) == {"idle": 1, "warming": 1, "allocated": 1}
    telemetry.observe(AT_WORK, leaving=True)
    assert peers(metrics) == {"leaving": 3}
    telemetry.close()
    assert peers(metrics) == {}


def test_a_job_has_info_while_a_peer_of_this_process_works_on_it(
    metrics: PrometheusGroupMetrics,
) -> None:
    telemetry = GroupTelemetry(G, metrics)
    telemetry.observe(AT_WORK)
    telemetry.job_started(J, "flights", "at-least-once")
    telemetry.job_started(J, "flights", "at-least-once")
    assert metrics.registry.get_sample_value("onyx_job_info", INFO) == 1
    telemetry.observe(altered(AT_WORK, J, ready=Map({A: None, B: None})))
    assert metrics.registry.get_sample_value("onyx_job_info", INFO) == 1
    telemetry.observe(altered(AT_WORK, J, allocation=Map({T: (PeerId("elsewhere"),)})))
    assert metrics.registry.get_sample_value("onyx_job_info", INFO) is None


def test_metrics_of_a_program_get_all_that_is_measured_and_it_is_counted_besides() -> None:
    own = mock.Mock(spec_set=TaskMetrics, tally=None)
    group = mock.Mock(spec_set=GroupMetrics)
    group.task.return_value = own
    job = SimpleNamespace(name="flights", guarantee="at-least-once")
    metrics = GroupTelemetry(G, group).of_task(J, cast(Job, job), T)
    metrics.batch(3, 2)
    metrics.completed(0.5, 3)
    metrics.add(ACKS, 4)
    metrics.set(SOURCE_OFFSET, 5)
    metrics.close()
    assert [each[0] for each in own.method_calls] == ["batch", "completed", "add", "set", "close"]
    assert metrics.tally is not None
    assert metrics.tally.written == 2


def test_traffic_is_reported_as_what_came_since(metrics: PrometheusGroupMetrics) -> None:
    telemetry = GroupTelemetry(G, metrics)
    telemetry.report_traffic(
        Counters(sent_bytes=100, sent_frames=2, received_bytes=7, received_frames=1)
    )
    telemetry.report_traffic(
        Counters(sent_bytes=150, sent_frames=3, received_bytes=7, received_frames=1, reconnects=2)
    )
    value = metrics.registry.get_sample_value
    assert value("onyx_grpc_stream_bytes_total", {"direction": "out"}) == 150
    assert value("onyx_grpc_stream_messages_total", {"direction": "out"}) == 3
    assert value("onyx_grpc_stream_bytes_total", {"direction": "in"}) == 7
    assert value("onyx_grpc_stream_reconnects_total") == 2


def test_an_entry_that_every_replica_rejects_is_counted_and_logged_with_the_reason(
    metrics: PrometheusGroupMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = GroupTelemetry(G, metrics)
    log = ReplicaLog()
    for job in ("../..", "good"):
        log.tell_raw("kill-job", job=job)
        assert log.entry is not None
        telemetry.applied(log.entry, log.new, 0.001)

    counted = metrics.registry.get_sample_value("onyx_log_entries_rejected_total")
    assert counted == 1
    (record,) = caplog.records
    assert record.getMessage().startswith("entry 0 of the log, 'kill-job', is rejected by every")
    assert "$.job" in record.getMessage()


def test_every_thousandth_replica_has_its_digest_in_the_metrics(
    metrics: PrometheusGroupMetrics,
) -> None:
    def digests() -> dict[str, float]:
        (family,) = [
            each for each in metrics.registry.collect() if each.name == "onyx_replica_digest"
        ]
        return {each.labels["position"]: each.value for each in family.samples}

    telemetry = GroupTelemetry(G, metrics)
    for position in (999, 1_000, 1_001, 2_000, 2_001):
        entry = Entry(Position(position), Gc(id=""))
        telemetry.applied(entry, replace(OFFERED, version=Position(position)), 0.001)
        if position == 1_001:
            assert digests().keys() == {"1000"}
    first = int(canonical.digest(replace(OFFERED, version=Position(2_000)))[:12], 16)
    assert digests() == {"2000": first}
    telemetry.close()
    assert digests() == {}
