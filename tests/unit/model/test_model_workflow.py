"""The graph of a workflow."""

from __future__ import annotations

import pytest

from onyx.model import workflow
from onyx.model.job import Job

DIAMOND = (("a", "c"), ("a", "b"), ("b", "d"), ("c", "d"), ("x", "d"))


def test_children_and_parents_are_sorted_and_complete() -> None:
    assert workflow.children(DIAMOND) == {
        "a": ("b", "c"), "b": ("d",), "c": ("d",), "d": (), "x": ("d",),
    }  # fmt: skip
    assert workflow.parents(DIAMOND)["d"] == ("b", "c", "x")


def test_roots_and_leaves() -> None:
    assert workflow.roots(DIAMOND) == ("a", "x")
    assert workflow.leaves(DIAMOND) == ("d",)


def test_a_topological_order_is_the_same_for_any_order_of_edges() -> None:
    order = ("a", "x", "b", "c", "d")
    assert workflow.topological_order(DIAMOND) == order
    assert workflow.topological_order(DIAMOND[::-1]) == order


def test_a_cycle_is_found_and_shown() -> None:
    edges = (("in", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "out"))
    assert workflow.find_cycle(edges) == ("a", "b", "c", "a")
    with pytest.raises(ValueError, match="a -> b -> c -> a"):
        workflow.topological_order(edges)
    assert workflow.find_cycle(DIAMOND) == ()


def test_a_cycle_in_a_graph_deeper_than_pythons_recursion_is_found() -> None:
    chain = [(f"t{i}", f"t{i + 1}") for i in range(3_000)]
    assert workflow.find_cycle(chain) == ()
    assert len(workflow.find_cycle([*chain, ("t3000", "t0")])) == 3_002


def test_the_depth_counts_edges_on_the_longest_path() -> None:
    assert workflow.depth(DIAMOND) == 2
    assert workflow.depth((("a", "b"),)) == 1


def test_the_number_of_an_edge_depends_on_its_ends_alone() -> None:
    job, larger = Job("j", DIAMOND, ()), Job("k", (("0", "a"), *DIAMOND), ())
    numbers = [workflow.edge_number(job, *edge) for edge in DIAMOND]
    assert numbers == [workflow.edge_number(larger, *edge) for edge in DIAMOND]
    assert len(set(numbers)) == len(DIAMOND)
    with pytest.raises(ValueError, match="not in"):
        workflow.edge_number(job, "a", "x")


def test_edges_of_a_mapping_from_tasks_to_children() -> None:
    assert workflow.edges_of({"b": ["c"], "a": {"b"}}) == (("a", "b"), ("b", "c"))
