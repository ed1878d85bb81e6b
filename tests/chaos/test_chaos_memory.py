"""A worker whose processes are killed for want of memory says so, and does not go on for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from tests.support.jobs.yaml_jobs import manifest
from tests.support.patience import WAIT_S
from tests.support.servers.memory_cgroup import memory_cgroup

from onyx import api
from onyx.client.deaths import read_deaths
from onyx.log.server.process import ZooKeeperServer
from onyx.model.parsing.job import parse_mapping
from onyx.processes.ends import ExitCode
from onyx.reports.deaths import DeathCause
from onyx.settings import Settings, SupervisorSettings, ZooKeeperSettings, to_environment

pytestmark = pytest.mark.server

LIMIT_BYTES = 400 << 20
KILLS = 2
JOB = """
workflow: [[read, eat], [eat, write]]
catalog:
- {name: read, type: input, plugin: sequence, batchSize: 1, options: {segments: [{n: 3}]}}
- {name: eat, type: function, fn: "tests.chaos.memory_job:same", batchSize: 1}
- {name: write, type: output, plugin: blackhole, batchSize: 1}
lifecycles:
- {task: eat, calls: "tests.chaos.memory_job:hungry"}
"""
"""Over one segment it would be poison before the worker gives up."""


@pytest.mark.slow
def test_a_worker_out_of_memory_ends_after_repeats_and_everybody_is_told(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    settings = Settings(
        tenancy_id=uuid.uuid4().hex,
        zookeeper=ZooKeeperSettings(zookeeper.address, session_timeout_s=2.0),
        modules=("tests.chaos.memory_job",),
        supervisor=SupervisorSettings(memory_kills_max=KILLS),
        job_paths=("/",),
    )
    log = tmp_path / "worker.log"
    with memory_cgroup(LIMIT_BYTES) as enter, api.connect(settings) as client:
        eating = client.submit(parse_mapping(manifest(JOB))).job
        with open(log, "wb") as written:
            worker = subprocess.Popen(
                [sys.executable, "-m", "onyx.cli", "worker", "--peers", "3"],
                env={**os.environ, **to_environment(settings), "PYTHONPATH": os.getcwd()},
                stdout=written,
                stderr=written,
                preexec_fn=enter,
            )
        try:
            code = worker.wait(WAIT_S)
        finally:
            worker.kill()
            worker.wait()
        output = log.read_text()
        assert code == ExitCode.OUT_OF_MEMORY, output
        said = [line for line in output.splitlines() if "the kernel killed it because" in line]
        assert len(said) == KILLS, output
        assert all("SIGKILL" in each and "limit of 400 MiB" in each for each in said)
        assert all(f"of task eat of job {eating}" in each for each in said)
        assert f"has killed {KILLS} processes of this worker for want of memory" in output
        deaths = read_deaths(client.log)
        assert f"{KILLS} for want of memory" in client.status(eating).deaths
    assert [each.cause for each in deaths] == [DeathCause.MEMORY] * KILLS
    assert all(eating in each.jobs for each in deaths)
    assert all(each.memory_bytes > LIMIT_BYTES / 2 for each in deaths)
    assert all(each.limit_bytes == LIMIT_BYTES for each in deaths)
