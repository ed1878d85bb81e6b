"""OnyxJobs do what their owners declare: the whole operator, a fake API, pretended workers."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.operator.declaring import FAST, condition, declare, phase, reported, started, submitted
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, cluster, job, settings
from tests.operator.test_watches import eventually
from tests.operator.workers import Workers

from onyx.errors import Unavailable
from onyx.log.interface import ClientLog
from onyx.replica.commands import KillJob, SetOptions
from onyx.replica.commands.set_options import TaskOptions
from onyx.settings import Settings
from onyx.telemetry.http_server import TelemetryServer
from onyx_operator.logs import follower


def config_map(name: str, of: Any) -> dict[str, Any]:
    """A ConfigMap with a job file."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"job.yaml": msgspec.json.encode(of).decode()},
    }


def test_a_job_runs_and_completes_and_tells_how_it_is(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api)
    running = api.get("onyxjobs", "job")
    assert running is not None
    status = running["status"]
    assert status["peers"] == {"allocated": 4, "required": 2}
    assert {task["name"] for task in status["tasks"]} == {"read", "write"}
    assert "finalizers" not in running["metadata"], "nothing waits for an operator"
    assert "annotations" not in running["metadata"]
    for name in ("Validated", "ClusterReady", "Submitted", "Allocated", "Running"):
        assert condition(name, "True")(running), name
    assert condition("Completed", "False")(running)

    workers.finish(job_id)
    ended = api.wait_for("onyxjobs", "job", condition("Completed", "True"))
    assert ended["status"]["phase"] == "Completed"
    assert ended["status"]["finishedAt"]
    assert submitted(logs) == [job_id]
    reported(api, "Submitted", "Running", "Completed")


def test_a_job_that_waits_says_why(api: FakeApi, logs: Logs, operator: Operator) -> None:
    api.create(job())
    found = api.wait_for("onyxjobs", "job", condition("Allocated", "False", "WaitingForPeers"))
    assert found["status"]["phase"] == "Waiting"
    assert found["status"]["message"] == "needs 2 peers (read 1, write 1); the cluster has none"


