"""A job that asks for more than one job may have is refused by key; others are kept to it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.log.memory_log import MemoryLog

from onyx.client.client import Client
from onyx.errors import ManifestError
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.replica.spec_of_job import spec_of
from onyx.settings import LogSettings
from onyx.submission.quotas import over_quota, within_quota

FOUR = LogSettings(job_peers_max=4, job_priority_max=10)


def job(work: dict[str, Any] | None = None, **spec: Any) -> Job:
    catalog = [
        {"name": "read", "plugin": "generator", "options": {"segments": 9}},
        {"name": "work", "fn": "app:work", **(work or {})},
        {"name": "write", "plugin": "blackhole"},
    ]
    return parse_mapping({"metadata": {"name": "job"}, "spec": {"catalog": catalog, **spec}})


MANY = (
    "makes the job need 5 peers (read 1, work 3, write 1), and no job of this cluster may have "
    "more than 4 (ONYX_LOG_JOB_PEERS_MAX; quotas.peersPerJob of an OnyxCluster)"
)
HIGH = (
    "is 11, and no job of this cluster may have more than 10 (ONYX_LOG_JOB_PRIORITY_MAX; "
    "quotas.priority of an OnyxCluster)"
)


@pytest.mark.parametrize(
    ("asks", "limits", "expected"),
    [
        (job({"minPeers": 2}, priority=10), FOUR, []),
        (job({"minPeers": 3}), FOUR, [("spec.catalog[1].minPeers", MANY)]),
        (job({"nPeers": 3}), FOUR, [("spec.catalog[1].nPeers", MANY)]),
        (job(priority=11), FOUR, [("spec.priority", HIGH)]),
        (
            job({"nPeers": 3}, priority=11),
            FOUR,
            [("spec.priority", HIGH), ("spec.catalog[1].nPeers", MANY)],
        ),
        (job({"minPeers": 99}, priority=1_000), LogSettings(), []),
        (job({"minPeers": 99}, engine="spark"), FOUR, []),
    ],
)
def test_what_is_asked_for_beyond_a_quota_is_named_with_its_key(
    asks: Job, limits: LogSettings, expected: list[tuple[str, str]]
) -> None:
    assert [(each.path, each.message) for each in over_quota(asks, limits)] == expected


def test_a_chain_of_many_tasks_needs_a_peer_each() -> None:
    (problem,) = over_quota(job(), LogSettings(job_peers_max=2))
    assert problem.path == "spec.catalog"


@pytest.mark.parametrize(
    ("work", "limits", "most"),
    [({}, FOUR, 4), ({"maxPeers": 1}, FOUR, 4), ({}, LogSettings(), None)],
)
def test_the_log_holds_the_limit_so_that_schedulers_keep_it(
    work: dict[str, Any], limits: LogSettings, most: int | None
) -> None:
    assert within_quota(spec_of(job(work)), limits).max_peers == most


def test_whoever_submits_is_bound_whichever_way() -> None:
    client = Client(MemoryLog().client(), "balanced", limits=FOUR)
    with client:
        for hand_in in (
            client.submit,
            lambda asks: client.hand_in(JobId("j"), asks, "", client.replica()),
        ):
            with pytest.raises(ManifestError) as refused:
                hand_in(job(priority=11))
            assert [each.path for each in refused.value.problems] == ["spec.priority"]
        assert client.replica().jobs == ()
        found = client.submit(job(priority=10)).job
        spec = client.replica().spec(found)
        assert (spec.max_peers, spec.priority) == (4, 10)
