"""Jobs from YAML through a real cluster: what segments go where, and what happens on failures."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs import job_functions
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest, taken

from onyx.errors import ManifestError
from onyx.plugins.channel import Channel
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
Segments = list[dict[str, Any]]


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(6, modules=[FUNCTIONS]) as env:
        yield env


def routed(env: TestEnv, conditions: str, fn: str = "f:same", count: int = 10) -> list[Segments]:
    """What arrives at `left` and `right` of a job with these flow conditions, in order of n."""
    left, right = channel(), channel()
    segments = json.dumps([{"n": n} for n in range(count)])
    spec = f"""
        workflow: [[read, work], [work, left], [work, right]]
        catalog:
          - {{name: read, type: input, plugin: sequence, batchSize: 4,
              options: {{segments: {segments}}}}}
          - {{name: work, type: function, fn: "{fn}", batchSize: 4}}
          - {{name: left, type: output, plugin: channel, batchSize: 4,
              options: {{channel: {left.name}}}}}
          - {{name: right, type: output, plugin: channel, batchSize: 4,
              options: {{channel: {right.name}}}}}
        flowConditions: {conditions}
    """
    status = env.run(manifest(spec))
    assert status.state == "completed", status
    return [in_order(left), in_order(right)]


def in_order(out: Channel) -> Segments:
    return sorted(taken(out), key=lambda segment: segment.get("n", -1))


def n(*numbers: int) -> Segments:
    return [{"n": each} for each in numbers]


def test_predicates_choose_among_children(env: TestEnv) -> None:
    left, right = routed(
        env,
        """
        - {from: work, to: [left], options: {limit: 3},
           predicate: [and, "f:even", ["f:more_than", limit]]}
        - {from: work, to: [right], predicate: [not, "f:even"]}
        """,
    )
    assert left == n(4, 6, 8)
    assert right == n(1, 3, 5, 7, 9)


def test_all_and_none_end_the_matter_and_keys_are_left_out_for_those_targets(env: TestEnv) -> None:
    left, right = routed(
        env,
        """
        - {from: work, to: all, shortCircuit: true, options: {limit: 8},
           predicate: ["f:more_than", limit]}
        - {from: work, to: none, shortCircuit: true, options: {limit: 4},
           predicate: ["f:more_than", limit]}
        - {from: work, to: [left], predicate: "f:even", excludeKeys: [n]}
        - {from: work, to: [right], predicate: "f:always"}
        """,
    )
    assert left == [{}, {}, {}, {"n": 9}]
    assert right == n(0, 1, 2, 3, 4, 9)


def test_an_exception_is_routed_and_transformed(env: TestEnv) -> None:
    left, right = routed(
        env,
        """
        - {from: work, to: [right], shortCircuit: true, thrownException: true,
           predicate: "f:is_value_error", postTransform: "f:explain"}
        - {from: work, to: [left], predicate: "f:always"}
        """,
        fn="f:fails_at_7",
    )
    assert left == n(0, 1, 2, 3, 4, 5, 6, 8, 9)
    assert right == [{"error": "seven is not allowed", "task": "work", "segment": {"n": 7}}]


def test_action_retry_sends_a_segment_again_until_its_function_takes_it(env: TestEnv) -> None:
    job_functions.tries.clear()
    left, right = routed(
        env,
        """
        - {from: work, to: none, shortCircuit: true, thrownException: true, action: retry,
           predicate: "f:always"}
        - {from: work, to: [left], predicate: "f:always"}
        """,
        fn="f:heals",
    )
    assert left == n(*range(10))
    assert right == []
    assert [job_functions.tries[each] for each in range(10)] == [2, 1, 1, 1, 1, 2, 1, 1, 1, 1]


def one_task(fn: str, out: str, more: str = "", task: str = "") -> str:
    """read -> work -> write(channel), with more keys for the job and for the task."""
    return f"""
        workflow: [[read, work], [work, write]]
        {more}
        catalog:
          - {{name: read, type: input, plugin: sequence, batchSize: 5,
              options: {{segments: {json.dumps(n(*range(12)))}}}}}
          - {{name: work, type: function, fn: "{fn}", batchSize: 5, {task}}}
          - {{name: write, type: output, plugin: channel, batchSize: 5,
              options: {{channel: {out}}}}}
    """


def test_a_failing_function_kills_the_job_and_the_status_tells_which_and_why(env: TestEnv) -> None:
    status = env.run(manifest(one_task("f:fails_at_7", channel().name)))
    assert status.state == "failed"
    assert status.exception is not None
    reported = {key: status.exception[key] for key in ("task", "phase", "type", "message")}
    assert reported == {
        "task": "work",
        "phase": "apply-fn",
        "type": "ValueError",
        "message": "seven is not allowed",
    }
    assert f"{FUNCTIONS}:fails_at_7 raised ValueError" in status.exception["detail"]


def test_lifecycles_are_called_around_the_tasks_that_they_name(env: TestEnv) -> None:
    job_functions.calls.clear()
    out = channel()
    more = 'lifecycles: [{task: work, calls: "f:hooks", options: {mark: here}}]'
    assert env.run(manifest(one_task("f:inc", out.name, more))).state == "completed"
    assert in_order(out) == n(*range(1, 13))
    calls = [call for call in job_functions.calls if "after_task_stop" not in call]
    assert calls[0] == "work before_task_start here"
    assert set(calls) == {
        f"work {hook} here" for hook in ("before_task_start", "after_read_batch", "after_batch")
    }


def test_parameters_come_before_the_segment(env: TestEnv) -> None:
    out = channel()
    task = "params: [amount], options: {amount: 100}"
    assert env.run(manifest(one_task("f:add", out.name, task=task))).state == "completed"
    assert in_order(out) == n(*range(100, 112))


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
def test_every_segment_arrives_once_when_nothing_fails(env: TestEnv, guarantee: str) -> None:
    out = channel()
    job = manifest(one_task("f:inc", out.name, f"guarantee: {guarantee}"))
    assert env.run(job).state == "completed"
    assert in_order(out) == n(*range(1, 13))


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        ("os:system", "offers no functions of os"),
        (f"{FUNCTIONS}:Counter", "only a function"),
        (f"{FUNCTIONS}:incc", "inc"),
    ],
)
def test_a_function_that_the_worker_does_not_offer_is_refused(
    env: TestEnv, fn: str, why: str
) -> None:
    status = env.run(manifest(one_task(fn, channel().name)))
    assert status.state == "failed"
    assert status.exception is not None
    assert status.exception["type"] == "NameNotRegistered"
    assert why in status.exception["message"]


def files_job(source: Path, target: Path, form: str = "jsonl") -> dict[str, Any]:
    spec = f"""
        workflow: [[read, write]]
        catalog:
          - {{name: read, type: input, plugin: files, batchSize: 3,
              options: {{path: "{source}", format: {form}}}}}
          - {{name: write, type: output, plugin: files, batchSize: 3,
              options: {{path: "{target}", format: jsonl}}}}
    """
    return manifest(spec)


def lines(folder: Path) -> Segments:
    parts = sorted(folder.rglob("*.jsonl"))
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


def test_files_with_spaces_in_their_names_empty_ones_and_compressed_ones(
    env: TestEnv, tmp_path: Path
) -> None:
    source = tmp_path / "my data"
    source.mkdir()
    (source / "part one.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    (source / "empty.jsonl").write_text("")
    (source / "z.jsonl.gz").write_bytes(gzip.compress(b'{"n": 3}\n{"n": 4}\n'))
    target = tmp_path / "the results"
    status = env.run(files_job(source / "*.jsonl*", target))
    assert status.state == "completed", status
    assert sorted(segment["n"] for segment in lines(target)) == [1, 2, 3, 4]


def test_an_empty_file_gives_nothing_and_the_job_completes(env: TestEnv, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    status = env.run(files_job(tmp_path / "empty.jsonl", tmp_path / "out"))
    assert status.state == "completed", status
    assert lines(tmp_path / "out") == []


def test_a_file_that_is_not_there_is_told_by_name(env: TestEnv, tmp_path: Path) -> None:
    status = env.run(files_job(tmp_path / "nowhere.csv", tmp_path / "out", "csv"))
    assert status.state == "failed"
    assert status.exception is not None
    assert "nowhere.csv" in status.exception["detail"]
    assert status.exception["task"] == "read"


def test_a_wrong_option_of_a_plugin_is_refused_before_any_worker_has_the_job(env: TestEnv) -> None:
    spec = one_task("f:same", "none").replace("plugin: channel", "plugin: files")
    wrong = r"spec\.catalog\[2\]\.options\.pathh: is not known \(did you mean path\?\)"
    with pytest.raises(ManifestError, match=wrong):
        env.run(manifest(spec.replace("options: {channel: none}", "options: {pathh: x}")))


def test_an_option_that_only_a_worker_can_judge_is_told_by_task_and_key(env: TestEnv) -> None:
    status = env.run(manifest(one_task("f:same", "nowhere")))
    assert status.state == "failed"
    assert status.exception is not None
    assert "task 'write': option 'channel' names 'nowhere'" in status.exception["detail"]
