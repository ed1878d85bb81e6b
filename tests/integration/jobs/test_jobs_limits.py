"""What is too large for the log ends the job that asks for it, and nothing else."""

from __future__ import annotations

import json

import pytest
from tests.support.jobs.yaml_jobs import manifest

from onyx.settings import LogSettings, Settings
from onyx.testing import with_test_env

pytestmark = pytest.mark.server
ENTRY_BYTES_MAX = 2_000


def reading(partitions: int) -> dict[str, object]:
    spec = f"""
        workflow: [[read, write]]
        catalog:
          - {{name: read, type: input, plugin: sequence, batchSize: 10,
              options: {{partitions: {partitions}, segments: {json.dumps([{"n": 1}])}}}}}
          - {{name: write, type: output, plugin: blackhole, batchSize: 10}}
    """
    return manifest(spec)


@pytest.mark.slow
def test_a_task_that_proposes_too_large_an_entry_kills_its_job_and_not_its_group() -> None:
    settings = Settings(log=LogSettings(entry_bytes_max=ENTRY_BYTES_MAX))
    with with_test_env(2, settings=settings) as env:
        before = env.group.group
        status = env.run(reading(partitions=1_000))
        assert status.state == "failed"
        assert status.exception is not None
        assert status.exception["task"] == "read"
        assert "command exhaust-input takes" in status.exception["message"]
        assert f"at most {ENTRY_BYTES_MAX}" in status.exception["message"]
        assert env.run(reading(partitions=1)).state == "completed"
        assert env.group.group == before, "the same incarnation"
