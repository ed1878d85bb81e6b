"""A job that takes requests says where clients find it, and waits for a cluster with a way in."""

from __future__ import annotations

from typing import Any

import pytest

from onyx.model.parsing.job import parse_declared
from onyx_operator.jobs.check import unfit, ways_in

HOST = "onyx-worker-http.team.svc"
CLIENTS = {"clientsFrom": [{"podSelector": {}}]}


def job(plugin: str) -> Any:
    catalog = [
        {"name": "take", "type": "input", "plugin": plugin},
        {"name": "out", "type": "output", "plugin": "stdout"},
    ]
    spec = {"workflow": [["take", "out"]], "catalog": catalog}
    body = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob",
            "metadata": {"name": "orders"}, "spec": spec}  # fmt: skip
    return parse_declared(body)[1]


def cluster(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxCluster",
        "metadata": {"name": "onyx", "namespace": "team"},
        "spec": spec,
        "status": {"tenancyId": "team.onyx"},
    }


@pytest.mark.parametrize(
    ("plugin", "spec", "ways"),
    [
        ("http", {"http": {}}, {"http": f"http://{HOST}/jobs/orders/take"}),
        ("http", {"http": {"tlsSecretName": "tls"}}, {"http": f"https://{HOST}/jobs/orders/take"}),
        ("requests", {"http": {}}, {}),
        ("requests", {"grpc": {}, "networkPolicy": CLIENTS},
         {"grpc": "onyx-worker-grpc.team.svc:7700"}),
    ],
)  # fmt: skip
def test_a_job_that_takes_requests_says_where(
    plugin: str, spec: dict[str, Any], ways: dict[str, str]
) -> None:
    assert ways_in(job(plugin), cluster(**spec)) == [
        {"task": "take", "tenancy": "team.onyx", **ways}
    ]
    assert unfit(job(plugin), cluster(**spec)) == ()


def test_a_job_without_such_an_input_says_nothing() -> None:
    assert ways_in(job("sequence"), cluster(http={})) == []


def test_over_http_it_waits_for_a_cluster_that_takes_requests() -> None:
    (problem,) = unfit(job("http"), cluster())

    assert problem.path == "spec.catalog[0].plugin"
    assert "of task take takes requests over HTTP, and OnyxCluster onyx none" in str(problem)
    assert "cluster.http.enabled=true" in str(problem)
