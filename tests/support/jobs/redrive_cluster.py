"""A cluster that takes dead letters again, for tests: it holds and commits as workers do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.support.clocks import ManualClock
from tests.support.jobs.yaml_jobs import manifest

from onyx.client.appender import NotTaken, RequestFailed
from onyx.client.redrive.elsewhere import place_of_output
from onyx.client.redrive.letters import LetterChoice
from onyx.client.redrive.marks import RedriveMarks
from onyx.client.redrive.redrive import Limits, Redrive, Target
from onyx.client.redrive.ways import place_of_letters
from onyx.flow.dead_letters import dead_letter, described
from onyx.flow.segment import Segment
from onyx.ledger.outcomes import Outcomes
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.job import parse_mapping
from onyx.requests.request import Answer, Commit, HeldRequest, Status
from onyx.storage.opening import location_of

TARGET = Target("job-2", "again", frozenset({"job-1", "job-2"}))
INVALID = Answer(Status.INVALID, "request 0 is not held")


class Died(Exception):
    """The process that redrives has ended."""


class FakeCluster:
    """Holds and commits as workers do; dies before or behind the n-th call."""

    def __init__(self) -> None:
        self.held: dict[str, list[Segment]] = {}
        self.taken: dict[str, list[Segment]] = {}
        self.calls = 0
        self.dies: Callable[[int], bool] = lambda _: False
        self.outcomes = Outcomes()
        self.before: Callable[[], None] = lambda: None
        self.too_late = False

    def __call__(self, task: str) -> FakeCluster:
        assert task == "again"
        return self

    def hold(self, segments: list[Segment], held: HeldRequest, timeout_s: float) -> Answer:
        self._call()
        before = self.held.setdefault(held.batch.write, segments)
        assert before == segments, "a request has one content"
        self._call()
        return Answer(Status.JOURNALLED)

    def commit(self, commit: Commit, ack: str, timeout_s: float) -> Answer:
        self._call()
        write = commit.batch.write
        if write not in self.taken:
            if write not in self.held or self.too_late:
                raise NotTaken(INVALID)
            self.taken[write] = self.held.pop(write)
        self._call()
        if self.outcomes.final_failures:
            raise RequestFailed(Answer(Status.FAILED, outcomes=self.outcomes))
        return Answer(Status.PROCESSED, outcomes=self.outcomes)

    def _call(self) -> None:
        self.calls += 1
        if self.dies(self.calls):
            raise Died
        self.before()

    @property
    def numbers(self) -> list[int]:
        return sorted(each["n"] for segments in self.taken.values() for each in segments)


def letter(n: Any, task: str = "work", job: str = "job-1", **more: Any) -> dict[str, Any]:
    error = described(ValueError(f"odd {n}"), "shop.py, line 3")
    made = dead_letter(job, task, {"n": n}, error, 1, 1_000_000, more.pop("id", f"id-{n}"))
    return made | more


# --- letters that lie in no folder ---------------------------------------------------------------

LETTERS_TABLE = """CREATE TABLE letters (error JSON, job TEXT, task TEXT, id TEXT, origin JSON,
    "time" {time}, tries INTEGER, segment JSON, types TEXT)"""
WHOLE = {"at": datetime(2026, 11, 29, 12, tzinfo=UTC), "price": Decimal("1.10"), "blob": b"\0"}


def whole_letter(n: int, **more: Any) -> dict[str, Any]:
    """A letter whose segment has what JSON lacks."""
    error = described(ValueError("odd"), "shop.py, line 3")
    id = more.pop("id", f"id-{n}")
    return dead_letter("job-1", "work", {"n": n, **WHOLE}, error, 1, 1_000_000, id) | more


def job_with_letters(plugin: str, **options: Any) -> Job:
    """A job whose task `work` has its dead letters written by an output `bad`."""
    bad = {"name": "bad", "type": "output", "plugin": plugin, "options": options, "batchSize": 10}
    return parse_mapping(
        manifest(
            f"""
        workflow: [[again, work], [work, out]]
        catalog:
          - {{name: again, type: input, plugin: requests}}
          - {{name: work, type: function, fn: 'm:f', deadLetter: bad}}
          - {{name: out, type: output, plugin: blackhole}}
          - {json.dumps(bad)}
    """
        )
    )


def redrive_of(job: Job, marks: Path) -> Redrive:
    """A call for the letters that a job has written."""
    entry = place_of_letters(job, "work")
    assert isinstance(entry, CatalogEntry)
    place = place_of_output(job, entry, str(marks))
    assert place.at is None
    kept = RedriveMarks(location_of(str(marks)))
    return Redrive(place, kept, LetterChoice("work"), Limits(), TARGET, ManualClock(), "ann")


def check_place(job: Job, write: Callable[[Sequence[Segment]], None], marks: Path) -> None:
    """Letters that a job has written go in once, as they were, whoever dies in the middle; those
    that come meanwhile go in next time."""
    write([whole_letter(n) for n in range(4)])
    write([whole_letter(n) for n in range(2, 6)])
    cluster = FakeCluster()
    cluster.dies = (2).__eq__
    with pytest.raises(Died):
        redrive_of(job, marks).run(cluster)
    cluster.dies = lambda _: False
    assert redrive_of(job, marks).run(cluster).finished == 6
    write([whole_letter(9)])
    late = [whole_letter(n) for n in (10, 11)]
    cluster.before = lambda: write([late.pop()] if late else [])
    assert redrive_of(job, marks).run(cluster).redriven == 1
    assert (cluster.numbers, late) == ([0, 1, 2, 3, 4, 5, 9], [])
    assert redrive_of(job, marks).run(cluster).redriven == 2
    assert redrive_of(job, marks).run(cluster).left == {"redriven before": 11}
    assert cluster.numbers == [0, 1, 2, 3, 4, 5, 9, 10, 11]
    segments = [each for held in cluster.taken.values() for each in held]
    assert {frozenset(each) for each in segments} == {frozenset({"n", *WHOLE})}
    assert all({**each, "n": 0} == {**WHOLE, "n": 0} for each in segments)
