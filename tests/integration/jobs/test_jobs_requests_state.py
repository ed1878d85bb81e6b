"""Requests into jobs with state: who is answered finds all that follows in the output, though parts
of it roll late, and gets what tasks behind give back."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.yaml_jobs import FUNCTIONS, manifest, until

from onyx import api
from onyx.client.appender import Appender
from onyx.client.appending import addresses_of
from onyx.ids import JobId
from onyx.requests.request import Status
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
GIVING = "tests.support.jobs.request_functions"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(4, modules=[FUNCTIONS, GIVING]) as env:
        group = api.start_peer_group(env.settings)
        api.start_peers(4, group)
        yield env
        api.shutdown_peer_group(group)


KEYED = "groupByKey: key, fluxPolicy: continue, maxPeers: 2"
KEPT = f'fn: "{GIVING}:kept", {KEYED}, state: {{count: "value[int]"}}'
COLUMNS = (
    f'fn: "{GIVING}:kept_columns", {KEYED}, state: {{count: "value[int]"}}, batchFormat: arrow'
)
KINDS = {
    "state": [KEPT],
    "state over columns": [COLUMNS],
    "a processor": [f'processor: "{GIVING}:Pricing", {KEYED}'],
    "two with state": [KEPT, KEPT],
    "one that takes what comes again": [f"{KEPT}, deduplicate: false"],
}


class Running:
    def __init__(self, env: TestEnv, path: Path, kept: list[str], guarantee: str) -> None:
        self.env, self.path, self.name = env, path, f"asked-{next(_numbers)}"
        names = [f"keep{number}" for number in range(len(kept))]
        path_of = ["in", *names, "behind", "out"]
        keep = [
            f"  - {{name: {n}, type: function, {each}}}"
            for n, each in zip(names, kept, strict=True)
        ]
        lines = "\n        ".join(keep)
        out = f"{{path: {path}, rollSeconds: 3600}}"
        spec = f"""
        guarantee: {guarantee}
        ackReturns: {{total: sum, behind: sum}}
        workflow: {[list(edge) for edge in itertools.pairwise(path_of)]}
        catalog:
          - {{name: in, type: input, plugin: requests}}
        {lines}
          - {{name: behind, type: function, fn: "{GIVING}:behind", maxPeers: 1}}
          - {{name: out, type: output, plugin: files, maxPeers: 1, options: {out}}}
        """
        self.job: JobId = env.submit(manifest(spec, self.name))
        until(env, lambda replica: len(replica.run(self.job).ready) > len(kept) + 2)
        self.appender = Appender(addresses_of(env.client.replica()), self.name)

    def rows(self) -> list[dict[str, Any]]:
        parts = [each.read_text() for each in self.path.rglob("*.jsonl")]
        return [json.loads(line) for part in parts for line in part.splitlines()]

    def end(self) -> None:
        self.appender.close()
        self.env.client.drain(self.job)
        assert self.env.client.wait(self.job, 60.0)


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_answered_finds_what_follows(env: TestEnv, tmp_path: Path, kind: str) -> None:
    guarantee = "exactly-once" if "again" not in kind else "at-least-once"
    running = Running(env, tmp_path, KINDS[kind], guarantee)
    for number in range(3):
        segment = {"key": f"k{number}", "count": number + 1}
        answer = running.appender.append(segment)
        assert answer.status is Status.PROCESSED
        assert len(running.rows()) == number + 1
        assert answer.errors == {}
        assert answer.values["behind"] == number + 1
    running.end()


@pytest.mark.parametrize("kept", [[KEPT, KEPT], [COLUMNS, COLUMNS]], ids=["dicts", "columns"])
def test_what_is_given_back_behind_state_comes_to_its_own_request(
    env: TestEnv, tmp_path: Path, kept: list[str]
) -> None:
    running = Running(env, tmp_path, kept, "exactly-once")
    segments = [{"key": f"k{n % 3}", "count": n} for n in range(30)]
    futures = [running.appender.send([each, {**each, "key": "other"}]) for each in segments]
    answers = [each.result(60.0) for each in futures]
    assert [each.values for each in answers] == [
        {"total": 4 * n, "behind": 2 * n} for n in range(30)
    ]
    assert len(running.rows()) == 60
    running.end()
