"""Retries that functions ask for, and segments that nobody accounts for, through a real cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.support.jobs import job_functions
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest, taken

from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
COUNT = 200


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(8, modules=[FUNCTIONS]) as env:
        yield env


def segments(first: int) -> str:
    return json.dumps([{"n": first + n} for n in range(COUNT)])


@pytest.mark.parametrize("fn", ["f:asks", "f:asks_of_columns"])
@pytest.mark.parametrize("mode", ["individual", "all-after"])
def test_a_function_has_segments_read_again(env: TestEnv, fn: str, mode: str) -> None:
    job_functions.tries.clear()
    out = channel()
    arrow = ", batchFormat: arrow" if fn == "f:asks_of_columns" else ""
    spec = f"""
        ackers: 2
        workflow: [[read, work], [work, write]]
        catalog:
          - {{name: read, type: input, plugin: sequence, retryMode: {mode},
              options: {{segments: {segments(0)}}}}}
          - {{name: work, type: function, fn: "{fn}"{arrow}}}
          - {{name: write, type: output, plugin: channel, options: {{channel: {out.name}}}}}
    """
    assert env.run(manifest(spec)).state == "completed"
    found = Counter(segment["n"] for segment in taken(out))
    assert set(found) == set(range(COUNT))
    assert mode == "all-after" or found == Counter(range(COUNT))
    assert all(job_functions.tries[n] >= 2 for n in range(0, COUNT, 5))


def test_one_job_has_segments_that_are_accounted_for_and_others(env: TestEnv) -> None:
    out, aside = channel(), channel()
    spec = f"""
        workflow: [[safe, work], [fast, work], [work, write], [work, cut], [cut, aside]]
        catalog:
          - {{name: safe, type: input, plugin: sequence,
              options: {{segments: {segments(0)}, partitions: 2}}}}
          - {{name: fast, type: input, plugin: sequence, guarantee: at-most-once,
              options: {{segments: {segments(COUNT)}, partitions: 2}}}}
          - {{name: work, type: function, fn: "f:same"}}
          - {{name: cut, type: function, fn: "f:same", anchored: false}}
          - {{name: write, type: output, plugin: channel, options: {{channel: {out.name}}}}}
          - {{name: aside, type: output, plugin: channel, options: {{channel: {aside.name}}}}}
        flowConditions:
          - {{from: work, to: [write], predicate: [">=", n, 0]}}
          - {{from: work, to: [cut], predicate: [">", n, 100], anchored: false}}
    """
    assert env.run(manifest(spec)).state == "completed"
    assert sorted(each["n"] for each in taken(out)) == list(range(2 * COUNT))
    assert sorted(each["n"] for each in taken(aside)) == list(range(101, 2 * COUNT))
