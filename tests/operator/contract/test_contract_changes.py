"""Contract of an API server: patches of each type, apply, status, scale."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.contract.client import APPLY, JSON, MERGE, STRATEGIC, Client, widget


def test_a_merge_patch_merges_objects_replaces_lists_and_removes_by_null(server: Client) -> None:
    server.widget("one", {"size": 1, "name": "abc", "tags": ["a", "b"], "options": {"x": 1}})
    patch = {"spec": {"name": None, "tags": ["c"], "options": {"y": 2}}}
    spec = server.patch("one", patch).body["spec"]

    assert "name" not in spec
    assert (spec["tags"], spec["options"]) == (["c"], {"x": 1, "y": 2})


def test_a_merge_patch_may_name_the_version_that_it_changes(server: Client) -> None:
    version = server.widget("one")["metadata"]["resourceVersion"]

    def patch(size: int) -> int:
        return server.patch(
            "one", {"metadata": {"resourceVersion": version}, "spec": {"size": size}}
        ).code

    assert [patch(2), patch(3)] == [200, 409]


def test_a_json_patch_is_done_whole_or_not_at_all(server: Client) -> None:
    made = server.widget("one", {"size": 1, "tags": ["a", "b"]})
    version = made["metadata"]["resourceVersion"]
    check = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    good = [check, {"op": "remove", "path": "/spec/tags/0"}]
    add = [{"op": "add", "path": "/metadata/finalizers", "value": ["contract.onyx.dev/hold"]}]

    assert server.patch("one", good, content=JSON).body["spec"]["tags"] == ["b"]
    again = server.patch("one", [*add, *good], content=JSON)
    assert (again.code, again.reason) == (422, "Invalid")
    assert "finalizers" not in server.get("one")["metadata"]


@pytest.mark.parametrize(
    ("patch", "content", "code"),
    [
        ([{"op": "remove", "path": "/spec/none"}], JSON, 422),
        ([{"op": "replace", "path": "/spec/size", "value": 101}], JSON, 422),
        ([{"op": "twist", "path": "/spec/size"}], JSON, 422),
        ({"op": "remove", "path": "/spec/size"}, "application/json", 415),
        ({"spec": {"size": 2}}, STRATEGIC, 415),
        ({"spec": {"size": "big"}}, MERGE, 422),
        ({"spec": None}, MERGE, 422),
    ],
)
def test_what_is_refused_as_a_patch(server: Client, patch: Any, content: str, code: int) -> None:
    before = server.widget("one")

    assert server.patch("one", patch, content=content).code == code
    assert server.get("one") == before


def test_built_in_kinds_take_strategic_merge_patches(server: Client) -> None:
    core = "api/v1"
    body = {"metadata": {"name": "one"}, "data": {"a": "1", "b": "2"}}
    server.call("POST", server.at("configmaps", root=core), body)
    path = server.at("configmaps", "one", root=core)
    answer = server.call("PATCH", path, {"data": {"a": None, "c": "3"}}, content=STRATEGIC)

    assert answer.body["data"] == {"b": "2", "c": "3"}


def test_the_status_changes_by_its_own_door_only(server: Client) -> None:
    server.widget("one")
    by_status = server.patch(
        "one", {"spec": {"size": 9}, "status": {"phase": "Good", "odd": 1}}, "status"
    ).body
    by_front = server.patch("one", {"spec": {"size": 2}, "status": {"phase": "Bad"}}).body

    assert (by_status["spec"]["size"], by_status["status"]) == (1, {"phase": "Good"})
    assert (by_front["spec"]["size"], by_front["status"]) == (2, {"phase": "Good"})


def test_the_status_is_replaced_by_an_update_and_checked(server: Client) -> None:
    made = server.widget("one")
    path = server.at("widgets", "one", "status")
    new = server.call("PUT", path, {**made, "status": {"phase": "Good"}})

    assert (new.code, new.body["status"]) == (200, {"phase": "Good"})
    assert server.patch("one", {"status": {"phase": 7}}, "status").code == 422
    assert server.call("PUT", path, made).code == 409


def test_a_status_patch_may_name_the_version_that_it_changes(server: Client) -> None:
    version = server.widget("one")["metadata"]["resourceVersion"]

    def patch(phase: str) -> int:
        body = {"metadata": {"resourceVersion": version}, "status": {"phase": phase}}
        return server.patch("one", body, "status").code

    assert [patch("Good"), patch("Late")] == [200, 409]
    assert server.get("one")["status"] == {"phase": "Good"}


def test_a_status_patch_that_names_another_object_is_taken_all_the_same(server: Client) -> None:
    """Only the version protects: of a status, the server looks at nothing else in metadata."""
    uid = server.widget("one")["metadata"]["uid"]
    body = {"metadata": {"uid": "another", "labels": {"a": "b"}}, "status": {"phase": "Good"}}
    new = server.patch("one", body, "status")

    assert new.code == 200
    assert (new.body["metadata"]["uid"], new.body["status"]) == (uid, {"phase": "Good"})
    assert "labels" not in new.body["metadata"]


def test_the_scale_has_both_numbers_and_changes_one(server: Client) -> None:
    server.widget("one")
    server.patch("one", {"status": {"replicas": 1, "selector": "app=one"}}, "status")
    scale = server.call("GET", server.at("widgets", "one", "scale")).body
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 1, "selector": "app=one"},
    )

    assert server.patch("one", {"spec": {"replicas": 5}}, "scale").body["spec"]["replicas"] == 5
    assert server.get("one")["spec"]["replicas"] == 5
    assert server.get("one")["metadata"]["generation"] == 2
    assert server.patch("one", {"spec": {"replicas": -1}}, "scale").code == 422


def test_apply_creates_and_then_changes(server: Client) -> None:
    made = server.apply("one", {"size": 1}, "me")
    changed = server.apply("one", {"size": 2}, "me")
    again = server.apply("one", {"size": 2}, "me")

    assert [made.code, changed.code, again.code] == [201, 200, 200]
    assert changed.body["spec"]["size"] == 2
    assert again.body == changed.body


def test_apply_removes_what_its_manager_no_longer_names(server: Client) -> None:
    parts = [{"name": "a"}, {"name": "b", "count": 3}]
    server.apply("one", {"size": 1, "name": "abc", "parts": parts}, "me")
    server.patch("one", {"spec": {"note": "by hand"}})
    spec = server.apply("one", {"size": 1, "parts": parts[:1]}, "me").body["spec"]

    assert "name" not in spec
    assert [part["name"] for part in spec["parts"]] == ["a"]
    assert spec["note"] == "by hand"


def test_two_managers_own_parts_of_a_list_with_keys(server: Client) -> None:
    server.apply("one", {"size": 1, "parts": [{"name": "a"}]}, "me")
    both = server.apply("one", {"size": 1, "parts": [{"name": "b"}]}, "you")
    mine = server.apply("one", {"size": 1}, "me")

    assert [part["name"] for part in both.body["spec"]["parts"]] == ["a", "b"]
    assert [part["name"] for part in mine.body["spec"]["parts"]] == ["b"]


def test_two_managers_own_values_of_a_set(server: Client) -> None:
    server.apply("one", {"size": 1, "tags": ["a"]}, "me")
    both = server.apply("one", {"size": 1, "tags": ["b"]}, "you").body["spec"]["tags"]
    mine = server.apply("one", {"size": 1, "tags": []}, "me").body["spec"]["tags"]

    assert (both, mine) == (["a", "b"], ["b"])


def test_apply_does_not_take_what_another_owns_unless_forced(server: Client) -> None:
    server.apply("one", {"size": 1, "name": "abc"}, "me")
    refused = server.apply("one", {"size": 2}, "you")
    agreed = server.apply("one", {"size": 1}, "you")
    forced = server.apply("one", {"size": 2}, "you", force="true")
    back = server.apply("one", {"size": 3, "name": "abc"}, "me")

    assert (refused.code, refused.reason) == (409, "Conflict")
    assert refused.body["details"]["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "me"',
            "field": ".spec.size",
        }
    ]
    assert [agreed.code, forced.code, back.code] == [200, 200, 409]
    assert server.get("one")["spec"]["name"] == "abc"


def test_apply_conflicts_with_a_change_made_by_a_patch(server: Client) -> None:
    server.apply("one", {"size": 1}, "me")
    server.patch("one", {"spec": {"size": 2}}, fieldManager="hand")

    refused = server.apply("one", {"size": 1}, "me")
    assert refused.code == 409
    assert 'conflict with "hand" using contract.onyx.dev/v1: .spec.size' in refused.body["message"]
    assert server.apply("one", {"size": 1}, "me", force="true").body["spec"]["size"] == 1


def test_apply_needs_a_manager_its_own_name_and_no_managed_fields(server: Client) -> None:
    path = server.at("widgets", "one")
    nobody = server.call("PATCH", path, widget("one"), {}, APPLY)
    other = server.call("PATCH", path, widget("two"), {"fieldManager": "me"}, APPLY)
    body = widget("one", managedFields=[])

    assert (nobody.code, other.code) == (422, 400)
    assert server.call("PATCH", path, body, {"fieldManager": "me"}, APPLY).code == 400


def test_managed_fields_say_who_owns_what(server: Client) -> None:
    made = server.apply("one", {"size": 1, "parts": [{"name": "a"}]}, "me").body
    entry = made["metadata"]["managedFields"][0]

    assert (entry["manager"], entry["operation"]) == ("me", "Apply")
    assert set(entry["fieldsV1"]["f:spec"]) == {"f:size", "f:parts"}
    assert 'k:{"name":"a"}' in entry["fieldsV1"]["f:spec"]["f:parts"]
