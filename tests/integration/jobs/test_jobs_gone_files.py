"""Files that somebody removed: whoever needs them names them and ends its task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.chaos_files import wait_until
from tests.support.jobs.yaml_jobs import FUNCTIONS, manifest, until

from onyx.client.statuses import JobStatus
from onyx.settings import Settings, StateSettings
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
CHAINED = """
    workflow: [[read, write]]
    catalog:
      - {name: read, type: input, maxPeers: 1, batchSize: 10, plugin: PLUGIN,
         options: OPTIONS}
      - {name: write, type: output, plugin: files, maxPeers: 1, batchSize: 10,
         options: {path: PATH, rollSegments: 10}}
"""
WITH_STATE = """
    guarantee: exactly-once
    workflow: [[read, count], [count, write]]
    catalog:
      - {name: read, type: input, plugin: generator, maxPeers: 1, batchSize: 10,
         options: {ratePerSecond: 200}}
      - {name: count, type: reduce, groupByKey: n, maxPeers: 1, fluxPolicy: continue}
      - {name: write, type: output, plugin: files, maxPeers: 1, options: {path: PATH}}
    windows: [{id: every, task: count, type: global, aggregation: count}]
    triggers:
      - {windowId: every, id: now, refinement: accumulating, type: segment,
         threshold: [1, element], emit: rows}
"""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestEnv]:
    settings = Settings(state=StateSettings(url=str(tmp_path_factory.mktemp("state"))))
    with with_test_env(3, modules=[FUNCTIONS], settings=settings) as env:
        yield env


def ended(env: TestEnv, text: str, name: str, **values: Any) -> JobStatus:
    return env.run(manifest(written(text, **values), name))


def written(text: str, **values: Any) -> str:
    for key, value in values.items():
        text = text.replace(key, str(value))
    return text


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(0, id="first", marks=pytest.mark.slow),
        pytest.param(1, id="in the middle", marks=pytest.mark.slow),
        pytest.param(-1, id="last"),
    ],
)
def test_a_part_that_is_gone_before_another_job_follows_it(
    env: TestEnv, tmp_path: Path, gone: int
) -> None:
    first, last = f"first-{gone + 1}", f"last-{gone + 1}"
    made = {"PLUGIN": "generator", "OPTIONS": "{segments: 40}", "PATH": tmp_path / "made"}
    assert ended(env, CHAINED, first, **made).state == "completed"
    path = sorted((tmp_path / "made").glob("part-*"))[gone]
    path.rename(tmp_path / path.name)

    follow = f"{{job: {first}, task: write}}"
    values = {"PLUGIN": "job", "OPTIONS": follow, "PATH": tmp_path / "out"}
    status = ended(env, CHAINED, last, **values)
    assert status.state == "failed"
    assert f"part {path} of job {first} is gone" in str(status.exception)

    (tmp_path / path.name).rename(path)
    assert ended(env, CHAINED, f"again-{last}", **values).state == "completed"


@pytest.mark.parametrize("task", ["count", pytest.param("write", marks=pytest.mark.slow)])
def test_the_last_chunk_of_a_state_log_that_is_gone(
    env: TestEnv, tmp_path: Path, task: str
) -> None:
    name = f"state-{task}"
    job = env.submit(manifest(written(WITH_STATE, PATH=tmp_path), name))
    folder = Path(env.settings.state.url) / job / task

    def chunks() -> list[Path]:
        return sorted(folder.glob("*/????????"))

    wait_until(lambda: len(chunks()) >= 4, "there are chunks")
    env.client.suspend(job)
    until(env, lambda replica: not any(replica.run(job).allocation.values()))
    gone = chunks()[-1]
    gone.unlink()
    env.client.resume(job)
    env.client.wait(job, 60.0)
    status = env.client.status(job)
    assert status.state == "failed"
    assert f"{gone.relative_to(env.settings.state.url)} is gone" in str(status.exception)
