"""Workers and operator reach the same log in the same way."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onyx.settings import Settings, TlsSettings, ZooKeeperSettings
from onyx_operator.connection import connection
from onyx_operator.settings import OperatorSettings

CERTIFICATES = TlsSettings("ca.crt", "tls.crt", "tls.key")
BASE = Settings(
    zookeeper=ZooKeeperSettings(
        address="chart:2181",
        tls=CERTIFICATES,
        auth_user="onyx",
        auth_password_file="/etc/onyx/password",
    )
)
PLAIN = ZooKeeperSettings(
    address="chart:2181",
    auth_user="onyx",
    auth_password_file="/etc/onyx/password",
    auth_per_tenancy=True,
)


def found(**spec: Any) -> Settings:
    cluster = {"metadata": {"namespace": "team", "name": "blue"}, "spec": spec}
    operator = OperatorSettings(
        engine=BASE, zookeeper_addresses=("own:2181",), tenancies=("team/shared",)
    )
    settings = connection(cluster, operator)
    assert isinstance(settings, Settings), settings
    return settings


def test_a_cluster_that_names_nothing_has_a_tenancy_of_its_own() -> None:
    settings = found()
    assert settings.tenancy_id == "team.blue"
    assert settings.job_scheduler == "balanced"
    assert settings.zookeeper == PLAIN


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"zookeeper": {"address": "own:2181"}}, replace(PLAIN, address="own:2181")),
        (
            {"tls": {"secretName": "s", "zookeeper": True}},
            replace(PLAIN, tls=CERTIFICATES),
        ),
        ({"tls": {"secretName": "s", "zookeeper": False}}, PLAIN),
        ({"zookeeper": {"authSecret": "s"}}, replace(PLAIN, auth_per_tenancy=False)),
    ],
)
def test_certificates_are_used_where_workers_use_them_and_the_account_is_theirs(
    spec: dict[str, Any], expected: ZooKeeperSettings
) -> None:
    assert found(**spec).zookeeper == expected


def test_tenancy_and_scheduler_are_those_of_the_cluster() -> None:
    settings = found(tenancyId="shared", jobScheduler="greedy")
    assert (settings.tenancy_id, settings.job_scheduler) == ("shared", "greedy")


def test_what_one_job_may_have_follows_from_the_quotas_of_the_cluster() -> None:
    limits = found(quotas={"peersPerJob": 4, "priority": 0}).log
    assert (limits.job_peers_max, limits.job_priority_max) == (4, 0)
    assert found().log == BASE.log
    assert found(quotas={}).log == BASE.log
