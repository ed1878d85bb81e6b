"""The operator and workers as processes of this machine, against the cluster's API server: what can
be tested of the whole where the cluster has no node."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.kube import Kube, until
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import stop

from onyx.log.server.process import ZooKeeperServer

FUNCTIONS = Path(__file__).parent / "squares.py"


@contextlib.contextmanager
def operator(kube: Kube, log: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """An operator for the namespace; `more` are variables of its own."""
    environment = {
        **os.environ,
        "ONYX_OPERATOR_NAMESPACES": kube.namespace,
        "ONYX_OPERATOR_SERVER_HOST": "127.0.0.1",
        "ONYX_OPERATOR_SERVER_PORT": "0",
        "ONYX_OPERATOR_CLUSTERS_WORKER_IMAGE": "localhost/not-pulled:1",
        **more,
    }
    with open(log, "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "onyx_operator"], env=environment, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        stop(process)


@pytest.fixture
def workers(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(zookeeper.address, tmp_path, FUNCTIONS) as cluster:
        yield cluster


def allowed(workers: Mapping[str, Cluster]) -> dict[str, str]:
    """Variables of an operator that `pool` needs, by namespace: ZooKeeper and tenancies are a
    test's own."""
    of = {namespace: each.settings for namespace, each in workers.items()}
    return {
        "ONYX_OPERATOR_ZOOKEEPER_ADDRESSES": ",".join(
            {each.zookeeper.address for each in of.values()}
        ),
        "ONYX_OPERATOR_TENANCIES": ",".join(
            f"{namespace}/{each.tenancy_id}" for namespace, each in of.items()
        ),
    }


def pool(workers: Cluster) -> dict[str, object]:
    """An OnyxCluster for workers that are there already: the operator is to make none."""
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxCluster",
        "metadata": {"name": "onyx"},
        "spec": {
            "replicas": 0,
            "tenancyId": workers.settings.tenancy_id,
            "zookeeper": {"address": workers.settings.zookeeper.address},
            "modules": ["squares"],
        },
    }


def job(name: str, out: Path, segments: int, per_second: int) -> dict[str, object]:
    options = {"segments": segments, "ratePerSecond": per_second}
    catalog = [
        {"name": "numbers", "type": "input", "plugin": "generator", "options": options},
        {"name": "square", "type": "function", "fn": "squares:square"},
        {"name": "write", "type": "output", "plugin": "files",
         "options": {"path": str(out), "rollSeconds": 1}},
    ]  # fmt: skip
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": name},
        "spec": {
            "workflow": [["numbers", "square"], ["square", "write"]],
            "catalog": [{**each, "batchSize": 50, "maxPeers": 1} for each in catalog],
        },
    }


def rows(out: Path) -> list[str]:
    """What is written; folders of what is being staged come and go."""
    files = [Path(at, name) for at, _, names in os.walk(out) for name in sorted(names)]
    found = (each for each in files if each.suffix == ".jsonl" and ".staging" not in each.parts)
    return [line for path in found for line in path.read_text().splitlines()]


def test_an_applied_job_completes(kube: Kube, workers: Cluster, tmp_path: Path) -> None:
    workers.start_workers(2, peers=2)
    kube.apply(pool(workers))

    with operator(kube, tmp_path / "operator.log", **allowed({kube.namespace: workers})):
        kube.apply(job("squares", tmp_path / "out", segments=1_000, per_second=1_000))
        until(lambda: kube.phase("squares") == "Completed", "it completes")
        kube.kubectl("delete", "oj,oc", "--all", "--timeout=60s")

    assert len(set(rows(tmp_path / "out"))) == 1_000


def test_a_job_goes_on_without_the_operator(kube: Kube, workers: Cluster, tmp_path: Path) -> None:
    first, _ = workers.start_workers(2, peers=4)
    kube.apply(pool(workers))
    log, out = tmp_path / "operator.log", tmp_path / "out"
    with operator(kube, log, **allowed({kube.namespace: workers})):
        kube.apply(job("squares", out, segments=6_000, per_second=500))
        until(lambda: rows(out), "it writes")

    group = workers.group_of(first)
    first.kill()
    workers.await_gone([group])

    assert len(set(rows(out))) < 6_000, "the job was too short for this test"
    until(lambda: len(set(rows(out))) == 6_000, "all is written")
    with operator(kube, log, **allowed({kube.namespace: workers})):
        until(lambda: kube.phase("squares") == "Completed", "it is reported")
        kube.kubectl("delete", "oj,oc", "--all", "--timeout=60s")
