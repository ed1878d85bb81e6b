"""Contract of an API server: selectors, pages, watches, discovery, tables."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.operator.contract.client import Client

SELECTED = {
    "color=red": {"a", "b"},
    "color==red,size=big": {"a"},
    "color!=red": {"c", "d"},
    "color in (red, blue)": {"a", "b", "c"},
    "color notin (red)": {"c", "d"},
    "color": {"a", "b", "c"},
    "!color": {"d"},
}


def names(answer: Any) -> set[str]:
    return {each["metadata"]["name"] for each in answer.body["items"]}


@pytest.mark.parametrize("selector", SELECTED)
def test_labels_select(server: Client, selector: str) -> None:
    server.widget("a", labels={"color": "red", "size": "big"})
    server.widget("b", labels={"color": "red"})
    server.widget("c", labels={"color": "blue"})
    server.widget("d")
    listed = server.call("GET", server.at("widgets"), None, {"labelSelector": selector})

    assert names(listed) == SELECTED[selector]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("metadata.name=a", {"a"}),
        ("metadata.name!=a", {"b", "c"}),
        ("spec.color=green", {"b"}),
        ("spec.color=red,metadata.name=c", {"c"}),
    ],
)
def test_fields_select(server: Client, selector: str, found: set[str]) -> None:
    for name, color in (("a", "red"), ("b", "green"), ("c", "red")):
        server.widget(name, {"size": 1, "color": color})
    listed = server.call("GET", server.at("widgets"), None, {"fieldSelector": selector})

    assert names(listed) == found


@pytest.mark.parametrize("query", [{"fieldSelector": "spec.size=1"}, {"labelSelector": "a in red"}])
def test_what_selectors_are_refused(server: Client, query: dict[str, str]) -> None:
    assert server.call("GET", server.at("widgets"), None, query).code == 400


def test_a_list_comes_in_pages(server: Client) -> None:
    for name in "abcde":
        server.widget(name)
    found, query = [], {"limit": "2"}
    for _ in range(3):
        page = server.call("GET", server.at("widgets"), None, query).body
        found.append([each["metadata"]["name"] for each in page["items"]])
        query = {"limit": "2", "continue": page["metadata"].get("continue", "")}

    assert found == [["a", "b"], ["c", "d"], ["e"]]
    assert query["continue"] == ""


def test_a_watch_tells_what_happens_after_a_version(server: Client) -> None:
    server.widget("before")
    version = server.call("GET", server.at("widgets")).body["metadata"]["resourceVersion"]
    server.widget("one")
    server.patch("one", {"spec": {"size": 2}})
    server.patch("one", {"status": {"phase": "Good"}}, "status")
    server.call("DELETE", server.at("widgets", "one"))
    events = list(itertools.islice(server.watch(server.at("widgets"), resourceVersion=version), 4))

    assert [each["type"] for each in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert {each["object"]["metadata"]["name"] for each in events} == {"one"}
    assert [each["object"]["spec"]["size"] for each in events] == [1, 2, 2, 2]
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in events]
    assert versions == sorted(set(versions))


def test_a_watch_tells_what_happens_while_it_is_open(server: Client) -> None:
    version = server.call("GET", server.at("widgets")).body["metadata"]["resourceVersion"]
    events = server.watch(server.at("widgets"), resourceVersion=version, timeout_s=20)
    server.widget("one")
    assert next(events)["object"]["metadata"]["name"] == "one"
    server.widget("two")
    assert next(events)["object"]["metadata"]["name"] == "two"
    events.close()  # type: ignore[attr-defined]


def test_a_watch_without_a_version_begins_with_what_exists(server: Client) -> None:
    server.widget("one")
    server.widget("two")
    events = list(itertools.islice(server.watch(server.at("widgets")), 2))

    assert {each["type"] for each in events} == {"ADDED"}
    assert {each["object"]["metadata"]["name"] for each in events} == {"one", "two"}


def test_a_watch_with_initial_events_marks_their_end(server: Client) -> None:
    server.widget("one")
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    events = list(itertools.islice(server.watch(server.at("widgets"), **query), 2))

    assert [each["type"] for each in events] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"


def test_a_watch_ends_in_time_and_leaves_a_bookmark(server: Client) -> None:
    version = server.call("GET", server.at("widgets")).body["metadata"]["resourceVersion"]
    query = {"resourceVersion": version, "allowWatchBookmarks": "true"}
    server.call("POST", server.at("configmaps", root="api/v1"), {"metadata": {"name": "other"}})
    events = list(server.watch(server.at("widgets"), timeout_s=3, **query))

    assert {each["type"] for each in events} <= {"BOOKMARK"}
    for each in events:
        assert int(each["object"]["metadata"]["resourceVersion"]) >= int(version)


def test_a_watch_by_labels_tells_who_enters_and_who_leaves(server: Client) -> None:
    server.widget("one")
    version = server.get("one")["metadata"]["resourceVersion"]
    for labels in ({"a": "b"}, {"a": "b", "c": "d"}, {"a": None}, {"c": None}):
        server.patch("one", {"metadata": {"labels": labels}})
    watch = server.watch(server.at("widgets"), resourceVersion=version, labelSelector="a=b")
    events = list(itertools.islice(watch, 3))

    assert [each["type"] for each in events] == ["ADDED", "MODIFIED", "DELETED"]


def test_a_watch_from_a_forgotten_version_is_told_so(server: Client) -> None:
    server.widget("one")
    server.forget()
    events = list(server.watch(server.at("widgets"), resourceVersion="1"))

    assert [each["type"] for each in events] == ["ERROR"]
    assert (events[0]["object"]["code"], events[0]["object"]["reason"]) == (410, "Expired")


def test_discovery_tells_what_is_served(server: Client) -> None:
    groups = server.call("GET", "/apis").body["groups"]
    found = next(each for each in groups if each["name"] == "contract.onyx.dev")
    assert found["preferredVersion"]["version"] == "v1"

    page = server.call("GET", "/apis/contract.onyx.dev/v1").body["resources"]
    widgets = {each["name"]: each for each in page}
    assert set(widgets) == {"widgets", "widgets/status", "widgets/scale"}
    assert widgets["widgets"]["shortNames"] == ["wg"]
    assert widgets["widgets"]["categories"] == ["contract"]
    assert {"get", "list", "watch", "create", "patch", "delete"} <= set(widgets["widgets"]["verbs"])


def test_core_kinds_are_discovered_too(server: Client) -> None:
    assert "v1" in server.call("GET", "/api").body["versions"]
    page = {each["name"]: each for each in server.call("GET", "/api/v1").body["resources"]}

    assert page["namespaces"]["namespaced"] is False
    assert page["configmaps"]["namespaced"] is True


def test_a_table_has_the_columns_of_the_crd(server: Client) -> None:
    server.widget("one", {"size": 7})
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    table = server.call("GET", server.at("widgets"), accept=accept).body

    assert table["kind"] == "Table"
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Size"]
    assert [row["cells"] for row in table["rows"]] == [["one", 7]]
