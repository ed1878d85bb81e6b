"""Edits of a windowed OnyxJob with upgradePolicy KeepState, with real workers and ZooKeeper: every
window is exactly right in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.operator.declaring import condition, phase
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Operator, cluster, settings
from tests.support.jobs.exactly_once import (
    MODULE,
    PARTITIONS,
    PEERS,
    Gate,
    compare,
    expected,
    manifest,
    written,
)
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster

from onyx.log.server.process import ZooKeeperServer
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.settings import Settings

pytestmark = pytest.mark.server
SEGMENTS = 60_000
EDITS = 4


def version(folder: Path, number: int) -> dict[str, Any]:
    """Each is another job."""
    found = manifest(folder, SEGMENTS)
    found["metadata"] = {"name": "job", "namespace": "default"}
    for entry in found["spec"]["catalog"]:
        entry |= {"batchSize": 300, "doc": f"version {number}"}
    found["spec"]["upgradePolicy"] = "KeepState"
    return found


def test_windows_are_exact_through_edits_that_resume(
    api: FakeApi, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate", SEGMENTS // PARTITIONS)
    with Cluster(zookeeper.address, tmp_path, MODULE) as workers:
        workers.start_workers(2, PEERS)
        tenancy = workers.settings.tenancy_id
        engine = Settings(zookeeper=workers.settings.zookeeper)
        found = replace(settings(), engine=engine, tenancies=(f"default/{tenancy}",))
        api.create(cluster(zookeeper={"address": zookeeper.address}, tenancyId=tenancy))
        with Operator(api, ZooKeeperClientLog, found) as operator:
            api.create(version(tmp_path, 0))
            api.wait_for("onyxjobs", "job", phase("Running", "Running"), timeout_s=WAIT_S)
            for number in range(1, EDITS + 1):
                gate.open(number / (EDITS + 1))
                api.patch("onyxjobs", "job", {"spec": version(tmp_path, number)["spec"]})
                if number == 2:
                    operator.kill()
                elif number > 2:
                    api.wait_for(
                        "onyxjobs",
                        "job",
                        lambda reported: (
                            reported["status"]["observedGeneration"]
                            == reported["metadata"]["generation"]
                            and phase("Running", "Running")(reported)
                        ),
                        timeout_s=WAIT_S,
                    )
            gate.open(1)
            reported = api.wait_for(
                "onyxjobs", "job", condition("Completed", "True"), timeout_s=WAIT_S
            )
    assert reported["status"]["attempt"] >= 2, "it was edited while it ran"
    compare(written(tmp_path), expected(SEGMENTS))
