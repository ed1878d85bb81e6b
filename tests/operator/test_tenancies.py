"""A log belongs to one OnyxCluster, whoever else asks for it, however its address is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from onyx_operator.settings import OperatorSettings
from onyx_operator.tenancies import Tenancies, log_address
from onyx_operator.work_queue import ObjectKey

OPERATOR = OperatorSettings(
    zookeeper_addresses=("zk:2181", "elsewhere:2181", "new:2181"),
    tenancies=("team/shared", "team/other"),
)


def asks(
    name: str, created: int, address: str = "zk:2181", tenancy: str = "shared", **status: Any
) -> dict[str, Any]:
    """A cluster that asks for a log."""
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    metadata["creationTimestamp"] = f"2026-11-21T12:00:{created:02}Z"
    spec = {"tenancyId": tenancy, "zookeeper": {"address": address}}
    return {"metadata": metadata, "spec": spec, "status": status}


def holders(*clusters: Mapping[str, Any]) -> dict[str, str]:
    """Who is in the way of whom."""
    known = Tenancies(OPERATOR, lambda: [dict(each) for each in clusters])
    found = {each["metadata"]["name"]: known.holder(each) for each in clusters}
    return {name: holder.name for name, holder in found.items() if holder is not None}


HOLDS = {"tenancyId": "shared", "zookeeperAddress": "zk:2181"}


@pytest.mark.parametrize(
    ("clusters", "expected"),
    [
        ([asks("b", 1), asks("a", 2)], {"a": "b"}),
        ([asks("b", 1), asks("a", 1)], {"b": "a"}),
        ([asks("a", 1), asks("b", 2, tenancy="other")], {}),
        ([asks("a", 1), asks("b", 2, address="elsewhere:2181")], {}),
        ([asks("a", 1), asks("b", 2, **HOLDS)], {"a": "b"}),
        ([asks("a", 1, **HOLDS), asks("b", 2, **HOLDS)], {"b": "a"}),
        ([asks("a", 1), asks("b", 2), asks("c", 3)], {"b": "a", "c": "a"}),
        ([asks("a", 1, tenancy="team.b"), asks("b", 2, tenancy="")], {"b": "a"}),
        # It asks for another log now; its workers are where they were.
        ([asks("a", 1, address="new:2181", **HOLDS), asks("b", 2)], {"b": "a"}),
        ([asks("a", 1, tenancyId=7, zookeeperAddress=[]), asks("b", 2)], {"b": "a"}),
    ],
)
def test_who_was_first_has_the_log_and_keeps_it(
    clusters: list[dict[str, Any]], expected: dict[str, str]
) -> None:
    assert holders(*clusters) == expected


def test_who_has_claimed_a_log_keeps_it_before_any_status_says_so() -> None:
    clusters = [asks("z", 2)]
    known = Tenancies(OPERATOR, lambda: clusters)
    known.claim(clusters[0])
    older = asks("a", 1)
    assert known.holder(older) == ObjectKey("team", "z")
    clusters.append(older)
    assert known.holder(clusters[0]) is None
    gone = clusters.pop(0)
    assert known.forget(gone) == [ObjectKey("team", "a")]
    assert known.holder(older) is None


def test_who_was_refused_does_not_take_over_from_one_that_was_not_seen_yet() -> None:
    first, second = asks("first", 1, **HOLDS), asks("second", 2)
    known = Tenancies(OPERATOR, lambda: [second])
    assert known.holder(second, first) == ObjectKey("team", "first")
    second["status"] = {"tenancyHolder": "team/first"}
    assert known.is_refused(second)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("zk:2181", "zk", True),
        ("zk:2181", " ZK:2181 ", True),
        ("zk:2181", "zk:2182", False),
        ("zk:2181", "zk.team:2181", True),
        ("zk.team.svc:2181", "zk.team.svc.cluster.local.:2181", True),
        ("zk", "zk.team.svc.cluster.local:2181", True),
        ("zk", "zk.other.svc:2181", False),
        ("zk-0:2181,zk-1:2181", "zk-1:2181,zk-2:2181", True),
        ("zk-0.zk,zk-1.zk", "zk-1.zk.team.svc", True),
        ("zk:2181/a", "zk:2181/b", False),
        ("zk:2181/a/", "zk:2181/a", True),
        ("zk:2181/", "zk:2181", True),
        ("10.0.0.1:2181", "10.0.0.1", True),
        ("", "zk", False),
    ],
)
def test_one_zookeeper_may_be_written_in_many_ways(one: str, other: str, same: bool) -> None:
    addresses = [log_address("shared", each, "team") for each in (one, other)]
    assert addresses[0].is_same(addresses[1]) is addresses[1].is_same(addresses[0]) is same


def test_other_tenancies_are_other_logs() -> None:
    assert not log_address("one", "zk", "team").is_same(log_address("other", "zk", "team"))
