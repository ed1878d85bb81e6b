"""Contract of an API server: finalizers, owners and their dependents, namespaces."""

from __future__ import annotations

from typing import Any

from tests.operator.contract.client import Client, eventually, widget

HOLD = "contract.onyx.dev/hold"


def names(server: Client, plural: str = "configmaps", root: str = "api/v1") -> set[str]:
    items = server.call("GET", server.at(plural, root=root)).body["items"]
    return {each["metadata"]["name"] for each in items} - {"kube-root-ca.crt"}


def owned(server: Client, name: str, *owners: Any) -> None:
    references = [
        {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "name": each["metadata"]["name"],
            "uid": each["metadata"]["uid"],
        }
        for each in owners
    ]
    body = {"metadata": {"name": name, "ownerReferences": references}}
    assert server.call("POST", server.at("configmaps", root="api/v1"), body).code == 201


def test_a_finalizer_holds_a_deleted_object_until_it_is_released(server: Client) -> None:
    server.widget("one", finalizers=[HOLD])
    answer = server.call("DELETE", server.at("widgets", "one"))
    held = server.get("one")["metadata"]
    assert answer.code == 200
    assert held["deletionTimestamp"].endswith("Z")
    assert (held["deletionGracePeriodSeconds"], held["generation"]) == (0, 2)

    server.patch("one", {"metadata": {"finalizers": []}})
    assert server.call("GET", server.at("widgets", "one")).code == 404


def test_an_object_that_is_being_deleted_changes_but_takes_no_new_finalizer(
    server: Client,
) -> None:
    server.widget("one", finalizers=[HOLD])
    server.call("DELETE", server.at("widgets", "one"))
    version = server.get("one")["metadata"]["resourceVersion"]

    assert server.patch("one", {"status": {"phase": "Ending"}}, "status").code == 200
    more = server.patch("one", {"metadata": {"finalizers": [HOLD, "contract.onyx.dev/more"]}})
    assert (more.code, more.reason) == (422, "Invalid")
    assert server.call("DELETE", server.at("widgets", "one")).code == 200
    assert server.get("one")["metadata"]["resourceVersion"] != version
    again = server.call("POST", server.at("widgets"), widget("one"))
    assert (again.code, again.reason) == (409, "AlreadyExists")
    assert "is being deleted" in again.body["message"]


def test_a_deletion_time_cannot_be_taken_back(server: Client) -> None:
    server.widget("one", finalizers=[HOLD])
    server.call("DELETE", server.at("widgets", "one"))
    server.patch("one", {"metadata": {"deletionTimestamp": None}})

    assert "deletionTimestamp" in server.get("one")["metadata"]


def test_dependents_go_with_their_owner(server: Client) -> None:
    one, two = server.widget("one"), server.widget("two")
    owned(server, "of-one", one)
    owned(server, "of-both", one, two)
    owned(server, "of-none")
    server.call("DELETE", server.at("widgets", "one"), {"propagationPolicy": "Background"})

    assert eventually(lambda: names(server) == {"of-both", "of-none"})
    server.call("DELETE", server.at("widgets", "two"))
    assert eventually(lambda: names(server) == {"of-none"})


def test_dependents_stay_until_a_held_owner_is_gone(server: Client) -> None:
    owned(server, "of-one", server.widget("one", finalizers=[HOLD]))
    server.call("DELETE", server.at("widgets", "one"))
    assert names(server) == {"of-one"}

    server.patch("one", {"metadata": {"finalizers": None}})
    assert eventually(lambda: names(server) == set())


def test_dependents_can_be_left(server: Client) -> None:
    owned(server, "of-one", server.widget("one"))
    server.call("DELETE", server.at("widgets", "one"), {"propagationPolicy": "Orphan"})

    assert eventually(lambda: server.call("GET", server.at("widgets", "one")).code == 404)
    left = server.call("GET", server.at("configmaps", "of-one", root="api/v1")).body
    assert "ownerReferences" not in left["metadata"]


def test_a_namespace_takes_its_objects_along(server: Client) -> None:
    server.widget("one")
    server.call("DELETE", f"/api/v1/namespaces/{server.namespace}")

    assert eventually(lambda: server.call("GET", server.at("widgets", "one")).code == 404)
