"""The operator with a real ZooKeeper: real workers do a job, an outage is reported and survived."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.operator.declaring import add_pod
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Operator, cluster, job, settings
from tests.support.patience import WAIT_S
from tests.support.servers.ports import free_port

from onyx import api as onyx_api
from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.settings import Settings, TelemetrySettings, ZooKeeperSettings
from onyx_operator.clusters import observe

pytestmark = pytest.mark.server
SEGMENTS = 200


def condition(name: str, truth: str) -> Callable[[Any], bool]:
    return lambda found: any(
        each["type"] == name and each["status"] == truth for each in found["status"]["conditions"]
    )


def counting() -> dict[str, Any]:
    made = job(desiredState="Running")
    made["spec"]["catalog"][0]["options"] = {
        "segments": [{"n": number} for number in range(SEGMENTS)],
        "partitions": 2,
    }
    return made


def test_real_workers_do_a_job_that_was_applied_and_an_outage_passes(
    api: FakeApi, tmp_path: Path
) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper", port=free_port()) as server:
        zookeeper = ZooKeeperSettings(address=server.address, session_timeout_s=4.0)
        base = Settings(tenancy_id="default.onyx", zookeeper=zookeeper)
        found = replace(settings(), engine=Settings(zookeeper=zookeeper))
        api.create(cluster(zookeeper={"address": server.address}))
        with Operator(api, ZooKeeperClientLog, found):
            api.create(counting())
            api.wait_for("onyxjobs", "job", condition("Submitted", "True"), timeout_s=WAIT_S)
            server.stop()
            api.wait_for("onyxjobs", "job", condition("ClusterReady", "False"), timeout_s=WAIT_S)
            server.start()
            api.wait_for("onyxjobs", "job", condition("ClusterReady", "True"), timeout_s=WAIT_S)
            group = onyx_api.start_peer_group(base)
            onyx_api.start_peers(3, group)
            try:
                ended = api.wait_for(
                    "onyxjobs", "job", condition("Completed", "True"), timeout_s=WAIT_S
                )
                expected = {"completed": SEGMENTS}
                api.wait_for(
                    "onyxjobs",
                    "job",
                    lambda reported: expected.items() <= reported["status"]["progress"].items(),
                    timeout_s=WAIT_S,
                )
            finally:
                onyx_api.shutdown_peer_group(group)
            with onyx_api.connect(base) as client:
                (status,) = client.statuses()
            assert (status.id, status.state) == (ended["status"]["jobId"], "completed")
            api.delete("onyxjobs", "job")
            api.wait_for("onyxjobs", "job", lambda reported: reported is None)


def test_real_workers_say_how_far_a_job_is_behind(
    api: FakeApi, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ZooKeeperSettings(address=zookeeper.address)
    telemetry = TelemetrySettings(metrics_port=0)
    base = Settings(tenancy_id="default.lagging", zookeeper=log, telemetry=telemetry)
    slow = counting()
    slow["spec"]["catalog"][0] |= {"batchSize": 1, "segmentsPerSecondMax": 1}
    api.create(cluster("lagging", zookeeper={"address": zookeeper.address}))
    slow["spec"]["clusterRef"] = "lagging"
    group = onyx_api.start_peer_group(base)
    monkeypatch.setattr(observe, "METRICS_PORT", group.metrics_port)
    add_pod(api, "lagging")
    onyx_api.start_peers(2, group)
    try:
        more = {"JOBS_PROGRESS_INTERVAL_S": "0.5", "ZOOKEEPER_ADDRESSES": zookeeper.address}
        with Operator(api, ZooKeeperClientLog, settings(**more)):
            api.create(slow)
            api.wait_for(
                "onyxjobs",
                "job",
                lambda each: 0 < each["status"]["lag"]["segments"] <= SEGMENTS,
                timeout_s=WAIT_S,
            )
    finally:
        onyx_api.shutdown_peer_group(group)


@pytest.mark.slow
def test_a_job_whose_log_was_wiped_is_told_of_and_others_are_taken_again(
    api: FakeApi, tmp_path: Path
) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper", port=free_port()) as server:
        zookeeper = ZooKeeperSettings(address=server.address, session_timeout_s=4.0)
        found = replace(settings(), engine=Settings(zookeeper=zookeeper))
        api.create(cluster(zookeeper={"address": server.address}))
        with Operator(api, ZooKeeperClientLog, found):
            api.create(counting())
            api.wait_for("onyxjobs", "job", condition("Submitted", "True"), timeout_s=WAIT_S)
            server.stop()
            shutil.rmtree(tmp_path / "zookeeper")
            server.start()

            forgotten = api.wait_for(
                "onyxjobs",
                "job",
                lambda reported: reported["status"]["reason"] == "Forgotten",
                timeout_s=WAIT_S,
            )
            assert "ZooKeeper has lost its data" in forgotten["status"]["message"]
            api.patch("onyxjobs", "job", {"spec": {"restartNonce": 1}})
            api.wait_for(
                "onyxjobs",
                "job",
                lambda reported: reported["status"]["jobId"] != forgotten["status"]["jobId"],
                timeout_s=WAIT_S,
            )
            api.wait_for("onyxjobs", "job", condition("Submitted", "True"), timeout_s=WAIT_S)
