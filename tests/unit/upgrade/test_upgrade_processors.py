"""What an upgrade does with what a processor has saved."""

from __future__ import annotations

from typing import Any

import pytest

from onyx.keystate.records import SetStates
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.upgrade.plan import compare
from onyx.upgrade.translation import Translation

HEAD = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
READ = {"type": "input", "plugin": "sequence", "options": {"segments": []}}
EDGES = [["a", "sums"], ["b", "sums"], ["sums", "write"]]


def job(task: dict[str, Any], edges: list[list[str]] = EDGES, **more: Any) -> Job:
    entry = {"name": "sums", "type": "function", "processor": "m:Sums", **task}
    entry = {key: value for key, value in entry.items() if value is not None}
    write = {"name": "write", "type": "output", "plugin": "blackhole"}
    catalog = [{**READ, "name": "a"}, {**READ, "name": "b"}, entry, write]
    spec = {"guarantee": "exactly-once", "workflow": edges, "catalog": catalog, **more}
    return parse_mapping({**HEAD, "spec": spec})


def problems(new: Job) -> list[str]:
    assert new.upgrade is not None
    return [each.message for each in compare(job({}), new, new.upgrade).problems]


UPGRADE = {"upgrade": {"from": "old"}}


def test_what_a_processor_has_saved_goes_on_but_not_what_has_ended() -> None:
    old, new = job({}), job({}, **UPGRADE)
    assert new.upgrade is not None
    found = compare(old, new, new.upgrade)
    assert problems(new) == []
    records = [SetStates(name, 0, ["k"], [b""]) for name in ("snapshot", ".ends")]
    kept = Translation(old, new, "sums", found).records(records)
    assert [each.window for each in kept if isinstance(each, SetStates)] == ["snapshot"]


@pytest.mark.parametrize(
    ("task", "edges", "why"),
    [
        ({"processor": "m:Other"}, EDGES, "processor was m:Sums and is m:Other"),
        (
            {},
            [EDGES[1], EDGES[0], EDGES[2]],
            "order of the tasks upstream was [a, b] and is [b, a]",
        ),
        (
            {"groupByKey": "k", "fluxPolicy": "continue"},
            EDGES,
            "grouping was not given and is k",
        ),
    ],
)
def test_a_processor_that_may_not_fit_needs_an_answer(
    task: dict[str, Any], edges: list[list[str]], why: str
) -> None:
    assert problems(job(task, edges, **UPGRADE)) == [f"needs an answer: {why}"]
    answered = {"upgrade": {"from": "old", "tasks": {"sums": "initialize"}}}
    assert problems(job(task, edges, **answered)) == []


def test_a_function_with_state_does_not_take_over_from_a_processor() -> None:
    task = {"processor": None, "fn": "m:f", "state": {"n": "value"}, "groupByKey": "k",
            "fluxPolicy": "continue"}  # fmt: skip
    (problem,) = problems(job(task, **UPGRADE))
    assert "needs an answer" in problem
