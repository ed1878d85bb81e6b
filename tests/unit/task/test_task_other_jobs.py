"""What an input hears of the output or the journal of another job, and which it cannot follow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.log.memory_log import MemoryLog

from onyx.client.client import Client
from onyx.errors import Unavailable, UserError
from onyx.ids import JobId
from onyx.model.parsing.job import parse_mapping
from onyx.settings import Settings
from onyx.task import other_jobs
from onyx.task.other_jobs import journal_of, output_of
from onyx.task.services import Services

TAKE = {"name": "take", "type": "input", "plugin": "requests"}
KEEP = {"name": "keep", "type": "output", "plugin": "files", "options": {"path": "/lake"}}
SHOW = {"name": "show", "type": "output", "plugin": "stdout"}
SUM = {"name": "sum", "type": "reduce"}
WINDOW = {"id": "w", "task": "sum", "type": "global", "aggregation": "count"}
TRIGGER = {"windowId": "w", "type": "segment", "threshold": [1, "element"],
           "refinement": "accumulating", "sync": "m:f"}  # fmt: skip


def services_of(*ends: dict[str, Any], take: dict[str, Any] = TAKE, **more: Any) -> Services:
    """A cluster with the job `orders`, which takes requests and has these ends."""
    client = Client(MemoryLog().client(), "balanced")
    spec = {
        "guarantee": "at-most-once",
        "workflow": [["take", each["name"]] for each in ends],
        "catalog": [take, *ends],
        **more,
    }
    header = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "orders"}}
    client.submit(parse_mapping({**header, "spec": spec}))
    found = SimpleNamespace(replica=client.replica, log=client.log, settings=Settings())
    return cast("Services", found)


def test_an_output_of_files_is_followed_where_it_writes() -> None:
    (path,) = output_of(services_of(KEEP), "orders", "keep", ()).paths.values()
    assert path == "/lake"


@pytest.mark.parametrize(
    ("ends", "task", "why"),
    [
        ([KEEP], "take", "that task is none; have the job write to an output 'files'"),
        ([KEEP], "kep", "did you mean keep"),
        ([KEEP, SHOW], "other", "its outputs are keep or show"),
        ([KEEP, SHOW], "show", "only outputs 'files' can be followed"),
        ([SUM], "take", "it has no outputs"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_what_can(
    ends: list[dict[str, Any]], task: str, why: str
) -> None:
    windows = {"windows": [WINDOW], "triggers": [TRIGGER]} if SUM in ends else {}
    with pytest.raises(UserError, match=why):
        output_of(services_of(*ends, **windows), "orders", task, ())


def taking(plugin: str = "requests", **options: Any) -> dict[str, Any]:
    return {**TAKE, "plugin": plugin, "options": options}


NATS = {"servers": "n:4222", "stream": "s", "keepBytes": 10}


@pytest.mark.parametrize(
    ("take", "partitions"),
    [
        (taking(keepDays=1), 1),
        (taking(keepBytes=1, partitions=4), 4),
        (taking("http", keepDays=0.5, keepBytes=1, partitions=2), 2),
        (taking("nats", **NATS, subjects=["a.>", "b.>"]), 2),
        (taking("redis", server="r:1", stream="s", keepDays=1, partitions=3), 3),
        (taking("iterator", fn="m:f", keepDays=1), 1),
    ],
)
def test_a_journal_that_is_kept_is_followed_in_its_partitions(
    take: dict[str, Any], partitions: int
) -> None:
    services = services_of(KEEP, take=take)
    found = journal_of(services, "orders", "take", ())
    assert found is not None
    assert (found.partitions, found.state) == (partitions, "runs")
    assert len(found.jobs) == 1
    known = journal_of(services, "orders", "take", found.jobs)
    assert known is not None
    assert (known.jobs, known.partitions) == (found.jobs, None)


@pytest.mark.parametrize(
    ("take", "why"),
    [
        (taking(), "keeps nothing that is processed: give it keepDays or keepBytes"),
        (taking(keepDays=0, keepBytes=5), "keeps nothing that is processed"),
        (taking("generator", segments=1), "has no journal that could be followed"),
        (taking("nats", servers="n:4222", stream="s", mode="native"), "has no journal"),
    ],
)
def test_an_input_that_keeps_nothing_is_refused(take: dict[str, Any], why: str) -> None:
    guarantee = {"guarantee": "at-least-once"} if "mode" in take["options"] else {}
    with pytest.raises(UserError, match=why):
        journal_of(services_of(KEEP, take=take, **guarantee), "orders", "take", ())


def test_an_output_has_no_journal_and_a_job_that_is_not_there_is_waited_for() -> None:
    services = services_of(KEEP)
    assert journal_of(services, "orders", "keep", ()) is None
    with pytest.raises(Unavailable, match="there is no job 'sales' yet"):
        journal_of(services, "sales", "take", ())


@pytest.mark.parametrize("chain", [("v2", "v1", "v3"), ("v3", "v2", "v1"), ("v1", "v2", "v3")])
def test_versions_come_in_the_order_of_their_upgrades(chain: tuple[str, ...]) -> None:
    replica = SimpleNamespace(upgrades={"v1": "forgotten", "v2": "v1", "v3": "v2"}.get)
    assert other_jobs._by_age(cast("Any", replica), map(JobId, chain)) == ["v1", "v2", "v3"]