def test_a_job_whose_peers_go_to_another_one_says_so(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    big = job("big")
    for task in big["spec"]["catalog"]:
        task["minPeers"] = 2
    api.create(big)
    api.wait_for("onyxjobs", "big", phase("Running", "Running"))
    small = job("small")
    small["spec"]["priority"] = 1
    api.create(small)
    found = api.wait_for("onyxjobs", "big", phase("Waiting", "Displaced"))
    assert "gave its peers to other jobs" in found["status"]["message"]
    reported(api, "Displaced")
    api.delete("onyxjobs", "small")
    api.wait_for("onyxjobs", "big", phase("Running", "Running"))


def test_progress_is_the_sum_of_the_frontiers(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api)
    client = logs.log().client()
    frontier = {"position": 1_234, "cursor": [0, 0], "exhausted": False, "reserved": 2_000}
    client.put_document(f"frontier/{job_id}/0", msgspec.json.encode(frontier), None)
    expected = {"completed": 1_234, "partitions": 1, "exhausted": 0}
    api.wait_for("onyxjobs", "job", lambda each: each["status"]["progress"] == expected)
    client.close()


def test_a_job_is_suspended_and_resumed_by_declaration(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api)
    declare(api, desiredState="Suspended")
    api.wait_for("onyxjobs", "job", phase("Suspended"))
    declare(api, desiredState="Running")
    api.wait_for("onyxjobs", "job", phase("Running"))
    assert submitted(logs) == [job_id]


def test_a_stopped_job_drains_and_stays_stopped(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api)
    declare(api, desiredState="Stopped")
    found = api.wait_for("onyxjobs", "job", phase("Stopped", "Drained"))
    assert condition("Completed", "True")(found)
    declare(api, desiredState="Running")
    found = api.wait_for("onyxjobs", "job", lambda each: condition("Validated", "True")(each))
    assert found["status"]["phase"] == "Stopped"
    assert "restartNonce" in found["status"]["message"]
    assert submitted(logs) == [job_id]


def test_a_job_that_shall_not_run_yet_is_not_submitted(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    api.create(job(desiredState="Suspended"))
    api.wait_for("onyxjobs", "job", phase("Suspended", "NotSubmitted"))
    assert not submitted(logs)
    declare(api, desiredState="Running")
    api.wait_for("onyxjobs", "job", phase("Running"))


def test_another_restart_nonce_runs_a_job_again(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api)
    workers.finish(first)
    api.wait_for("onyxjobs", "job", phase("Completed"))
    declare(api, restartNonce=1)
    found = api.wait_for("onyxjobs", "job", phase("Running"))
    assert found["status"]["jobId"] != first
    assert "finishedAt" not in found["status"]
    assert len(submitted(logs)) == 2


def test_an_edited_spec_is_another_job_after_the_former_one_was_drained(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api)
    declare(api, catalog=job(version=20)["spec"]["catalog"])
    found = api.wait_for(
        "onyxjobs", "job", lambda each: phase("Running")(each) and each["status"]["jobId"] != first
    )
    written = [
        (each.NAME, getattr(each, "job", getattr(each, "id", "")))
        for each in logs.commands()
        if each.NAME in ("submit-job", "drain-job")
    ]
    second = found["status"]["jobId"]
    assert written == [("submit-job", first), ("drain-job", first), ("submit-job", second)]
    assert first in logs.replica().completed_jobs


def test_an_edit_of_keys_that_may_change_while_a_job_runs_changes_them_there(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api)
    catalog = job()["spec"]["catalog"]
    catalog[0] |= {"maxPending": 500, "segmentsPerSecondMax": 100}
    del catalog[1]["batchSize"]
    declare(api, catalog=catalog)
    reported(api, "OptionsSet")
    assert submitted(logs) == [job_id]
    run = logs.replica().run(job_id)
    assert {task: dict(values) for task, values in run.options.items()} == {
        "read": {"batchSize": 10, "maxPending": 500, "segmentsPerSecondMax": 100}
    }
    assert len(logs.commands("set-options")) == 1

    # What is set by hand stays until the next edit.
    client = logs.log().client()
    by_hand = {"write": TaskOptions(batch_size=3)}
    client.append(SetOptions(job=job_id, tasks=by_hand))
    client.close()
    declare(api, ttlSecondsAfterFinished=3_600)
    api.wait_for("onyxjobs", "job", condition("Validated", "True"))
    assert "write" in logs.replica().run(job_id).options

    declare(api, catalog=job()["spec"]["catalog"])
    api.wait_for("onyxjobs", "job", lambda _: len(logs.commands("set-options")) == 3)
    assert "maxPending" not in logs.replica().run(job_id).options["read"]
    assert submitted(logs) == [job_id]


def test_an_edit_that_changes_more_as_well_is_another_job_with_its_own_values(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api)
    catalog = job(version=20)["spec"]["catalog"]
    catalog[0] |= {"maxPending": 500}
    declare(api, catalog=catalog)
    found = api.wait_for(
        "onyxjobs", "job", lambda each: phase("Running")(each) and each["status"]["jobId"] != first
    )
    assert submitted(logs) == [first, found["status"]["jobId"]]
    assert not logs.commands("set-options")


def test_what_is_no_part_of_the_job_makes_no_other_job(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api)
    declare(api, ttlSecondsAfterFinished=3_600, failurePolicy={"retries": 3})
    api.wait_for("onyxjobs", "job", condition("Validated", "True"))
    assert submitted(logs) == [job_id]


def test_a_bad_edit_leaves_the_good_job_running_and_says_so(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api)
    declare(api, workflow=[["read", "nowhere"]])
    found = api.wait_for("onyxjobs", "job", condition("Validated", "False", "InvalidSpec"))
    assert found["status"]["phase"] == "Running"
    assert found["status"]["jobId"] == job_id
    assert "nowhere" in found["status"]["message"]
    assert job_id in logs.replica().jobs
    declare(api, workflow=[["read", "write"]])
    api.wait_for("onyxjobs", "job", condition("Validated", "True"))
    assert submitted(logs) == [job_id]


def test_a_bad_job_is_told_and_never_submitted(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    api.create(job("bad", workflow=[["read", "nowhere"]]))
    started(api)
    found = api.wait_for("onyxjobs", "bad", phase("Invalid", "InvalidSpec"))
    assert 'spec.workflow[0][1]: "nowhere" is not in the catalog' in found["status"]["message"]
    assert len(submitted(logs)) == 1
    api.delete("onyxjobs", "bad")
    assert api.get("onyxjobs", "bad") is None, "nothing holds it"


def test_a_failed_job_is_tried_again_and_then_told_as_failed(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api, failurePolicy={"retries": 1, "backoffSeconds": 0})
    workers.fail(first, "boom")
    found = api.wait_for(
        "onyxjobs", "job", lambda each: phase("Running")(each) and each["status"]["attempt"] == 1
    )
    workers.fail(found["status"]["jobId"], "boom")
    found = api.wait_for("onyxjobs", "job", condition("Failed", "True", "TaskFailed"))
    assert found["status"]["message"].startswith("task read, ")
    assert len(set(submitted(logs))) == 2


def test_a_job_killed_by_a_command_is_not_tried_again(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api, failurePolicy={"retries": 5, "backoffSeconds": 0})
    client = logs.log().client()
    client.append(KillJob(job=job_id))
    client.close()
    api.wait_for("onyxjobs", "job", phase("Killed"))
    assert submitted(logs) == [job_id]


def test_a_deleted_job_is_killed(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api)
    api.delete("onyxjobs", "job")
    eventually(lambda: job_id in logs.replica().killed_jobs)


def test_a_job_that_ended_long_enough_ago_is_deleted(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api, ttlSecondsAfterFinished=0)
    workers.finish(job_id)
    api.wait_for("onyxjobs", "job", lambda found: found is None)
    assert job_id in logs.replica().completed_jobs


def test_a_job_file_in_a_config_map_is_run(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    api.create(
        {**job(), "spec": {"jobRef": {"configMap": "big"}}},
    )
    found = api.wait_for("onyxjobs", "job", phase("Pending", "JobRefNotFound"))
    assert condition("Failed", "False")(found), "the file may come"
    assert "ConfigMap big, key job.yaml" in found["status"]["message"]
    api.create(config_map("big", job("other")))
    api.wait_for("onyxjobs", "job", phase("Running"))
    assert len(submitted(logs)) == 1


def test_a_job_that_has_ended_stays_so_without_its_file(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    api.create(config_map("big", job("other")))
    api.create({**job(), "spec": {"jobRef": {"configMap": "big"}}})
    found = api.wait_for("onyxjobs", "job", phase("Running"))
    workers.finish(found["status"]["jobId"])
    api.wait_for("onyxjobs", "job", phase("Completed"))
    api.delete("configmaps", "big")
    found = api.wait_for("onyxjobs", "job", condition("Validated", "False", "JobRefNotFound"))
    assert phase("Completed", "Finished")(found)
    assert condition("Completed", "True")(found)
    declare(api, restartNonce=1)
    api.wait_for("onyxjobs", "job", phase("Pending", "JobRefNotFound"))
    assert len(submitted(logs)) == 1


def test_a_job_file_that_comes_later_is_found_before_the_next_resync(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    api.create(cluster())
    with Operator(api, logs.connect, settings(JOBS_RESYNC_INTERVAL_S="600")):
        api.create({**job(), "spec": {"jobRef": {"configMap": "big"}}})
        api.wait_for("onyxjobs", "job", phase("Pending", "JobRefNotFound"))
        api.create(config_map("big", job("other")))
        api.wait_for("onyxjobs", "job", phase("Running"))


def test_a_missing_cluster_is_told_until_it_is_there(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    with Operator(api, logs.connect, FAST):
        api.create(job())
        found = api.wait_for(
            "onyxjobs", "job", condition("ClusterReady", "False", "ClusterNotFound")
        )
        assert "no OnyxCluster onyx in namespace default" in found["status"]["message"]
        api.create(cluster())
        api.wait_for("onyxjobs", "job", phase("Running"))


def test_a_job_whose_cluster_is_deleted_has_no_peers(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    started(api)
    api.delete("onyxclusters", "onyx")
    found = api.wait_for("onyxjobs", "job", phase("Waiting", "ClusterNotFound"))
    assert found["status"]["peers"] == {"allocated": 0, "required": 2}
    assert condition("Running", "False")(found)
    api.create(cluster())
    api.wait_for("onyxjobs", "job", phase("Running", "Running"))


def test_a_cluster_without_a_zookeeper_is_told(api: FakeApi, logs: Logs) -> None:
    nowhere = cluster()
    del nowhere["spec"]["zookeeper"]
    api.create(nowhere)
    with Operator(api, logs.connect, FAST):
        api.create(job())
        found = api.wait_for(
            "onyxjobs", "job", condition("ClusterReady", "False", "ClusterNotReady")
        )
    assert "spec.zookeeper.address" in found["status"]["message"]


def test_a_cluster_whose_zookeeper_is_gone_stalls_no_other(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    stuck = threading.Event()

    def connect(found: Settings) -> ClientLog:
        if found.tenancy_id.endswith("dead"):
            stuck.wait(20)
            raise Unavailable("no ZooKeeper answers at dead:2181")
        return logs.connect(found)

    with contextlib.ExitStack() as stack:
        stack.callback(stuck.set)
        api.create(cluster())
        api.create(cluster("dead"))
        stack.enter_context(Operator(api, connect, FAST))
        for index in range(20):
            api.create(job(f"dead-{index}", clusterRef="dead"))
        started(api)
        stuck.set()
        unreachable = condition("ClusterReady", "False", "LogUnreachable")
        found = api.wait_for("onyxjobs", "dead-0", unreachable)
        assert "no ZooKeeper answers" in found["status"]["message"]


def test_a_status_written_by_a_user_is_put_right_and_kills_nobody(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api)
    api.create(job("other", version=30))
    forged = {"status": {"jobId": job_id, "phase": "Completed", "conditions": "none"}}
    with contextlib.suppress(Exception):
        api.patch("onyxjobs", "other", forged, subresource="status")
    api.patch(
        "onyxjobs", "other", {"status": {"jobId": job_id, "attempt": 7}}, subresource="status"
    )
    api.delete("onyxjobs", "other")
    api.wait_for("onyxjobs", "other", lambda found: found is None)
    assert job_id in logs.replica().jobs


def test_a_wiped_status_is_found_again(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    job_id = started(api)
    found = api.get("onyxjobs", "job")
    assert found is not None
    nothing = dict.fromkeys(found["status"])
    api.patch("onyxjobs", "job", {"status": nothing}, subresource="status")
    found = api.wait_for("onyxjobs", "job", phase("Running"))
    assert found["status"]["jobId"] == job_id
    assert submitted(logs) == [job_id]


@pytest.mark.short(3)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(verb="patch", resource="onyxjobs", code=409, times=3),
        Fault(verb="patch", resource="onyxjobs", code=500, times=3),
        Fault(verb="patch", resource="onyxjobs", code=429, times=2),
        Fault(verb="patch", resource="onyxjobs", drop=True, times=3),
        Fault(verb="patch", resource="onyxjobs", drop=True, after_effect=True, times=3),
        Fault(verb="watch", resource="onyxjobs", drop=True, after_events=1, times=3),
        Fault(verb="watch", resource="onyxjobs", code=410, times=1),
        Fault(verb="create", resource="events", code=403, times=0),
    ],
    ids=lambda fault: f"{fault.verb}-{fault.code or 'drop'}-{fault.after_effect}",
)
def test_a_bad_day_of_the_api_server_delays_and_loses_nothing(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator, fault: Fault
) -> None:
    api.faults.add(fault)
    job_id = started(api)
    workers.finish(job_id)
    api.wait_for("onyxjobs", "job", phase("Completed"))
    api.delete("onyxjobs", "job")
    api.wait_for("onyxjobs", "job", lambda found: found is None)
    assert set(submitted(logs)) == {job_id}


def test_words_that_kubectl_may_have_made_of_other_words_are_told(
    api: FakeApi, operator: Operator, workers: Workers
) -> None:
    spec = job()["spec"]
    spec["catalog"][0]["options"] = {"segments": [{"false": 1}]}
    started(api, **spec)
    found = api.wait_for("onyxjobs", "job", condition("Validated", "True", "WordsMisread"))
    (said,) = (e["message"] for e in found["status"]["conditions"] if e["type"] == "Validated")
    assert said.startswith("spec.catalog[0].options.segments[0].false: is perhaps n, no or off")


def test_why_zookeeper_does_not_serve_is_told_of_clusters_and_jobs(
    api: FakeApi, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "REOPEN_S", 0.1)
    full = "disk full: 0 of 9 bytes are free for its data"
    page = TelemetryServer("127.0.0.1", 0, None, lambda: True, lambda: full)
    found = settings(ZOOKEEPER_PAGES=f"127.0.0.1:{page.port}")
    here = replace(found.engine.zookeeper, address="zookeeper:2181")
    found = replace(found, engine=replace(found.engine, zookeeper=here))
    logs.away.set()
    try:
        with Operator(api, logs.connect, found):
            api.create(cluster())
            api.create(job())
            api.wait_for(
                "onyxclusters", "onyx", condition("ZooKeeperReachable", "False", "DiskFull")
            )
            waiting = api.wait_for("onyxjobs", "job", phase("Pending", "LogUnreachable"))
            assert f"no ZooKeeper answers; 127.0.0.1 says: {full}" in waiting["status"]["message"]
            logs.away.clear()
            api.wait_for("onyxclusters", "onyx", condition("ZooKeeperReachable", "True"))
    finally:
        page.close()
