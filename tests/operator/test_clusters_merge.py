"""A pod template is merged as `kubectl patch` does it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx_operator.clusters.trees import merged

PLAIN = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "env", "x", "y"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("base", "patch", "expected"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 1}, {"a": None}, {"b": 1}),
        ({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"args": [1, 2]}, {"args": [3]}, {"args": [3]}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "B", "value": "3"}, {"name": "C"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C"}]},
        ),
        (
            {"containers": [{"name": "worker", "resources": {"limits": {"cpu": 1}}}]},
            {"containers": [{"name": "worker", "resources": {"limits": {"memory": "1Gi"}}}]},
            {"containers": [
                {"name": "worker", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}},
            ]},
        ),
        (
            {"containers": [{"name": "worker", "livenessProbe": {"httpGet": {}}}]},
            {"containers": [{"name": "worker", "livenessProbe": None}]},
            {"containers": [{"name": "worker"}]},
        ),
        (
            {"ports": [{"containerPort": 1, "name": "a"}]},
            {"ports": [{"containerPort": 2}]},
            {"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2}]},
        ),
        ({"env": [{"name": "A"}]}, {"env": "nonsense"}, {"env": "nonsense"}),
        ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({}, {"env": [{"name": "A", "value": None}]}, {"env": [{"name": "A"}]}),
    ],
)  # fmt: skip
def test_merging(base: Any, patch: Any, expected: Any) -> None:
    assert merged(base, patch) == expected


@given(PLAIN, PLAIN)
def test_merging_changes_neither_side(base: Any, patch: Any) -> None:
    base_before, patch_before = copy.deepcopy(base), copy.deepcopy(patch)
    merged(base, patch)

    assert (base, patch) == (base_before, patch_before)


@given(st.dictionaries(st.text(max_size=2), PLAIN, max_size=3), PLAIN)
def test_merging_the_same_again_changes_nothing(base: dict[str, Any], patch: Any) -> None:
    once = merged(base, patch)

    assert merged(once, patch) == once
