"""A whole job over two worker processes with TLS on every wire and a user in ZooKeeper."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest
import trustme
from msgspec.structs import replace
from tests.support.servers.certificates import WORKERS, Secret
from tests.support.servers.cluster import Cluster

from onyx import api
from onyx.errors import UserError
from onyx.settings import (
    ClientSettings,
    Settings,
    TlsSettings,
    ZooKeeperServerSettings,
    ZooKeeperSettings,
    to_environment,
)
from onyx.tls.diagnosis import diagnose
from onyx.tls.files import GROUPS

pytestmark = pytest.mark.server
COUNT = 2_000
CLIENTS = "clients.test"
STEPS = """
def inc(segment):
    return {"n": segment["n"] + 1}
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    path = tmp_path / "modules" / "tls_steps.py"
    path.parent.mkdir()
    path.write_text(STEPS)
    return path


def write_input(path: Path) -> None:
    path.write_text("".join(json.dumps({"n": number}) + "\n" for number in range(COUNT)))


def job(folder: Path) -> dict[str, object]:
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "over-tls"},
        "spec": {
            "workflow": [["read", "work"], ["work", "write"]],
            "catalog": [
                {"name": "read", "type": "input", "plugin": "files", "batchSize": 50,
                 "maxPeers": 1, "options": {"path": str(folder / "in.jsonl"), "format": "jsonl"}},
                {"name": "work", "type": "function", "fn": "tls_steps:inc", "batchSize": 50},
                {"name": "write", "type": "output", "plugin": "files", "batchSize": 50,
                 "options": {"path": str(folder / "out"), "format": "jsonl"}},
            ],
            "metadata": {"jobId": str(uuid.uuid4())},
        },
    }  # fmt: skip


def taking(folder: Path, tokens: Path) -> dict[str, object]:
    """A job that counts what clients hand over."""
    options = {"tokenFile": str(tokens), "partitions": 4, "partitionKey": "n"}
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "takes"},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["read", "work"], ["work", "write"]],
            "catalog": [
                {"name": "read", "type": "input", "plugin": "requests", "maxPeers": 2,
                 "options": options},
                {"name": "work", "type": "function", "fn": "tls_steps:inc", "maxPeers": 1},
                {"name": "write", "type": "output", "plugin": "blackhole", "maxPeers": 1},
            ],
            "windows": [
                {"id": "counts", "task": "work", "type": "global", "aggregation": "count"}
            ],
            "metadata": {"jobId": str(uuid.uuid4())},
        },
    }  # fmt: skip


def written(folder: Path) -> list[int]:
    lines = [part.read_text().splitlines() for part in (folder / "out").glob("*.jsonl")]
    return sorted(json.loads(line)["n"] for part in lines for line in part)


def command_lines() -> list[str]:
    """Of all processes below this one that have not ended."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            found.append(" ".join(each.cmdline()))
    return found


def test_a_job_runs_with_tls_everywhere_and_no_secret_is_shown(
    secure_zookeeper: ZooKeeperSettings, tmp_path: Path, modules: Path, authority: trustme.CA
):
    write_input(tmp_path / "in.jsonl")
    secret = Secret(tmp_path / "tls", authority)
    with Cluster(secure_zookeeper, tmp_path, modules, tls=secret.settings(WORKERS)) as cluster:
        workers = cluster.start_workers(2, peers=2)
        submitted = cluster.submit(job(tmp_path))
        cluster.await_completed(submitted)
        assert written(tmp_path) == list(range(1, COUNT + 1))

        for site in cluster.replica.peer_sites.values():
            host, _, port = site["address"].rpartition(":")
            assert diagnose(host, int(port), None, GROUPS) is not None, "it speaks without TLS"
        shown = onyx_replica(cluster)
        assert submitted in shown
        reported = [shown, *(worker.log.read_text() for worker in workers)]
        reported += command_lines()
        reported += [str(entry.command) for entry in cluster.entries]
    key = Path(secret.settings().key_file).read_text().splitlines()[1]
    password = Path(secure_zookeeper.auth_password_file).read_text().strip()
    assert [text for text in reported if key in text or password in text] == []


def test_a_client_hands_requests_over_with_a_certificate_of_clients_and_a_token(
    secure_zookeeper: ZooKeeperSettings, tmp_path: Path, modules: Path, authority: trustme.CA
):
    tokens, of_states = tmp_path / "tokens", tmp_path / "of-states"
    for each in (tokens, of_states):
        each.write_text("sesame\n")
    secret = Secret(tmp_path / "tls", authority)
    client = Secret(tmp_path / "client", authority, (CLIENTS,)).settings(WORKERS)
    cluster = Cluster(secure_zookeeper, tmp_path, modules, tls=secret.settings(WORKERS))
    cluster.settings = replace(
        cluster.settings,
        transport=replace(cluster.settings.transport, tls_client_name=CLIENTS),
        state=replace(cluster.settings.state, token_file=str(of_states)),
    )
    with cluster:
        workers = cluster.start_workers(2, peers=4)
        submitted = cluster.submit(taking(tmp_path, tokens))
        cluster.await_ready(submitted)
        found = replace(cluster.settings, tls=client, client=ClientSettings(str(tokens)))
        with api.appender(found, "takes") as appender:
            for n in range(20):
                appender.append({"n": n})
            workers[0].kill()
            for n in range(20, 40):
                appender.append({"n": n})
        counted = api.window_state(found, submitted, "counts")
        assert [each.state for each in counted.extents] == [40]
        closed = replace(found, client=ClientSettings())
        with api.appender(closed, "takes") as appender, pytest.raises(UserError, match="bearer"):
            appender.append({"n": 40})
        with pytest.raises(UserError, match="refuses to answer: a state wants a bearer token"):
            api.window_state(closed, submitted, "counts")
        logs = "".join(worker.log.read_text() for worker in workers)
    assert "sesame" not in logs


def onyx_replica(cluster: Cluster) -> str:
    """What the command line prints about the cluster, with settings from the environment."""
    environment = {**os.environ, **to_environment(cluster.settings)}
    command = [sys.executable, "-m", "onyx.cli", "replica"]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_a_worker_whose_certificates_are_wrong_says_so_and_ends(
    secure_zookeeper: ZooKeeperSettings, tmp_path: Path, modules: Path
):
    tls = TlsSettings("/none/ca.crt", "/none/tls.crt", "/none/tls.key")
    with Cluster(secure_zookeeper, tmp_path, modules, tls=tls) as cluster:
        worker = cluster.start_worker(1)
        assert worker.wait() != 0
    reported = worker.log.read_text()
    assert "ONYX_TLS_CA_FILE=/none/ca.crt: the file cannot be read: No such file" in reported
    assert "Traceback" not in reported


@pytest.mark.slow
@pytest.mark.parametrize("server_has_tls", [True, False])
def test_an_environment_of_ones_own_is_reached_as_its_server_speaks(
    server_has_tls: bool, tmp_path: Path, authority: trustme.CA
):
    tls = Secret(tmp_path / "tls", authority).settings()
    settings = Settings(
        zookeeper=ZooKeeperSettings(tls=tls),
        zookeeper_server=ZooKeeperServerSettings(
            heap_mib=300, tls=tls if server_has_tls else TlsSettings()
        ),
    )
    env = api.start_env(settings, tmp_path / "zookeeper")
    try:
        host, _, port = env.server.address.rpartition(":")
        assert (diagnose(host, int(port), None, GROUPS) is not None) == server_has_tls
        with api.connect(env.settings) as client:
            assert client.statuses() == []
    finally:
        api.shutdown_env(env)
