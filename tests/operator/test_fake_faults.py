"""What the fake API server can do and a real one cannot: faults, doors, a log, waiting."""

from __future__ import annotations

import gc
import socket
import threading
from typing import Any

import pytest
import urllib3
from kubernetes.client import ApiException, Configuration
from tests.operator.contract.client import Answer, Client
from tests.operator.fake_api.doors import Door, Failpoint
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.server import FakeApi

MAPS = "/api/v1/namespaces/default/configmaps"
NO_ANSWER = (urllib3.exceptions.HTTPError, ApiException, OSError)


def client(url: str) -> Client:
    configuration = Configuration()
    configuration.host = url
    configuration.retries = False
    return Client(configuration, forget=lambda: None)


@pytest.fixture
def user(api: FakeApi) -> Client:
    return client(api.url)


def body(name: str = "one") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def create(user: Client, name: str = "one") -> Answer:
    return user.call("POST", MAPS, body(name))


@pytest.mark.parametrize(
    ("code", "reason"),
    [(403, "Forbidden"), (409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError")],
)
def test_a_request_is_refused_so_often_and_then_served(
    api: FakeApi, user: Client, code: int, reason: str
) -> None:
    api.faults.add(Fault(verb="create", resource="configmaps", code=code, times=2))
    answers = [create(user) for _ in range(3)]

    assert [each.code for each in answers] == [code, code, 201]
    assert answers[0].reason == reason
    assert api.faults.met == 2


def test_a_fault_waits_for_its_turn_and_meets_only_its_requests(api: FakeApi, user: Client) -> None:
    api.faults.add(Fault(verb="get", resource="configmaps", name="one", code=500, skip=1))
    create(user)
    create(user, "two")

    def look(name: str) -> int:
        return user.call("GET", f"{MAPS}/{name}").code

    assert [look(name) for name in ("two", "one", "two", "one", "one")] == [200, 200, 200, 500, 200]


def test_a_fault_without_end_stays_until_it_is_cleared(api: FakeApi, user: Client) -> None:
    api.faults.add(Fault(verb="list", code=503, times=0))
    assert [user.call("GET", MAPS).code for _ in range(3)] == [503] * 3

    api.faults.clear()
    assert user.call("GET", MAPS).code == 200


def test_a_slow_request_is_served_in_the_end(api: FakeApi, user: Client) -> None:
    api.faults.add(Fault(verb="create", delay_s=0.05))

    assert (create(user).code, api.faults.met) == (201, 1)


def test_a_client_that_is_too_quick_is_told_how_long_to_wait(api: FakeApi, user: Client) -> None:
    api.faults.add(Fault(verb="list", code=429, retry_after_s=7))

    assert user.call("GET", MAPS).body["details"]["retryAfterSeconds"] == 7


@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
def test_a_connection_breaks_before_or_after_the_effect(
    api: FakeApi, user: Client, after_effect: bool
) -> None:
    api.faults.add(Fault(verb="create", drop=True, after_effect=after_effect))
    with pytest.raises(NO_ANSWER):
        create(user)

    assert (api.get("configmaps", "one") is not None) == after_effect
    assert create(user).code == (409 if after_effect else 201)


def test_a_watch_breaks_off_after_some_events(api: FakeApi, user: Client) -> None:
    api.faults.add(Fault(verb="watch", drop=True, after_events=1))
    create(user)
    create(user, "two")
    watch = user.watch(MAPS)

    assert next(watch)["object"]["metadata"]["name"] == "one"
    with pytest.raises(NO_ANSWER):
        next(watch)


def test_a_watch_is_told_that_its_version_is_gone(api: FakeApi, user: Client) -> None:
    api.faults.add(Fault(verb="watch", code=410))
    create(user)
    events = list(user.watch(MAPS))

    assert events[-1]["type"] == "ERROR"
    assert events[-1]["object"]["code"] == 410


def test_a_server_that_is_down_answers_nobody_and_comes_back(api: FakeApi, user: Client) -> None:
    create(user)
    with api.down(), pytest.raises(NO_ANSWER):
        user.call("GET", MAPS)

    assert user.call("GET", f"{MAPS}/one").code == 200


def test_the_log_of_requests_says_who_wanted_what(api: FakeApi, user: Client) -> None:
    create(user)
    user.call("GET", f"{MAPS}/none")
    first, second = api.requests

    assert (first.target.verb, first.target.resource, first.code) == ("create", "configmaps", 201)
    assert (second.target.verb, second.target.name, second.code) == ("get", "none", 404)
    assert "OpenAPI-Generator" in first.agent


def test_waiting_ends_when_the_condition_holds(api: FakeApi, user: Client) -> None:
    later = threading.Thread(target=create, args=(user,))
    later.start()
    found = api.wait_for("configmaps", "one", bool)
    later.join()

    assert found["metadata"]["name"] == "one"


def test_waiting_in_vain_fails_with_the_object_as_it_is(api: FakeApi, user: Client) -> None:
    create(user)
    with pytest.raises(AssertionError, match="'name': 'one'"):
        api.wait_for("configmaps", "one", lambda found: False, timeout_s=0.0)


@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
def test_a_door_shuts_at_the_step_of_its_failpoint(api: FakeApi, after_effect: bool) -> None:
    door = Door(Failpoint(2, after_effect))
    reported: list[str] = []
    door.on_shut(lambda: reported.append("shut"))
    behind = client(api.through(door))
    create(behind)
    with pytest.raises(NO_ANSWER):
        create(behind, "two")
    with pytest.raises(NO_ANSWER):
        create(behind, "three")

    assert reported == ["shut"]
    assert len(door.steps) == 2
    names = {each["metadata"]["name"] for each in api.list("configmaps")}
    assert names == ({"one", "two"} if after_effect else {"one"})


def test_a_door_lets_through_only_what_its_client_may_do(api: FakeApi) -> None:
    door = Door(allows=lambda target: target.verb == "get")
    behind = client(api.through(door))

    assert create(behind).code == 403
    assert behind.call("GET", f"{MAPS}/one").code == 404
    assert [each.verb for each in door.denied] == ["create"]


def test_an_apply_that_creates_needs_the_right_to_create(api: FakeApi) -> None:
    door = Door(allows=lambda target: target.verb == "patch")
    behind = client(api.through(door))
    query = {"fieldManager": "me"}

    def apply() -> int:
        content = "application/apply-patch+yaml"
        return behind.call("PATCH", f"{MAPS}/one", body(), query, content).code

    assert apply() == 403
    api.create(body())
    assert apply() == 200


def test_a_client_that_reads_nothing_leaves_no_socket_of_the_server_open() -> None:
    with FakeApi() as api, socket.socket() as client:
        for number in range(20):
            padding = {"data": {"padding": "x" * 500_000}}
            api.create({**body(f"map-{number}"), **padding})
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = api.url.removeprefix("http://").partition(":")
        client.connect((host, int(port)))
        client.sendall(f"GET {MAPS} HTTP/1.1\r\nHost: api\r\n\r\n".encode())
        assert client.recv(1)
    gc.collect()  # a socket that is not closed raises a warning, which fails the test
