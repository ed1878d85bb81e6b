"""Namespaces are watched each for itself: what happens to one stays there, and they come and go."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import aiohttp
import kopf
import pytest
from kubernetes.client import Configuration
from tests.operator.declaring import phase
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, chart_rights, cluster, job, settings
from tests.operator.test_operator_liveness import Clock, body
from tests.support.patience import WAIT_S

from onyx_operator.informers import cell
from onyx_operator.informers.cell import Cell
from onyx_operator.informers.informer import Informer
from onyx_operator.kube import CLUSTERS, JOBS, Kube
from onyx_operator.liveness import OperatorLiveness
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import KubeSettings
from onyx_operator.work_queue import ObjectKey

TWO = settings(NAMESPACES="default,team", CLUSTERS_RESYNC_INTERVAL_S="0.2")
BY_LABEL = settings(NAMESPACES="", NAMESPACE_LABELS="onyx=on", NAMESPACES_INTERVAL_S="0.05")


def told_of(api: FakeApi, namespace: str, name: str = "job") -> Any:
    """Wait until an operator has looked at a job."""
    return api.wait_for("onyxjobs", name, lambda found: found["status"]["phase"], namespace)


def namespace(api: FakeApi, name: str, **labels: str) -> None:
    api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )


def times_asked(api: FakeApi) -> int:
    """How often it was asked which namespaces there are."""
    return sum(each.target.resource == "namespaces" for each in api.requests)


def eventually(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.02)):
        if holds():
            return
        pause.wait(0.02)
    raise AssertionError("it does not come true")


def test_a_namespace_that_is_refused_leaves_the_others_as_they_are(
    api: FakeApi, logs: Logs
) -> None:
    namespace(api, "team")
    for each in ("default", "team"):
        api.create(cluster(namespace=each))
        api.create(job(namespace=each))
    rights = chart_rights("default", "team")
    with Operator(api, logs.connect, TWO, rights=rights) as operator:
        told_of(api, "team")
        operator.revoke("team")
        api.cut()
        eventually(lambda: any(each.namespace == "team" for each in operator.doors[0].denied))
        api.cut()
        api.create(job("second"))
        told_of(api, "default", "second")
        assert len(operator.doors) == 1, "it was not started again"

        api.create(job("later", namespace="team"))
        operator.revoke()
        told_of(api, "team", "later")


def test_a_namespace_that_is_deleted_and_made_again_is_looked_after(
    api: FakeApi, logs: Logs
) -> None:
    with Operator(api, logs.connect, TWO, rights=chart_rights("default", "team")) as operator:
        for _ in range(2):
            namespace(api, "team")
            api.create(job(namespace="team"))
            told_of(api, "team")
            operator.revoke("team")
            api.delete("namespaces", "team")
            api.cut()
            api.wait_for("onyxjobs", "job", lambda found: found is None, "team")
            operator.revoke()


def test_namespaces_come_and_go_by_their_label(api: FakeApi, logs: Logs) -> None:
    namespace(api, "one", onyx="on")
    namespace(api, "two")
    for each in ("one", "two"):
        api.create(job(namespace=each))
    with Operator(api, logs.connect, BY_LABEL, rights=chart_rights(labelled=True)):
        told_of(api, "one")
        assert "status" not in (api.get("onyxjobs", "job", "two") or {})

        api.patch("namespaces", "two", {"metadata": {"labels": {"onyx": "on"}}}, namespace="")
        told_of(api, "two")

        api.patch("namespaces", "one", {"metadata": {"labels": {"onyx": None}}}, namespace="")
        asked = times_asked(api)
        eventually(lambda: times_asked(api) > asked + 2)
        api.create(job("unseen", namespace="one"))
        api.create(job("seen", namespace="two"))
        told_of(api, "two", "seen")
        assert "status" not in (api.get("onyxjobs", "unseen", "one") or {})


def test_no_job_misses_a_cluster_that_is_listed_late(api: FakeApi, logs: Logs) -> None:
    api.create(cluster())
    api.create(job())
    api.faults.add(Fault(verb="list", resource="onyxclusters", delay_s=0.5, times=2))
    with Operator(api, logs.connect, settings()):
        found = api.wait_for("onyxjobs", "job", phase("Waiting"))
    assert found["status"]["reason"] == "WaitingForPeers"
    assert "ClusterNotFound" not in {each["reason"] for each in api.list("events")}


@pytest.fixture
def informed(api: FakeApi) -> tuple[Informer, OperatorLiveness, Clock, Any]:
    clock = Clock()
    liveness = OperatorLiveness(60.0, clock)
    configuration = Configuration()
    configuration.host = api.url
    return Informer(JOBS, 0.0, liveness, OperatorMetrics()), liveness, clock, configuration


def test_an_object_is_gone_only_if_it_was_known_before_the_list(
    api: FakeApi, informed: tuple[Informer, OperatorLiveness, Clock, Any]
) -> None:
    informer, _, _, configuration = informed
    gone: list[str] = []
    informer.listen(lambda key, _, is_gone: gone.append(key.name) if is_gone else None)
    informer.event("default", body("old", 5), gone=False)
    informer.event("default", body("elsewhere", 5) | _in("other"), gone=False)

    async def scenario() -> None:
        kube = Kube(KubeSettings(), configuration)
        api.faults.add(Fault(verb="list", resource="onyxjobs", delay_s=0.2))
        listing = asyncio.create_task(informer.list(kube, "default"))
        await asyncio.sleep(0.1)
        informer.event("default", body("new", 6), gone=False)
        await listing
        kube.close()

    asyncio.run(scenario())
    assert gone == ["old"]
    assert set(informer.store) == {ObjectKey("default", "new"), ObjectKey("other", "elsewhere")}


def test_a_watch_that_has_ended_is_dead_until_it_is_listed_and_owes_nothing(
    informed: tuple[Informer, OperatorLiveness, Clock, Any],
) -> None:
    informer, liveness, clock, _ = informed
    informer.event("team", body("one", 5), gone=False)
    informer.broken("team")
    clock.now_s += 60.0
    liveness._beat_s = clock.now_s
    assert liveness.alive() == "stalled: OnyxJob in team"
    informer.excused("team")
    assert liveness.alive() is True, "the API server refuses, which no restart mends"


def test_a_watch_owes_nothing_anew_because_the_api_server_was_away_for_a_while(
    api: FakeApi, informed: tuple[Informer, OperatorLiveness, Clock, Any]
) -> None:
    informer, liveness, clock, configuration = informed
    informer.event("default", dict(api.create(job())), gone=False)

    async def scenario() -> None:
        kube = Kube(KubeSettings(), configuration)
        await informer.list(kube, "default")
        assert informer.covers("default")
        informer.excused("default")
        assert not informer.covers("default"), "what is gone cannot be known"
        await informer.list(kube, "default")
        kube.close()

    asyncio.run(scenario())
    clock.now_s += 60.0
    liveness._beat_s = clock.now_s
    assert liveness.alive() is True


def test_a_refused_watch_ends_its_cell_and_leaves_no_session_open(api: FakeApi) -> None:
    configuration = Configuration()
    configuration.host = api.url
    api.faults.add(Fault(verb="watch", resource="onyxclusters", code=403))

    async def scenario() -> str:
        watched = [(CLUSTERS, ""), (JOBS, "")]
        return await Cell(configuration, "default", watched, lambda *_: None).ended()

    assert "injected fault: Forbidden" in asyncio.run(scenario())
    sessions = [each for each in gc.get_objects() if isinstance(each, aiohttp.ClientSession)]
    assert all(each.closed for each in sessions)


@pytest.mark.parametrize("cancelled", [False, True], ids=["waits", "is cancelled"])
def test_what_swallows_its_end_does_not_outlive_its_cell(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """Whether whoever stops it waits or is cancelled, as with a whole operator."""
    configuration = Configuration()
    configuration.host = api.url
    began, swallowed = threading.Event(), []

    async def endless(**_: Any) -> None:
        began.set()
        while len(swallowed) < 3:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                swallowed.append(error)

    monkeypatch.setattr(kopf, "operator", endless)
    monkeypatch.setattr(cell, "STOP_TIMEOUT_S", WAIT_S if cancelled else 0.01)

    async def scenario() -> None:
        made = Cell(configuration, "swallower", [(JOBS, "")], lambda *_: None)
        await asyncio.to_thread(began.wait)

        async def follow() -> None:
            try:
                await made.ended()
            finally:
                await made.stop()

        following = asyncio.create_task(follow())
        await asyncio.sleep(0)
        following.cancel()
        if cancelled:
            await asyncio.sleep(0)
            following.cancel()
        await asyncio.wait([following])
        async with asyncio.timeout(WAIT_S):
            await made.ended()

    asyncio.run(scenario())
    assert len(swallowed) == 3


def _in(namespace: str) -> dict[str, Any]:
    metadata = {**body("elsewhere", 5)["metadata"], "namespace": namespace}
    return {"metadata": metadata}
