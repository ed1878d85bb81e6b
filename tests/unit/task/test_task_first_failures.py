"""A job of which everything fails ends with the first error, and not with dead letters of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.bench import Bench, Segment

from onyx.replica.commands import SignalFailing

OUTPUT = {"type": "output", "plugin": "blackhole", "batchSize": 10}


def fails_but(*good: int) -> Any:
    def fn(segment: Segment) -> Segment:
        if segment["n"] not in good:
            raise ValueError(f"no {segment['n']}")
        return segment

    return fn


def bench(
    fn: Any,
    peers: int = 1,
    most: int | None = 50,
    count: int = 200,
    read: dict[str, Any] | None = None,
    guarantee: str = "at-least-once",
) -> Bench:
    segments = {"plugin": "sequence", "options": {"segments": [{"n": n} for n in range(count)]}}
    limit = {} if most is None else {"firstFailuresMax": most}
    spec = {
        "guarantee": guarantee,
        "workflow": [["read", "work"], ["work", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "batchSize": 10, **(read or segments)},
            {"name": "work", "fn": "m:work", "deadLetter": "bad", "batchSize": 10, **limit},
            {"name": "write", **OUTPUT},
            {"name": "bad", **OUTPUT},
        ],
    }
    return Bench(spec, {"m:work": fn}, peers={"work": peers})


def settled(made: Bench) -> Bench:
    made.settle()
    for task in made.tasks.values():
        made.stop(task)
    return made


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
@pytest.mark.parametrize("peers", [1, 2])
def test_a_task_of_which_all_first_segments_fail_ends_the_job_with_the_first_error(
    peers: int, guarantee: str
) -> None:
    made = settled(bench(fails_but(), peers, guarantee=guarantee))
    assert not made.completed
    detail = made.exceptions[0]["detail"]
    assert made.exceptions[0]["task"] == "work"
    assert detail.startswith("all of the first 50 segments have failed")
    assert "m:work raised ValueError: no " in detail
    assert "set firstFailuresMax: 0" in detail
    assert made.exceptions[0]["message"] in ("no 0", "no 10")
    assert len(made.written("bad")) < 200


@pytest.mark.parametrize(
    ("fn", "most"),
    [(fails_but(0), 50), (fails_but(49), 50), (fails_but(), 0), (fails_but(), None)],
    ids=["the first is good", "the last before it is enough is good", "off", "too few"],
)
def test_a_job_of_which_something_has_not_failed_goes_on(fn: Any, most: int | None) -> None:
    made = settled(bench(fn, most=most))
    assert (made.exceptions, made.completed) == ([], True)
    assert len(made.written("bad")) + len(made.written("write")) == 200


def test_a_peer_whose_segments_all_fail_is_not_alone_in_the_judgement() -> None:
    """Every second batch goes to the other peer, for which nothing fails."""
    good = [n for n in range(200) if n // 10 % 2 or n >= 150]
    made = settled(bench(fails_but(*good), peers=2))
    assert (made.exceptions, made.completed) == ([], True)
    said = [each.over for each in made.proposed if isinstance(each, SignalFailing)]
    assert said == [False, True], "and it says when something has not failed"


def test_a_peer_that_comes_later_does_not_judge() -> None:
    made = bench(fails_but())
    made.start()
    made.rewire(work=2)
    settled(made)
    assert (made.exceptions, made.completed) == ([], True)
    assert len(made.written("bad")) == 200


@pytest.mark.parametrize("batch_format", ["dicts", "arrow"])
def test_records_that_nobody_can_read_end_the_job_at_its_input(
    tmp_path: Path, batch_format: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("{\n" * 200)
    options = {"path": str(path), "onBadRecord": "deadLetter"}
    read = {"plugin": "files", "batchFormat": batch_format, "firstFailuresMax": 50}
    made = settled(bench(fails_but(), read={**read, "options": options}))
    (reported,) = made.exceptions
    assert (reported["task"], reported["type"]) == ("read", "UndecodedRecord")
    assert f"'read': {path}: record 0 (counted from 0): not a JSON object" in reported["detail"]


def test_an_empty_input_is_no_failure(tmp_path: Path) -> None:
    made = settled(bench(fails_but(), count=0))
    assert (made.exceptions, made.completed) == ([], True)
