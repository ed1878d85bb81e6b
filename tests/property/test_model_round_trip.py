"""What holds for every job and for everything that claims to be one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.drawn_jobs import SCALARS, jobs
from tests.support.examples import examples

from onyx.errors import ManifestError
from onyx.model import workflow
from onyx.model.job import Job
from onyx.model.parsing.job import job_hash, parse_manifest, parse_mapping, to_mapping


@given(jobs())
@settings(max_examples=examples(60), deadline=None)
def test_a_job_comes_back_from_its_mapping_and_from_its_text(job: Job) -> None:
    mapping = to_mapping(job)
    assert parse_mapping(mapping) == job
    assert parse_manifest(json.dumps(mapping)) == job
    assert parse_manifest(json.dumps(mapping, ensure_ascii=False, indent="\t")) == job
    assert job_hash(parse_mapping(mapping)) == job_hash(job)


@given(jobs(), st.randoms(use_true_random=False))
@settings(max_examples=examples(30), deadline=None)
def test_the_hash_does_not_depend_on_the_order_of_keys(job: Job, random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = list(value.items())
            random.shuffle(items)
            return {key: shuffled(each) for key, each in items}
        return [shuffled(each) for each in value] if isinstance(value, list) else value

    assert job_hash(parse_mapping(shuffled(to_mapping(job)))) == job_hash(job)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values within `value`."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    return [path, *(place for key in keys for place in places(value[key], (*path, key)))]


def outcome(parse: Callable[..., Job], *arguments: Any) -> Job | ManifestError:
    try:
        return parse(*arguments)
    except ManifestError as error:
        return error


JUNK = SCALARS | st.sampled_from([float("nan"), 2**70, b"x", "all", [], {}, [[]], [1, 2], "\ud800"])


@given(jobs(), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_a_damaged_job_is_either_refused_with_problems_or_still_a_job(
    job: Job, data: st.DataObject
) -> None:
    mapping = copy.deepcopy(to_mapping(job))
    for _ in range(data.draw(st.integers(1, 3))):
        *above, last = data.draw(st.sampled_from(places(mapping)[1:]))
        holder = mapping
        for key in above:
            holder = holder[key]
        holder[last] = data.draw(JUNK)
    result = outcome(parse_mapping, mapping)
    if isinstance(result, Job):
        assert parse_mapping(to_mapping(result)) == result
    else:
        assert result.problems
        assert all(problem.path and problem.message for problem in result.problems)


@given(st.text() | st.binary())
@settings(max_examples=examples(200), deadline=None)
def test_any_text_is_refused_by_a_manifest_error(text: str | bytes) -> None:
    result = outcome(parse_manifest, text)
    assert isinstance(result, ManifestError)
    assert result.problems


EDGES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=16).map(
    lambda pairs: tuple((f"t{a}", f"t{b}") for a, b in pairs)
)


@given(EDGES)
def test_a_graph_has_a_cycle_or_an_order_that_respects_every_edge(
    edges: tuple[tuple[str, str], ...],
) -> None:
    cycle = workflow.find_cycle(edges)
    if cycle:
        assert cycle[0] == cycle[-1]
        assert all(edge in edges for edge in pairwise(cycle))
    else:
        order = workflow.topological_order(edges)
        assert sorted(order) == list(workflow.tasks(edges))
        assert all(order.index(parent) < order.index(child) for parent, child in edges)
