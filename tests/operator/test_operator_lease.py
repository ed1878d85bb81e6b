"""Of several operators one works; when it ends, or says nothing, another one goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kubernetes.client import Configuration
from tests.operator.declaring import phase
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, cluster, deployment, job, settings
from tests.operator.workers import Workers

from onyx.errors import Unavailable
from onyx_operator.kube import Kube, KubeError
from onyx_operator.lease import LEASES, OperatorLease
from onyx_operator.settings import KubeSettings, LeaseSettings


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def looked(api: FakeApi, steps: Callable[[Callable[..., OperatorLease]], Awaitable[None]]) -> None:
    """Operators look at one Lease, whose duration is 15 s."""
    configuration = Configuration()
    configuration.host = api.url
    api.create(deployment("default", "onyx"))

    async def run() -> None:
        kube = Kube(KubeSettings(), configuration)

        def lease(holder: str, clock: Clock | None = None) -> OperatorLease:
            wanted = LeaseSettings("default", "onyx", holder, 15.0)
            return OperatorLease(kube, wanted, clock or Clock())

        try:
            await steps(lease)
        finally:
            kube.close()

    asyncio.run(run())


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "onyx"}}
"""Of the chart, which gives the right to a Lease there."""


def holder(found: Any) -> Any:
    return found["spec"]["holderIdentity"]


def test_the_first_one_has_it_and_another_one_does_not_get_it(api: FakeApi) -> None:
    async def steps(lease: Callable[..., OperatorLease]) -> None:
        assert holder(await lease("a").look()) == "a"
        assert holder(await lease("b").look()) == "a"
        assert holder(await lease("a").look()) == "a"

    looked(api, steps)
    lease = api.get("leases", "onyx")
    assert lease["spec"]["leaseTransitions"] == 0
    (owner,) = lease["metadata"]["ownerReferences"]
    assert owner["uid"] == api.get("deployments", "onyx")["metadata"]["uid"]


def test_there_is_none_without_the_deployment_whose_it_would_be(api: FakeApi) -> None:
    async def steps(lease: Callable[..., OperatorLease]) -> None:
        api.delete("deployments", "onyx")
        with pytest.raises(Unavailable, match="its Deployment is not there"):
            await lease("a").look()

    looked(api, steps)
    assert api.get("leases", "onyx") is None


def test_one_that_is_given_back_is_free(api: FakeApi) -> None:
    async def steps(lease: Callable[..., OperatorLease]) -> None:
        first = lease("a")
        await first.look()
        await lease("b").give_back()
        assert holder(await lease("b").look()) == "a"
        await first.give_back()
        assert holder(await lease("b").look()) == "b"

    looked(api, steps)
    assert api.get("leases", "onyx")["spec"]["leaseTransitions"] == 1


def test_it_is_free_when_its_holder_was_silent_while_somebody_looked_on(api: FakeApi) -> None:
    clock = Clock()

    async def steps(lease: Callable[..., OperatorLease]) -> None:
        first, second = lease("a"), lease("b", clock)
        await first.look()
        clock.now_s = 1_000.0
        assert holder(await second.look()) == "a", "nobody knows for how long"
        clock.now_s += 14.0
        assert holder(await second.look()) == "a"
        await first.look()
        clock.now_s += 14.0
        assert holder(await second.look()) == "a", "it was renewed"
        clock.now_s += 15.0
        assert holder(await second.look()) == "b"
        async with asyncio.timeout(60):
            assert await first.lost() == "b"

    looked(api, steps)


def test_of_two_that_want_it_at_once_one_gets_it(api: FakeApi) -> None:
    async def steps(lease: Callable[..., OperatorLease]) -> None:
        await lease("a").look()
        await lease("a").give_back()
        found = await asyncio.gather(
            *(lease(name).look() for name in "bcd"), return_exceptions=True
        )
        won = [each for each in found if not isinstance(each, BaseException)]
        assert len({holder(each) for each in won}) == 1
        assert all(isinstance(each, dict | KubeError) for each in found)

    looked(api, steps)


def test_an_operator_in_waiting_goes_on_with_what_it_has_watched(
    api: FakeApi, logs: Logs, workers: Workers
) -> None:
    api.create(NAMESPACE)
    api.create(deployment("onyx", "onyx-operator"))
    api.create(cluster())
    lease = {"LEASE_NAME": "onyx-operator", "LEASE_NAMESPACE": "onyx", "LEASE_DURATION_S": "0.5"}
    with contextlib.ExitStack() as first:
        first.enter_context(Operator(api, logs.connect, settings(**lease, LEASE_HOLDER="a")))
        api.wait_for("leases", "onyx-operator", lambda found: holder(found) == "a", "onyx")
        with Operator(api, logs.connect, settings(**lease, LEASE_HOLDER="b")) as waiting:
            api.create(job())
            running = api.wait_for("onyxjobs", "job", phase("Running"))
            assert not any("append" in step for step in waiting.steps)

            first.close()
            api.wait_for("leases", "onyx-operator", lambda found: holder(found) == "b", "onyx")
            workers.finish(running["status"]["jobId"])
            api.wait_for("onyxjobs", "job", phase("Completed"))
            api.delete("onyxjobs", "job")


@pytest.mark.slow
def test_while_the_api_server_is_away_nobody_ends(api: FakeApi, logs: Logs) -> None:
    api.create(NAMESPACE)
    api.create(deployment("onyx", "onyx-operator"))
    lease = {"LEASE_NAME": "onyx-operator", "LEASE_NAMESPACE": "onyx", "LEASE_DURATION_S": "0.2"}
    with Operator(api, logs.connect, settings(**lease, LEASE_HOLDER="a")) as operator:
        found = api.wait_for("leases", "onyx-operator", lambda each: each is not None, "onyx")
        api.faults.add(Fault(verb="patch", resource=LEASES.plural, code=503, times=5))
        before = found["spec"]["renewTime"]
        api.wait_for(
            "leases", "onyx-operator", lambda each: each["spec"]["renewTime"] > before, "onyx"
        )
        assert len(operator.doors) == 1
