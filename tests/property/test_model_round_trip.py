"""What holds for every job and for everything that claims to be one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from onyx.errors import ManifestError
from onyx.model import names, workflow
from onyx.model.job import EMPTY, CatalogEntry, FlowCondition, Job, Lifecycle, Trigger, Window
from onyx.model.parsing.job import job_hash, parse_manifest, parse_mapping, to_mapping

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
OPTIONS = st.dictionaries(TEXT, st.recursive(SCALARS, st.lists, max_leaves=4), max_size=3)
FUNCTIONS = st.sampled_from(["app:f", "app.tasks:work", "a_b.c1:d_2"])
MAYBE_FUNCTION = st.none() | FUNCTIONS
PREDICATES = st.recursive(
    FUNCTIONS | st.tuples(FUNCTIONS, st.just("limit")),
    lambda inner: (
        st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner)
    ),
    max_leaves=5,
)


WATERMARKS = st.fixed_dictionaries(
    {"watermark_key": TEXT.filter(bool)},
    optional={
        "allowed_disorder": st.tuples(st.integers(0, 9), st.just("seconds")),
        "idle_timeout": st.integers(1, 9),
    },
)


@st.composite
def catalogs(draw: st.DrawFn, tracked: bool, windowed: bool) -> tuple[CatalogEntry, ...]:
    count = draw(st.integers(0, 3))
    names_ = ["in", *(f"work-{number}" for number in range(count)), "out"]
    entries = []
    for name in names_:
        kind = "input" if name == "in" else "output" if name == "out" else "function"
        has_windows = windowed and len(entries) == 1
        low = None if has_windows else draw(st.none() | st.integers(1, 5))
        entry = CatalogEntry(
            name,
            kind,
            draw(st.none() | st.integers(1, 100_000)),
            plugin=None if kind == "function" else "my.plugins:make",
            fn=draw(FUNCTIONS) if kind == "function" else draw(MAYBE_FUNCTION),
            options=draw(OPTIONS) or EMPTY,
            batch_timeout=draw(st.integers(0, 1_000)),
            batch_fn=draw(st.booleans()),
            cooperative=draw(st.none() | st.booleans()),
            min_peers=low,
            max_peers=draw(st.none() | st.integers(low or 1, 9)),
            required_tags=tuple(draw(st.lists(st.sampled_from(["gpu", "ssd"]), max_size=2))),
            max_pending=draw(st.integers(1, 99)) if kind == "input" and tracked else None,
            deduplicate=not has_windows,
            doc=draw(TEXT),
            **(draw(WATERMARKS) if kind == "input" else {}),
        )
        entries.append(entry)
    return tuple(entries)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    guarantee = draw(st.sampled_from(["at-most-once", "at-least-once", "exactly-once"]))
    windowed = draw(st.booleans())
    catalog = draw(catalogs(guarantee != "at-most-once", windowed))
    tasks = [entry.name for entry in catalog]
    edges = tuple(pairwise(tasks))
    conditions = tuple(
        FlowCondition(parent, (child,), draw(PREDICATES), options={"limit": 1})
        for parent, child in edges
        if draw(st.booleans())
    )
    windows = ()
    if windowed:
        late = dict(zip(("late_to",), tasks[2:3], strict=False))
        windows = (
            Window("w", tasks[1], "global", "app:sums", init=draw(SCALARS)),
            Window("v", tasks[1], "fixed", "count", window_key="at", range=(1, "hours"),
                   allowed_lateness=(draw(st.integers(0, 9)), "minutes"), **late),
        )  # fmt: skip
    triggers = tuple(
        Trigger("w", "timer", period=(draw(st.integers(1, 99)), "seconds"), refinement="app:r",
                sync="app:s", id=f"t{number}")
        for number in range(draw(st.integers(0, 2)) if windows else 0)
    )  # fmt: skip
    return Job(
        draw(st.from_regex(names.JOB_NAME, fullmatch=True)),
        edges,
        catalog,
        guarantee=guarantee,
        flow_conditions=conditions,
        lifecycles=tuple(Lifecycle(task, "app:calls") for task in draw(st.sets(st.just("all")))),
        windows=windows,
        triggers=triggers,
        percentage=draw(st.none() | st.integers(0, 100)),
        metadata=draw(OPTIONS) or EMPTY,
    )


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
