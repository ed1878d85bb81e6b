"""Routing a batch says the same as routing its segments one by one, and routing columns the same as
routing dicts; applying loses nothing."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import onyx
from onyx.flow import routing
from onyx.flow.batch import as_dicts
from onyx.flow.columns.record_batch import Columns, from_dicts
from onyx.flow.conditions import compile_conditions, everything_to, sendable
from onyx.flow.leaves import Leaves, apply_function
from onyx.flow.routed import FailureHandling
from onyx.flow.routing import route_batch
from onyx.flow.segment import RetriesExhausted
from onyx.functions.retry import failed
from onyx.model.job import CatalogEntry, FlowCondition, Job

CHILDREN = ("b", "c", "d")
WORKFLOW = (("in", "a"), *(("a", child) for child in CHILDREN))


def throws_if_3(event, old, new, all_new):
    if not isinstance(new, Exception) and new["n"] % 4 == 3:
        raise ValueError("3")
    return True


FUNCTIONS = {
    "m:yes": lambda *_: True,
    "m:even": lambda event, old, new, all_new: not isinstance(new, Exception) and not new["n"] % 2,
    "m:old": lambda event, old, new, all_new: old["n"] > 2,
    "m:many": lambda event, old, new, all_new: len(all_new) > 1,
    "m:throws": throws_if_3,
    "m:column": lambda event, rows: pc.less(pc.if_else(rows["x"].is_null(), 0, rows["n"]), 3),
    "m:post": lambda event, old, error: {"error": str(error), "x": 1, "n": 0},
}

targets = st.one_of(
    st.sampled_from(["all", "none"]),
    st.lists(st.sampled_from(CHILDREN), unique=True, min_size=1).map(tuple),
)
names = st.sampled_from(["m:yes", "m:even", "m:old", "m:many", "m:throws"])
keys = st.sampled_from(["n", "x", "k", "nowhere"])
values = st.sampled_from([0, 1, 2.5, 4, -1, "b", "2013-01-01"])
comparisons = st.one_of(
    st.tuples(st.sampled_from([">", ">=", "<", "<=", "==", "!="]), keys, values),
    st.tuples(st.just("in"), keys, st.lists(values, min_size=1, max_size=3).map(tuple)),
    st.tuples(st.just("is-null"), keys),
)


def combinations(parts):
    combined = st.one_of(
        parts,
        st.tuples(st.sampled_from(["and", "or"]), parts, parts),
        st.tuples(st.just("not"), parts),
    )
    return st.one_of(combined, st.tuples(st.sampled_from(["and", "or"]), combined, combined))


predicates = st.one_of(
    st.tuples(st.just("dicts"), combinations(st.one_of(names, comparisons))),
    st.tuples(st.just("arrow"), combinations(st.one_of(st.just("m:column"), comparisons))),
)


def condition(predicate, thrown_exception, **keys):
    """Functions over columns are not for exceptions."""
    batch_format, predicate = predicate
    thrown_exception = thrown_exception and batch_format == "dicts"
    return FlowCondition(
        predicate=predicate, batch_format=batch_format, thrown_exception=thrown_exception, **keys
    )


conditions = st.builds(
    condition,
    from_task=st.sampled_from(["a", "all"]),
    to=targets,
    predicate=predicates,
    predicate_errors_to=st.one_of(st.none(), targets),
    exclude_keys=st.sampled_from([(), ("x",), ("x", "n"), ("k", "nowhere")]),
    short_circuit=st.booleans(),
    thrown_exception=st.booleans(),
    post_transform=st.sampled_from([None, "m:post"]),
    action=st.sampled_from([None, None, "retry"]),
)
ASKS = {"fail": lambda: onyx.FAIL, "retry": lambda: onyx.Retry("planned", max_retries=2)}
"""What a function asks a retry with, by what is planned."""
results = st.lists(st.one_of(st.integers(0, 3), st.sampled_from(["raise", *ASKS])), max_size=8)


def leaf(n, k):
    return {"n": n + k, "x": k if n % 3 else None, "k": "abc"[k]}


def function_for(plan):
    def fn(segment):
        made = plan[segment["i"]]
        if made == "raise":
            raise RuntimeError("planned")
        if made == "retry":
            raise ASKS[made]()
        if made == "fail":
            return ASKS[made]()
        leaves = [leaf(segment["n"], k) for k in range(made)]
        return leaves[0] if made == 1 else leaves

    return fn


def refuses_2(child):
    """A check of what is to be sent to a child."""

    def refused(to):
        found = {}
        for parent, segment in _sent_to(to[child]) if child in to else ():
            if segment.get("n") == 2:
                found.setdefault(parent, ValueError("2 is refused"))
        return sorted(found.items(), key=lambda each: each[0])

    return refused


def shown(letters):
    return [(parent, f"{error!r}") for parent, error in letters]


def letter(parent, error):
    return {"letter": parent, "why": str(error)}


@given(
    st.lists(conditions, max_size=4),
    results,
    st.sets(st.integers(0, 7)),
    st.sampled_from([None, "d"]),
    st.sampled_from([None, "b"]),
    st.booleans(),
)
def test_a_batch_is_routed_as_its_segments_are(entries, plan, exhausted, dead, refusing, together):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "TOGETHER_MIN", 0 if together else 1_000)
        check_routing(entries, plan, exhausted, dead, refusing)


def check_routing(entries, plan, exhausted, dead, refusing):
    catalog = (CatalogEntry("a", "function", 1, dead_letter=dead),)
    job = Job("j", WORKFLOW, catalog, flow_conditions=tuple(entries))
    compiled = compile_conditions(job, "a", FUNCTIONS.__getitem__)
    batch = [{"n": n, "i": n} for n in range(len(plan))]
    leaves = apply_function(function_for(plan), (), batch)
    refused = refuses_2(refusing) if refusing else FailureHandling().refused
    handling = FailureHandling(dead, letter, exhausted.__contains__, refused)
    routed = route_batch(compiled, CHILDREN, {}, batch, leaves, handling)
    sent = {child: [] for child in CHILDREN}
    retries, failures, withdrawn = [], [], []
    for parent, old in enumerate(batch):
        verdict = one_by_one(compiled, old, plan, parent in exhausted, dead, refusing)
        if verdict.retry:
            retries.append(parent)
        if verdict.failure is not None:
            failures.append((parent, str(verdict.failure)))
        if verdict.withdrawn:
            withdrawn.append(parent)
        for child, segments in verdict.sent.items():
            sent[child] += [(parent, segment) for segment in segments]
    assert [(index, str(error)) for index, error in routed.failures] == failures
    assert routed.retries == retries
    assert routed.withdrawn == withdrawn
    if not failures:
        assert {child: _sent_to(out) for child, out in routed.to.items()} == sent
        assert len(routed.letters) == sum("letter" in each for _, each in sent["d"])


def _sent_to(outgoing):
    count = len(outgoing)
    parents = range(count) if outgoing.parents is None else outgoing.parents.tolist()
    return list(zip(parents, as_dicts(outgoing.segments), strict=True))


@given(
    st.lists(conditions, max_size=4),
    results,
    st.sets(st.integers(0, 7)),
    st.sampled_from([None, "d"]),
    st.sampled_from([None, "b"]),
    st.booleans(),
)
def test_columns_are_routed_as_the_same_segments_as_dicts(
    entries, plan, exhausted, dead, refusing, batch_of_columns
):
    catalog = (CatalogEntry("a", "function", 1, dead_letter=dead),)
    job = Job("j", WORKFLOW, catalog, flow_conditions=tuple(entries))
    compiled = compile_conditions(job, "a", FUNCTIONS.__getitem__)
    batch = [{"n": n, "i": n} for n in range(len(plan))]
    leaves = apply_function(function_for(plan), (), batch)
    refused = refuses_2(refusing) if refusing else lambda to: []
    handling = FailureHandling(dead, letter, exhausted.__contains__, refused)
    as_rows = Leaves(columns(leaves.segments), leaves.parents, leaves.child_index, leaves.failures)
    rows = columns(batch) if batch_of_columns else batch
    wanted = route_batch(compiled, CHILDREN, {}, batch, leaves, handling)
    routed = route_batch(compiled, CHILDREN, {}, rows, as_rows, handling)
    assert [*map(str, routed.failures)] == [*map(str, wanted.failures)]
    assert (routed.retries, routed.retries_max) == (wanted.retries, wanted.retries_max)
    assert routed.withdrawn == wanted.withdrawn
    assert shown(routed.letters) == shown(wanted.letters)
    for child in CHILDREN:
        assert _arriving(routed, child) == _arriving(wanted, child)
        if (
            plan
            and {"raise", *ASKS}.isdisjoint(plan)
            and not wanted.failures
            and not wanted.withdrawn
        ):
            assert isinstance(routed.to[child].segments, Columns) or not len(routed.to[child])


@given(
    st.lists(st.tuples(conditions, st.booleans()), max_size=4),
    results,
    st.sets(st.integers(0, 7)),
    st.sampled_from([None, "d"]),
    st.sampled_from([None, "b"]),
    st.booleans(),
)
def test_what_is_not_accounted_for_goes_where_it_would_otherwise(
    entries, plan, exhausted, dead, refusing, as_columns
):
    """And it is all that no other condition sends to the same child."""
    entries = [(each, True if each.thrown_exception else flag) for each, flag in entries]

    def run(*chosen):
        catalog = (CatalogEntry("a", "function", 1, dead_letter=dead),)
        job = Job("j", WORKFLOW, catalog, flow_conditions=chosen)
        compiled = compile_conditions(job, "a", FUNCTIONS.__getitem__)
        leaves = apply_function(function_for(plan), (), batch)
        if as_columns:
            leaves.segments = columns(leaves.segments)
        refused = refuses_2(refusing) if refusing else lambda to: []
        handling = FailureHandling(dead, letter, exhausted.__contains__, refused)
        return route_batch(compiled, CHILDREN, {}, batch, leaves, handling)

    batch = [{"n": n, "i": n} for n in range(len(plan))]
    wanted = run(*(each for each, _ in entries))
    routed = run(*(replace(each, anchored=flag) for each, flag in entries))
    assert [*map(str, routed.failures)] == [*map(str, wanted.failures)]
    assert (routed.retries, routed.withdrawn) == (wanted.retries, wanted.withdrawn)
    for child in CHILDREN:
        loose = _arriving_of(routed.loose_of(child))
        assert _arriving(routed, child) + loose == _arriving(wanted, child)
    if not wanted.withdrawn:
        anchored = run(*(each if flag else replace(each, to="none") for each, flag in entries))
        for child in CHILDREN:
            if not any(each.exclude_keys for each, _ in entries):
                assert _arriving(routed, child) == _arriving(anchored, child)


def columns(segments):
    """Of these keys even where there is no segment, as a task has them that has a schema."""
    if segments:
        return from_dicts(segments)[0]
    types = {"n": pa.int64(), "x": pa.int64(), "k": pa.string()}
    return Columns(pa.RecordBatch.from_pylist([], schema=pa.schema(types)))


def _arriving(routed, child):
    """Segments with their lineage; a null is a key that is not there."""
    return _arriving_of(routed.shares_of(child))


def _arriving_of(shares):
    arriving = Counter()
    for share in shares:
        count = len(share)
        parents = range(count) if share.parents is None else share.parents.tolist()
        assert list(parents) == sorted(parents)
        indices = [0] * count if share.child_index is None else share.child_index.tolist()
        for parent, index, segment in zip(parents, indices, as_dicts(share.segments), strict=True):
            there = {key: value for key, value in segment.items() if value is not None}
            arriving[parent, index, repr(sorted(there.items()))] += 1
    return arriving


class Verdict:
    """On one segment, as the documentation says it."""

    def __init__(self):
        self.sent = {}
        self.retry = self.withdrawn = False
        self.failure = None


def one_by_one(compiled, old, plan, exhausted, dead, refusing):
    verdict = Verdict()
    compiled = compiled or everything_to(CHILDREN)
    errors, unhandled = [], []
    try:
        made = function_for(plan)(old)
        if made is onyx.FAIL:
            raise failed()
        news = made if isinstance(made, list) else [made]
    except onyx.Retry as error:
        news = []
        errors.append(error)
        verdict.retry = not exhausted
    except RuntimeError as error:
        news = []
        errors.append(error)
    for new in news:
        route = compiled.route({}, old, new, news, exhausted)
        if route.retry:
            verdict.retry = True
        elif isinstance(route.error, RetriesExhausted):
            errors.append(route.error)
        else:
            try:
                _send(verdict, route, sendable(route, {}, old, new))
            except Exception as error:
                unhandled.append(error)
    if verdict.retry:
        verdict.sent, verdict.withdrawn = {}, True
        return verdict
    if not errors and not unhandled:
        error = _refusal(verdict, refusing)
        if error is None:
            return verdict
        errors.append(error)
    verdict.withdrawn, verdict.sent = True, {}
    error = unhandled[0] if unhandled else errors[0]
    if not unhandled:
        route = compiled.route({}, old, error, [error], exhausted)
        if route.retry:
            verdict.retry = True
            return verdict
        try:
            if not route.flow:
                raise route.error or error
            _send(verdict, route, sendable(route, {}, old, error))
            error = _refusal(verdict, refusing)
            if error is None:
                return verdict
        except Exception as raised:
            error = raised
    verdict.sent = {}
    if dead is None:
        verdict.failure = error
    else:
        verdict.sent = {dead: [letter(old["i"], error)]}
    return verdict


def _send(verdict, route, segment):
    for child in route.flow:
        verdict.sent.setdefault(child, []).append(route.for_child(child, segment))


def _refusal(verdict, refusing):
    mine = verdict.sent.get(refusing, ())
    return ValueError("2 is refused") if any(each.get("n") == 2 for each in mine) else None


@given(results)
def test_applying_keeps_every_leaf_with_its_parent_and_index(plan):
    batch = [{"n": n, "i": n} for n in range(len(plan))]
    leaves = apply_function(function_for(plan), (), batch)
    parents = range(len(batch)) if leaves.parents is None else leaves.parents.tolist()
    index = [0] * len(leaves) if leaves.child_index is None else leaves.child_index.tolist()
    got = list(zip(parents, index, leaves.segments, strict=True))
    assert got == [
        (parent, k, leaf(parent, k))
        for parent, made in enumerate(plan)
        if isinstance(made, int)
        for k in range(made)
    ]
    failed_at = [i for i, made in enumerate(plan) if not isinstance(made, int)]
    assert [i for i, _ in leaves.failures] == failed_at
