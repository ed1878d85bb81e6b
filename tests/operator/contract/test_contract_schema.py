"""Contract of an API server: a CRD's schema prunes, defaults and refuses."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.contract.client import Client, widget


def test_defaults_are_set_where_nothing_is(server: Client) -> None:
    spec = server.widget("one", {"size": 1, "parts": [{"name": "a"}, {"name": "b", "count": 3}]})[
        "spec"
    ]

    assert (spec["color"], spec["replicas"], spec["limits"]) == ("red", 2, {"memory": "1Gi"})
    assert [part["count"] for part in spec["parts"]] == [1, 3]
    assert "note" not in spec


def test_null_is_dropped_or_replaced_by_a_default_and_kept_where_it_is_allowed(
    server: Client,
) -> None:
    given = {"size": 1, "color": None, "note": None, "name": None, "labels": {"a": None}}
    spec = server.widget("one", {**given, "options": {"any": None}})["spec"]

    assert (spec["color"], spec["note"], spec["labels"]) == ("red", None, {})
    assert "name" not in spec
    assert spec["options"] == {"any": None}


def test_defaults_come_back_when_a_value_is_removed(server: Client) -> None:
    server.widget("one", {"size": 1, "color": "green"})

    assert server.patch("one", {"spec": {"color": None}}).body["spec"]["color"] == "red"


def test_unknown_fields_are_dropped_but_where_the_schema_keeps_them(server: Client) -> None:
    body = {
        **widget("one", {"size": 1, "odd": 1, "options": {"any": {"thing": [1]}}, "port": "http"}),
        "extra": True,
    }
    body["spec"]["parts"] = [{"name": "a", "odd": 1}]
    made = server.call("POST", server.at("widgets"), body).body

    assert "extra" not in made
    assert "odd" not in made["spec"]
    assert "odd" not in made["spec"]["parts"][0]
    assert made["spec"]["options"] == {"any": {"thing": [1]}}


def test_unknown_fields_are_refused_when_the_client_asks_for_it(server: Client) -> None:
    strict = {"fieldValidation": "Strict"}
    answer = server.call("POST", server.at("widgets"), widget("one", {"size": 1, "odd": 1}), strict)

    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert 'unknown field "spec.odd"' in answer.body["message"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a key is missing": ({}, "spec.size"),
    "too small": ({"size": -1}, "spec.size"),
    "too large": ({"size": 101}, "spec.size"),
    "a text for a number": ({"size": "1"}, "spec.size"),
    "a fraction for an integer": ({"size": 1.5}, "spec.size"),
    "a boolean for a number": ({"size": True}, "spec.size"),
    "not in the enumeration": ({"size": 1, "color": "blue"}, "spec.color"),
    "not of the pattern": ({"size": 1, "name": "A1"}, "spec.name"),
    "too long": ({"size": 1, "name": "abcdefghi"}, "spec.name"),
    "too many": ({"size": 1, "tags": list("abcde")}, "spec.tags"),
    "twice in a set": ({"size": 1, "tags": ["a", "a"]}, "spec.tags[1]"),
    "a key twice": ({"size": 1, "parts": [{"name": "a"}, {"name": "a"}]}, "spec.parts[1]"),
    "a key is missing in an item": ({"size": 1, "parts": [{"count": 1}]}, "spec.parts[0].name"),
    "a value of a map": ({"size": 1, "labels": {"a": 1}}, "spec.labels.a"),
    "neither integer nor string": ({"size": 1, "port": 1.5}, "spec.port"),
    "null where a value is required": ({"size": None}, "spec.size"),
    "null in a list": ({"size": 1, "tags": [None]}, "spec.tags[0]"),
    "null for an item with keys": ({"size": 1, "parts": [None]}, "spec.parts[0]"),
    "a list for an object": ({"size": 1, "limits": []}, "spec.limits"),
    "a rule": ({"size": 1, "least": 2}, "spec"),
    "a rule over a list": ({"size": 1, "parts": [{"name": "a", "of": "b"}]}, "spec"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_schema_refuses(server: Client, case: str) -> None:
    spec, field = REFUSED[case]
    answer = server.call("POST", server.at("widgets"), widget("one", spec))

    assert (answer.code, answer.reason) == (422, "Invalid"), answer
    assert field in [cause["field"] for cause in answer.body["details"]["causes"]]


@pytest.mark.parametrize(
    "spec",
    [
        {"size": 100, "port": 80, "ratio": 1},
        {"size": 1.0, "ratio": 0.5},
        {"size": 1, "least": 1, "labels": {"a": "b"}},
        {"size": 1, "parts": [{"name": "a"}, {"name": "b", "of": "a"}]},
    ],
)
def test_what_the_schema_takes(server: Client, spec: dict[str, Any]) -> None:
    assert server.call("POST", server.at("widgets"), widget("one", spec)).code == 201


MESSAGES: dict[str, tuple[dict[str, Any], str, str]] = {
    "required": ({}, "FieldValueRequired", "Required value"),
    "type": (
        {"size": "1"},
        "FieldValueTypeInvalid",
        'Invalid value: "string": spec.size in body must be of type integer: "string"',
    ),
    "minimum": (
        {"size": -1},
        "FieldValueInvalid",
        "Invalid value: -1: spec.size in body should be greater than or equal to 0",
    ),
    "maximum": (
        {"size": 101},
        "FieldValueInvalid",
        "Invalid value: 101: spec.size in body should be less than or equal to 100",
    ),
    "enum": (
        {"size": 1, "color": "blue"},
        "FieldValueNotSupported",
        'Unsupported value: "blue": supported values: "red", "green"',
    ),
    "pattern": (
        {"size": 1, "name": "A"},
        "FieldValueInvalid",
        "Invalid value: \"A\": spec.name in body should match '^[a-z]+$'",
    ),
    "length": (
        {"size": 1, "name": "abcdefghi"},
        "FieldValueTooLong",
        "Too long: may not be more than 8 bytes",
    ),
    "items": (
        {"size": 1, "tags": list("abcde")},
        "FieldValueTooMany",
        "Too many: 5: must have at most 4 items",
    ),
    "duplicate": (
        {"size": 1, "parts": [{"name": "a"}, {"name": "a"}]},
        "FieldValueDuplicate",
        'Duplicate value: {"name":"a"}',
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_what_users_read(server: Client, case: str) -> None:
    spec, reason, message = MESSAGES[case]
    answer = server.call("POST", server.at("widgets"), widget("one", spec))
    cause = answer.body["details"]["causes"][0]

    assert (cause["reason"], cause["message"]) == (reason, message)
    assert answer.body["message"].startswith('Widget.contract.onyx.dev "one" is invalid: ')
    assert message in answer.body["message"]


def test_the_message_of_a_rule_reaches_the_user(server: Client) -> None:
    answer = server.call("POST", server.at("widgets"), widget("one", {"size": 1, "least": 2}))

    assert "least is more than size" in answer.body["message"]


def test_a_rule_over_old_and_new_binds_changes_only(server: Client) -> None:
    server.widget("one", {"size": 1, "owner": "me"})
    same = server.patch("one", {"spec": {"size": 2}})
    other = server.patch("one", {"spec": {"owner": "you"}})

    assert (same.code, other.code) == (200, 422)
    assert "owner cannot be changed" in other.body["message"]
