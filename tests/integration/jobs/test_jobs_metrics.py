"""What a scrape finds after a job has run: the metrics of the catalog, with its numbers."""

from __future__ import annotations

import pytest
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest, until

from onyx.replica.commands import COMMANDS
from onyx.telemetry.metrics import PrometheusGroupMetrics
from onyx.testing import with_test_env

pytestmark = pytest.mark.server
SEGMENTS = 40
OUTSIDE_A_QUIET_JOB = {
    "onyx_replica_digest",  # of each thousandth entry
    "onyx_task_backpressured_seconds_total",
    "onyx_task_retries_total",
    "onyx_task_given_up_segments_total",
    "onyx_acker_open_trees",
    "onyx_acker_forgotten_trees_total",
    "onyx_task_errors_total",
    "onyx_task_dead_letters_total",
    "onyx_task_unmatched_segments_total",
    "onyx_task_failed_request_segments_total",
    "onyx_zookeeper_session_losses_total",
    "onyx_grpc_stream_reconnects_total",
    "onyx_grpc_stream_bytes_total",
    "onyx_grpc_stream_messages_total",
    "onyx_source_pending_segments",
    "onyx_source_failed_messages_total",
    "onyx_source_taken_over_total",
    "onyx_source_terminated_messages_total",
    "onyx_edge_queue_segments",
    "onyx_edge_queue_capacity_segments",
    "onyx_job_info",
    "onyx_job_stalled_seconds",
    "onyx_task_watermark_seconds",
    "onyx_window_late_segments_total",
    "onyx_state_recovery_read_bytes",
    "onyx_state_recovery_size_bytes",
    "onyx_log_entries_rejected_total",
    "onyx_log_stored_bytes",
    "onyx_log_stored_bytes_max",
    "onyx_grpc_calls_refused_total",
    "onyx_source_lag_segments",
    "onyx_source_lag_bytes",
    "onyx_source_oldest_open_seconds",
    "onyx_zookeeper_watches",
    "onyx_request_seconds",
    "onyx_state_bytes",
    "onyx_state_groups",
    "onyx_state_timers",
    "onyx_state_spilled_extents",
    "onyx_table_rows",
    "onyx_table_bytes",
    "onyx_table_age_seconds",
}
"""Those that need a fault, a second process, windows or another state, a
table, ZooKeeper, clients, a running job or that
garbage is collected; other tests write them."""

OF_PLUGINS = ("onyx_spark_", "onyx_http_", "onyx_source_journal_", "onyx_source_acked_",
              "onyx_source_redelivered_", "onyx_task_join_", "onyx_join_")  # fmt: skip
"""What the names of those begin with that Spark, HTTP, a live source or a join writes."""


def test_a_job_writes_every_metric_that_it_has_to_do_with() -> None:
    metrics = PrometheusGroupMetrics(COMMANDS, "1")
    out = channel()
    spec = f"""
        workflow: [[read, work], [work, write]]
        catalog:
          - {{name: read, type: input, plugin: generator, batchSize: 10,
              options: {{segments: {SEGMENTS}}}}}
          - {{name: work, type: function, fn: "f:same", batchSize: 10}}
          - {{name: write, type: output, plugin: channel, batchSize: 10,
              options: {{channel: {out.name}}}}}
    """
    with with_test_env(3, modules=[FUNCTIONS], metrics=metrics) as env:
        status = env.run(manifest(spec))
        assert status.state == "completed", status
        until(env, lambda replica: not replica.run(status.id).allocation)
    written = {
        metric
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.value and not sample.name.endswith("_bucket")
        for metric in (family.name, f"{family.name}_total", sample.name)
    }
    expected = {each for each in metrics._families if not each.startswith(OF_PLUGINS)}
    silent = expected - written - OUTSIDE_A_QUIET_JOB
    assert silent == {"onyx_peers"}, "the group has left: it has no peers any more"
    for task in ("read", "work", "write"):
        count = metrics.registry.get_sample_value(
            "onyx_task_segments_in_total", {"job": "job", "task": task}
        )
        assert count == SEGMENTS, task
