"""Whatever there is, carrying out a plan once leads to a state in which nothing is left to do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.operator.clusters import CODE, SMALL, UID, WHOLE, pool

from onyx_operator.clusters.observed import ClusterObservation, ExistingObject
from onyx_operator.clusters.plan import Apply, ClusterPlan, Delete, plan
from onyx_operator.clusters.pool import Pool
from onyx_operator.clusters.resources import STATEFUL_SETS, children
from onyx_operator.clusters.trees import contains, merged
from onyx_operator.kube import Resource

SPECS = st.fixed_dictionaries(
    {
        "replicas": st.integers(0, 5),
        "networkPolicy": st.fixed_dictionaries({"enabled": st.booleans()}),
        "podDisruptionBudget": st.fixed_dictionaries({"enabled": st.booleans()}),
        "serviceAccount": st.sampled_from([{}, {"create": False}, {"name": "one"}]),
    },
    optional={
        "resources": st.sampled_from([{"requests": {"cpu": "1500m", "memory": "1024Mi"}}]),
        "settings": st.sampled_from([{"ONYX_LEAVE_TIMEOUT_S": "5"}, {}]),
        "env": st.sampled_from([[{"name": "A", "value": ""}], [{"name": "B", "value": "b"}]]),
        "podTemplate": st.sampled_from([{"spec": {"nodeSelector": {"a": "b"}, "hostAliases": []}}]),
    },
).map(lambda spec: {**SMALL, **spec})


class World:
    """A namespace; an API server that keeps what it is sent and adds its own."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Resource, str], dict[str, Any]] = {}
        self.version = 0

    def plan(self, wanted: Pool) -> ClusterPlan:
        found = [ExistingObject(resource, body) for (resource, _), body in self.objects.items()]
        return plan(ClusterObservation({}, wanted, found=found))

    def settle(self, wanted: Pool) -> None:
        for action in self.plan(wanted).actions:
            if isinstance(action, Apply):
                self.apply(action.child.resource, action.child.body)
            elif isinstance(action, Delete):
                del self.objects[action.resource, action.name]

    def apply(self, resource: Resource, body: Mapping[str, Any]) -> None:
        key = (resource, body["metadata"]["name"])
        self.version += 1
        old = self.objects.get(key, {"metadata": {"uid": f"uid-{self.version}"}})
        new = copy.deepcopy(merged(old, body))
        new["metadata"]["resourceVersion"] = str(self.version)
        new["status"] = {"replicas": self.version}
        new.setdefault("spec", {})["theServersOwn"] = {"default": 1}
        self.objects[key] = new


