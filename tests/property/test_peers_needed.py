"""The number of peers that a job is said to need is the smallest with which a cluster starts it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.drawn_jobs import jobs
from tests.support.examples import examples
from tests.support.log.replica_log import ReplicaLog

from onyx.api import peers_needed
from onyx.builder import Job, blackhole, sequence
from onyx.client.submissions import submission
from onyx.ids import JobId
from onyx.model import job as model


def starts(job: model.Job, peers: int) -> bool:
    log = ReplicaLog("percentage").join("g", peers=peers)
    log.tell(submission(JobId("j"), job, "", "percentage"))
    return any(log.new.run("j").allocation.values())


def check(job: model.Job) -> None:
    needed = sum(peers_needed(job).values())
    assert starts(job, needed)
    assert not starts(job, needed - 1)


@given(jobs())
@settings(max_examples=examples(40), deadline=None)
def test_a_job_starts_with_the_peers_that_it_needs_and_with_no_fewer(job: model.Job) -> None:
    catalog = tuple(replace(each, required_tags=()) for each in job.catalog)
    check(replace(job, catalog=catalog, percentage=100))


@st.composite
def shared(draw: st.DrawFn) -> model.Job:
    """A job whose tasks have shares of its peers, and some of them a minimum."""
    cuts = draw(st.sets(st.integers(1, 99), min_size=2, max_size=4))
    bounds = [0, *sorted(cuts), draw(st.just(100) | st.integers(max(cuts) + 1, 100))]
    first, *middle, last = [b - a for a, b in pairwise(bounds)]

    def keys(share: int) -> dict[str, Any]:
        least = draw(st.none() | st.integers(1, 3))
        return {"percentage": share} | ({} if least is None else {"min_peers": least})

    job = Job("job", task_scheduler="percentage", percentage=100)
    job = job.read(sequence(segments=[]), **keys(first))
    for number, share in enumerate(middle):
        if draw(st.booleans()):
            job = job.group_by("key")
        job = job.map("app:f", name=f"work-{number}").set(**keys(share))  # type: ignore[arg-type]
    return job.write(blackhole(), **keys(last)).build()


@given(shared())
@settings(max_examples=examples(40), deadline=None)
def test_shares_are_so_large_that_the_smallest_is_enough(job: model.Job) -> None:
    check(job)


@pytest.mark.parametrize(
    ("keys", "needed"),
    [({}, 3), ({"engine": "spark"}, 1), ({"task_scheduler": "colocated"}, 3)],
)
def test_the_scheduler_and_the_engine_say_how_many(keys: dict[str, Any], needed: int) -> None:
    job = Job("job", **keys).read(sequence(segments=[])).map("app:f").write(blackhole()).build()
    assert sum(peers_needed(job).values()) == needed
    assert starts(job, 0) is False
