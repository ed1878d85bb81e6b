"""Routing a batch says the same as routing its segments one by one; applying loses nothing."""

from hypothesis import given
from hypothesis import strategies as st

from onyx.flow.apply import apply_function
from onyx.flow.conditions import Route, compile_conditions, sendable
from onyx.flow.routing import route_batch
from onyx.model.job import FlowCondition, Job

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
    "m:post": lambda event, old, error: {"error": str(error), "x": 1, "n": 0},
}

targets = st.one_of(
    st.sampled_from(["all", "none"]),
    st.lists(st.sampled_from(CHILDREN), unique=True, min_size=1).map(tuple),
)
names = st.sampled_from(["m:yes", "m:even", "m:old", "m:many", "m:throws"])
conditions = st.builds(
    FlowCondition,
    from_task=st.sampled_from(["a", "all"]),
    to=targets,
    predicate=st.one_of(names, st.tuples(st.sampled_from(["and", "or"]), names, names)),
    predicate_errors_to=st.one_of(st.none(), targets),
    exclude_keys=st.sampled_from([(), ("x",), ("x", "n")]),
    short_circuit=st.booleans(),
    thrown_exception=st.booleans(),
    post_transform=st.sampled_from([None, "m:post"]),
    action=st.sampled_from([None, None, "retry"]),
)
results = st.lists(st.one_of(st.integers(0, 3), st.just("raise")), max_size=8)


def function_for(plan):
    def fn(segment):
        made = plan[segment["i"]]
        if made == "raise":
            raise RuntimeError("planned")
        leaves = [{"n": segment["n"] + k, "x": k} for k in range(made)]
        return leaves[0] if made == 1 else leaves

    return fn


@given(st.lists(conditions, max_size=4), results)
def test_a_batch_is_routed_as_its_segments_are(entries, plan):
    job = Job("j", WORKFLOW, (), flow_conditions=tuple(entries))
    compiled = compile_conditions(job, "a", FUNCTIONS.__getitem__)
    batch = [{"n": n, "i": n} for n in range(len(plan))]
    leaves = apply_function(function_for(plan), (), batch)
    routed = route_batch(compiled, CHILDREN, {}, batch, leaves)
    got = {
        child: list(zip(_parents(out, len(batch)), out.segments, strict=True))
        for child, out in routed.to.items()
    }
    sent, retries, failures = one_by_one(compiled, batch, plan)
    assert got == sent
    assert routed.retries == sorted(retries)
    assert [(index, str(error)) for index, error in routed.failures] == failures


def _parents(outgoing, count):
    if outgoing.parents is None:
        assert len(outgoing) == count
        return range(count)
    return outgoing.parents.tolist()


def one_by_one(compiled, batch, plan):
    sent = {child: [] for child in CHILDREN}
    retries, failures = set(), []
    for parent, old in enumerate(batch):
        try:
            made = function_for(plan)(old)
            news = made if isinstance(made, list) else [made]
        except RuntimeError as error:
            news = [error]
        for new in news:
            thrown = isinstance(new, Exception)
            if compiled is None:
                route = Route() if thrown else Route(frozenset(CHILDREN))
            else:
                route = compiled.route({}, old, new, news)
            if route.retry:
                retries.add(parent)
                continue
            try:
                if thrown and not route.flow:
                    raise route.predicate_error or new
                segment = sendable(route, {}, old, new)
            except Exception as error:
                failures.append((parent, str(error)))
                continue
            for child in route.flow:
                sent[child].append((parent, segment))
    return sent, retries, failures


@given(results)
def test_applying_keeps_every_leaf_with_its_parent_and_index(plan):
    batch = [{"n": n, "i": n} for n in range(len(plan))]
    leaves = apply_function(function_for(plan), (), batch)
    parents = range(len(batch)) if leaves.parents is None else leaves.parents.tolist()
    index = [0] * len(leaves) if leaves.child_index is None else leaves.child_index.tolist()
    got = list(zip(parents, index, leaves.segments, strict=True))
    assert got == [
        (parent, k, {"n": parent + k, "x": k})
        for parent, made in enumerate(plan)
        if made != "raise"
        for k in range(made)
    ]
    assert [i for i, _ in leaves.failures] == [i for i, m in enumerate(plan) if m == "raise"]