FIXED = {
    ("metadata",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid"),
    ("metadata", "ownerReferences"), ("metadata", "resourceVersion"), ("metadata", "labels"),
    ("metadata", "annotations"), ("status",), ("spec",),
}  # fmt: skip
"""Identity, what the server writes, and what has a type that it checks."""
LEFT_AS_THEY_ARE = ("ownerReferences", "status")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values that somebody else may change."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        inner = (*path, key)
        if inner not in FIXED and each not in ({}, []):
            yield inner
        if isinstance(each, dict | list) and key not in LEFT_AS_THEY_ARE:
            yield from places(each, inner)


def spoil(world: World, draw: Callable[[Any], Any]) -> None:
    """Somebody deletes an object, removes a field or writes nonsense into one."""
    if not world.objects:
        return
    key = draw(st.sampled_from(sorted(world.objects, key=str)))
    if draw(st.booleans()):
        del world.objects[key]
        return
    body = world.objects[key]
    path = draw(st.sampled_from(list(places(body))))
    parent: Any = body
    for step in path[:-1]:
        parent = parent[step]
    if draw(st.booleans()):
        del parent[path[-1]]
    else:
        parent[path[-1]] = "nonsense"


def done(world: World, wanted: Pool) -> bool:
    return world.plan(wanted) == ClusterPlan()


@given(st.lists(SPECS, min_size=1, max_size=4), st.data())
def test_one_pass_reaches_the_fixed_point(specs: list[dict[str, Any]], data: st.DataObject) -> None:
    world = World()
    for spec in specs:
        for _ in range(data.draw(st.integers(0, 2))):
            spoil(world, data.draw)
        wanted = pool(spec)
        world.settle(wanted)

        assert done(world, wanted)
        there = {name: body for (_, name), body in world.objects.items()}
        assert len(world.objects) == len(children(wanted)), there


@given(st.data())
def test_every_loss_and_every_other_value_is_noticed(data: st.DataObject) -> None:
    """But for values that mean the same empty or away, which an API server leaves out."""
    world, wanted = World(), pool(WHOLE, CODE)
    world.settle(wanted)
    child = data.draw(st.sampled_from(children(wanted)))
    path = data.draw(st.sampled_from(list(places(child.body))))
    parent: Any = world.objects[child.resource, child.name]
    for step in path[:-1]:
        parent = parent[step]
    assert parent[path[-1]] != "nonsense"
    parent[path[-1]] = "nonsense"

    assert [type(each) for each in world.plan(wanted).actions] == [Apply]


def test_what_others_add_is_left_alone() -> None:
    world, wanted = World(), pool()
    world.settle(wanted)
    body = world.objects[STATEFUL_SETS, "fleet-worker"]
    body["metadata"]["labels"]["theirs"] = "x"
    body["spec"]["template"]["spec"]["containers"].append({"name": "sidecar"})
    body["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "X"})

    assert done(world, wanted)


def test_what_we_said_once_and_say_no_more_is_applied_away() -> None:
    world = World()
    world.settle(pool({**SMALL, "env": [{"name": "A", "value": "1"}]}))

    actions = world.plan(pool()).actions
    assert [each.child.resource for each in actions if isinstance(each, Apply)] == [STATEFUL_SETS]


def test_an_object_of_somebody_else_is_not_touched() -> None:
    world, wanted = World(), pool()
    world.settle(wanted)
    for body in world.objects.values():
        body["metadata"]["ownerReferences"][0]["uid"] = "another-uid"
        body["spec"] = {"theirs": True}

    found = world.plan(wanted)
    assert found.actions == ()
    assert found.trouble is not None
    assert found.trouble.reason == "NameTaken"
    assert found.trouble.message.count("belongs to somebody") == len(children(wanted))


def test_an_object_that_goes_away_is_waited_for() -> None:
    world, wanted = World(), pool()
    world.settle(wanted)
    metadata = world.objects[STATEFUL_SETS, "fleet-worker"]["metadata"]
    metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    found = world.plan(wanted)
    assert found.actions == ()
    assert found.trouble is not None
    assert "StatefulSet fleet-worker is being deleted" in found.trouble.message


def test_only_what_is_ours_is_deleted() -> None:
    world = World()
    world.settle(pool())
    foreign = {"metadata": {"name": "other", "uid": "x", "resourceVersion": "1"}}
    world.objects[STATEFUL_SETS, "other"] = foreign

    actions = world.plan(pool({**SMALL, "networkPolicy": {"enabled": False}})).actions
    deleted = [each.name for each in actions if isinstance(each, Delete)]
    assert deleted == ["fleet-worker"]
    assert pool().uid == UID


CASES: list[tuple[Any, Any, bool]] = [
    ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1024Mi"}}, True),
    ({"limits": {"cpu": "1500m"}}, {"limits": {"cpu": 1.5}}, True),
    ({"limits": {"cpu": "2"}}, {"limits": {"cpu": 2}}, True),
    ({"limits": {"cpu": "2e3"}}, {"limits": {"cpu": "2k"}}, True),
    ({"limits": {"memory": "1Ei"}}, {"limits": {"memory": "1E"}}, False),
    ({"limits": {}}, {"limits": {"cpu": 1}}, False),
    ({"name": "a"}, {"name": "a", "value": ""}, True),
    ({"name": "a", "value": "x"}, {"name": "a", "value": ""}, False),
    ({"name": "a"}, {"name": "a", "emptyDir": {}}, True),
    ({"annotations": {"theirs": "x"}}, {"annotations": {}}, True),
    ({"a": 1}, {"a": 1, "b": 0}, False),
    ({"a": 1}, {"a": 1, "b": False}, False),
    ({"args": ["a", "b"]}, {"args": ["a"]}, False),
    ({"env": [{"name": "x"}, {"name": "a", "value": "1"}]}, {"env": [{"name": "a"}]}, True),
    ({"env": [{"name": "x"}]}, {"env": [{"name": "a"}]}, False),
    ({"spec": "text"}, {"spec": {"a": 1}}, False),
    ({"items": {"a": 1}}, {"items": [1]}, False),
]


def test_containing() -> None:
    for actual, wanted, expected in CASES:
        assert contains(actual, wanted) is expected, (actual, wanted)
