"""The edge to the API server: what it asks, what it makes of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kubernetes.client import Configuration
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import job

from onyx.errors import Unavailable
from onyx_operator.kube import CONFIG_MAPS, JOBS, Conflict, Kube, KubeError, Resource
from onyx_operator.settings import KubeSettings

Act = Callable[[Kube], Awaitable[Any]]


def asked(api: FakeApi, act: Act, settings: KubeSettings | None = None) -> Any:
    """What a client gets that does `act`."""
    configuration = Configuration()
    configuration.host = api.url

    async def run() -> Any:
        kube = Kube(settings or KubeSettings(), configuration)
        try:
            return await act(kube)
        finally:
            kube.close()

    return asyncio.run(run())


def config_map(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": {"kind": "test"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (CONFIG_MAPS, "/api/v1/namespaces/here/configmaps/one"),
        (JOBS, "/apis/onyx.dev/v1beta1/namespaces/here/onyxjobs/one"),
        (Resource("apps/v1", "StatefulSet", "statefulsets"),
         "/apis/apps/v1/namespaces/here/statefulsets/one"),
    ],
)  # fmt: skip
def test_paths_are_those_of_the_api(resource: Resource, expected: str) -> None:
    assert resource.path("here", "one") == expected


def test_an_object_is_made_changed_and_deleted(api: FakeApi) -> None:
    async def act(kube: Kube) -> None:
        assert await kube.get(CONFIG_MAPS, "default", "one") is None
        await kube.create(CONFIG_MAPS, config_map("one"))
        changed = await kube.patch(CONFIG_MAPS, "default", "one", {"data": {"b": "2"}})
        assert changed["data"] == {"a": "1", "b": "2"}
        operations = [{"op": "remove", "path": "/data/a"}]
        changed = await kube.patch(CONFIG_MAPS, "default", "one", operations)
        assert changed["data"] == {"b": "2"}
        with pytest.raises(Conflict):
            await kube.delete(CONFIG_MAPS, "default", "one", uid="of another")
        assert await kube.delete(CONFIG_MAPS, "default", "one", changed["metadata"]["uid"])
        assert not await kube.delete(CONFIG_MAPS, "default", "one")

    asked(api, act)


def test_what_is_applied_no_more_goes(api: FakeApi) -> None:
    async def act(kube: Kube) -> Any:
        body = config_map("one")
        await kube.apply(CONFIG_MAPS, body)
        return await kube.apply(CONFIG_MAPS, {**body, "data": {"b": "2"}})

    assert asked(api, act)["data"] == {"b": "2"}


def test_lists_are_read_page_by_page(api: FakeApi) -> None:
    for index in range(7):
        api.create(config_map(f"number-{index}"))
    found = asked(
        api,
        lambda kube: kube.list_all(CONFIG_MAPS, "default", "kind=test"),
        KubeSettings(page_items=3),
    )
    assert [each["metadata"]["name"] for each in found] == [f"number-{i}" for i in range(7)]
    assert sum(each.target.verb == "list" for each in api.requests) == 3


@pytest.mark.parametrize(
    ("fault", "error", "status"),
    [
        (Fault(code=403), KubeError, 403),
        (Fault(code=409), Conflict, 409),
        (Fault(code=429), Unavailable, None),
        (Fault(code=500), Unavailable, None),
        (Fault(code=503), Unavailable, None),
        (Fault(drop=True), Unavailable, None),
        (Fault(drop=True, after_effect=True), Unavailable, None),
    ],
)
def test_refusals_are_told_apart(
    api: FakeApi, fault: Fault, error: type[Exception], status: int | None
) -> None:
    api.faults.add(fault)
    with pytest.raises(error) as caught:
        asked(api, lambda kube: kube.create(CONFIG_MAPS, config_map("one")))
    assert getattr(caught.value, "status", None) == status
    assert "/api/" not in str(caught.value), "the owner of an object knows no requests"
    assert len(api.requests) == 1, "nothing is repeated behind the caller's back"


def test_a_server_that_does_not_answer_is_unavailable_in_time(api: FakeApi) -> None:
    api.faults.add(Fault(delay_s=5.0))
    with pytest.raises(Unavailable, match="cannot be reached"):
        asked(
            api,
            lambda kube: kube.get(CONFIG_MAPS, "default", "one"),
            KubeSettings(read_timeout_s=0.1),
        )


def test_requests_that_wait_are_bounded(api: FakeApi) -> None:
    async def act(kube: Kube) -> list[Any]:
        gets = [kube.get(CONFIG_MAPS, "default", "one") for _ in range(10)]
        return await asyncio.gather(*gets, return_exceptions=True)

    found = asked(api, act, KubeSettings(threads_max=1, waiting_max=4))
    assert sum(isinstance(each, Unavailable) for each in found) == 6


def test_events_tell_about_an_object_and_never_fail(api: FakeApi) -> None:
    made = api.create(job())
    asked(api, lambda kube: kube.event(made, "Submitted", "m" * 5_000, warning=True))
    (event,) = api.list("events")
    assert event["involvedObject"]["uid"] == made["metadata"]["uid"]
    assert (event["type"], event["reason"], len(event["message"])) == (
        "Warning",
        "Submitted",
        1_000,
    )
    api.faults.add(Fault(verb="create", resource="events", code=403))
    asked(api, lambda kube: kube.event(made, "Submitted", "again"))
    assert len(api.list("events")) == 1


def test_an_event_that_repeats_is_counted(api: FakeApi) -> None:
    made = api.create(job())

    async def act(kube: Kube) -> None:
        for number in range(40):
            await kube.event(made, "Displaced" if number % 2 else "Running", "as before")
        await kube.event(made, "Running", "otherwise")

    asked(api, act)
    found = {(each["reason"], each["message"]): each for each in api.list("events")}
    assert {key: each["count"] for key, each in found.items()} == {
        ("Running", "as before"): 16,
        ("Displaced", "as before"): 16,
        ("Running", "otherwise"): 1,
    }
    assert len(api.list("events")) == 3


def test_an_event_that_the_api_server_has_dropped_is_made_again(api: FakeApi) -> None:
    made = api.create(job())

    async def act(kube: Kube) -> None:
        await kube.event(made, "Running", "as before")
        api.delete("events", api.list("events")[0]["metadata"]["name"])
        await kube.event(made, "Running", "as before")

    asked(api, act)
    (event,) = api.list("events")
    assert event["count"] == 2
