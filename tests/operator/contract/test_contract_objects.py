"""Contract of an API server: objects are created, read, changed and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.contract.client import Client, widget


def test_a_created_object_has_what_the_server_gives_it(server: Client) -> None:
    made = server.widget("one")["metadata"]

    assert made["uid"]
    assert made["creationTimestamp"].endswith("Z")
    assert int(made["resourceVersion"]) > 0
    assert made["generation"] == 1
    assert made["namespace"] == server.namespace


def test_what_was_created_is_read_back_alone_and_in_a_list(server: Client) -> None:
    made = server.widget("one")
    listed = server.call("GET", server.at("widgets")).body

    assert server.get("one") == made
    assert listed["kind"] == "WidgetList"
    assert [each["metadata"]["uid"] for each in listed["items"]] == [made["metadata"]["uid"]]
    assert int(listed["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


def test_a_list_over_all_namespaces_has_it_too(server: Client) -> None:
    uid = server.widget("one")["metadata"]["uid"]
    listed = server.call("GET", "/apis/contract.onyx.dev/v1/widgets").body

    assert uid in [each["metadata"]["uid"] for each in listed["items"]]


def test_versions_grow_with_each_change(server: Client) -> None:
    first = server.widget("one")
    second = server.patch("one", {"spec": {"size": 2}}).body

    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


def test_a_change_that_changes_nothing_makes_no_new_version(server: Client) -> None:
    first = server.widget("one")

    assert server.patch("one", {"spec": {"size": 1}}).body == first


def test_the_status_of_a_new_object_is_dropped(server: Client) -> None:
    body = {**widget("one"), "status": {"phase": "Odd"}}

    assert "status" not in server.call("POST", server.at("widgets"), body).body


def test_a_name_is_made_from_a_prefix(server: Client) -> None:
    body = widget("")
    body["metadata"] = {"generateName": "made-"}
    name = server.call("POST", server.at("widgets"), body).body["metadata"]["name"]

    assert name.startswith("made-")
    assert len(name) == len("made-") + 5


def without(body: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != key}


REFUSED_TO_CREATE: dict[str, tuple[dict[str, Any], int, str]] = {
    "a name twice": (widget("taken"), 409, "AlreadyExists"),
    "no name": ({**widget(""), "metadata": {}}, 422, "Invalid"),
    "a name in capitals": (widget("Loud"), 422, "Invalid"),
    "a version": (widget("new", resourceVersion="7"), 500, ""),
    "another kind": ({**widget("new"), "kind": "Gadget"}, 422, "Invalid"),
    "no kind": (without(widget("new"), "kind"), 400, "BadRequest"),
    "another API version": ({**widget("new"), "apiVersion": "a.dev/v1"}, 400, "BadRequest"),
    "no API version": (without(widget("new"), "apiVersion"), 400, "BadRequest"),
    "a label's name": (widget("new", labels={"a b": "c"}), 422, "Invalid"),
    "a label's value": (widget("new", labels={"a": "b c"}), 422, "Invalid"),
    "a label that is no text": (widget("new", labels={"a": 1}), 400, "BadRequest"),
    "large annotations": (widget("new", annotations={"a": "b" * 262_144}), 422, "Invalid"),
    "an owner without uid": (widget("new", ownerReferences=[{"kind": "A"}]), 422, "Invalid"),
    "another namespace": (widget("new", namespace="elsewhere"), 400, "BadRequest"),
}


@pytest.mark.parametrize("case", REFUSED_TO_CREATE)
def test_what_is_refused_at_creation(server: Client, case: str) -> None:
    body, code, reason = REFUSED_TO_CREATE[case]
    server.widget("taken")
    answer = server.call("POST", server.at("widgets"), body)

    assert (answer.code, answer.reason) == (code, reason)
    assert answer.body["kind"] == "Status"


def test_nothing_is_created_in_a_namespace_that_is_not_there(server: Client) -> None:
    path = "/apis/contract.onyx.dev/v1/namespaces/nowhere/widgets"

    assert server.call("POST", path, widget("one")).code == 404


def test_what_is_not_there_is_not_found(server: Client) -> None:
    for method in ("GET", "DELETE"):
        answer = server.call(method, server.at("widgets", "none"))
        assert (answer.code, answer.reason) == (404, "NotFound")
    assert server.patch("none", {"spec": {}}).code == 404


def test_a_kind_that_is_not_served_is_not_found(server: Client) -> None:
    assert server.call("GET", server.at("gadgets")).code == 404


def test_an_update_needs_the_version_that_it_changes(server: Client) -> None:
    made = server.widget("one")
    path = server.at("widgets", "one")
    blind = widget("one", {"size": 3})
    stale = widget("one", {"size": 3}, resourceVersion=made["metadata"]["resourceVersion"])
    server.patch("one", {"spec": {"size": 2}})

    assert server.call("PUT", path, blind).code == 422
    answer = server.call("PUT", path, stale)
    assert (answer.code, answer.reason) == (409, "Conflict")


def test_an_update_replaces_the_content_and_keeps_what_is_the_servers(server: Client) -> None:
    made = server.widget("one", {"size": 1, "name": "abc"})
    version = made["metadata"]["resourceVersion"]
    body = widget("one", {"size": 3}, resourceVersion=version, generation=77)
    new = server.call("PUT", server.at("widgets", "one"), body).body

    assert "name" not in new["spec"]
    assert new["metadata"]["uid"] == made["metadata"]["uid"]
    assert new["metadata"]["generation"] == 2


def test_the_generation_counts_changes_of_the_content_only(server: Client) -> None:
    server.widget("one")
    generations = [
        server.patch("one", patch, part).body["metadata"]["generation"]
        for patch, part in (
            ({"metadata": {"labels": {"a": "b"}}}, ""),
            ({"status": {"phase": "Good"}}, "status"),
            ({"spec": {"size": 2}}, ""),
            ({"spec": {"size": 2}}, ""),
        )
    ]

    assert generations == [1, 1, 2, 2]


def test_a_dry_run_answers_and_changes_nothing(server: Client) -> None:
    dry = {"dryRun": "All"}
    made = server.call("POST", server.at("widgets"), widget("one"), dry)
    assert (made.code, server.call("GET", server.at("widgets", "one")).code) == (201, 404)
    assert made.body["spec"]["color"] == "red"

    before = server.widget("one")
    assert server.patch("one", {"spec": {"size": 9}}, **dry).body["spec"]["size"] == 9
    assert server.patch("one", {"spec": {"size": 999}}, **dry).code == 422
    assert server.call("DELETE", server.at("widgets", "one"), None, dry).code == 200
    assert server.get("one") == before


def test_a_deleted_object_is_gone_and_the_answer_says_which(server: Client) -> None:
    made = server.widget("one")
    answer = server.call("DELETE", server.at("widgets", "one"))

    assert (answer.code, answer.body["status"]) == (200, "Success")
    assert answer.body["details"]["uid"] == made["metadata"]["uid"]
    assert server.call("GET", server.at("widgets", "one")).code == 404


def test_a_deletion_may_name_the_object_that_it_means(server: Client) -> None:
    uid = server.widget("one")["metadata"]["uid"]
    path = server.at("widgets", "one")

    def delete(wanted: str) -> int:
        return server.call("DELETE", path, {"preconditions": {"uid": wanted}}).code

    assert delete("00000000-0000-0000-0000-000000000000") == 409
    assert delete(uid) == 200


def test_a_collection_is_deleted_by_labels(server: Client) -> None:
    for name, color in (("one", "red"), ("two", "blue"), ("three", "red")):
        server.widget(name, labels={"color": color})
    server.call("DELETE", server.at("widgets"), None, {"labelSelector": "color=red"})
    left = server.call("GET", server.at("widgets")).body["items"]

    assert [each["metadata"]["name"] for each in left] == ["two"]


def test_the_uid_of_an_object_cannot_be_changed(server: Client) -> None:
    server.widget("one")

    assert server.patch("one", {"metadata": {"uid": "another"}}).code == 422


def test_built_in_kinds_need_not_say_what_they_are(server: Client) -> None:
    path = server.at("configmaps", root="api/v1")
    made = server.call("POST", path, {"metadata": {"name": "one"}, "data": {"a": "1"}})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "two"}}

    assert (made.code, made.body["kind"]) == (201, "ConfigMap")
    assert server.call("POST", path, pod).code == 400
    assert server.call("DELETE", f"{path}/one").body["status"] == "Success"


def test_an_event_lies_in_the_namespace_of_what_it_is_about(server: Client) -> None:
    def post(name: str, namespace: str) -> int:
        body = {
            "metadata": {"name": name},
            "involvedObject": {"kind": "Widget", "name": "one", "namespace": namespace},
            "reason": "Tested",
            "message": "a test",
            "type": "Normal",
        }
        return server.call("POST", server.at("events", root="api/v1"), body).code

    assert [post("here", server.namespace), post("there", "elsewhere")] == [201, 422]
