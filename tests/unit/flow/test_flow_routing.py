import numpy as np
import pytest

from onyx.flow.conditions import compile_conditions
from onyx.flow.leaves import apply_function
from onyx.flow.routing import route_batch
from onyx.model.job import FlowCondition, Job

CHILDREN = ("b", "c", "errors")
JOB = (("in", "a"), *(("a", child) for child in CHILDREN))


def odd_raises(event, old, new, all_new):
    if new["n"] % 2:
        raise KeyError(new["n"])
    return True


def stop_on_two(event, old, new, all_new):
    return next(iter(())) if new["n"] == 2 else True


FUNCTIONS = {
    "m:even": lambda event, old, new, all_new: new["n"] % 2 == 0,
    "m:yes": lambda *_: True,
    "m:no": lambda *_: False,
    "m:over": lambda event, old, new, all_new, limit: new["n"] > limit,
    "m:first_of_all": lambda event, old, new, all_new: new is all_new[0],
    "m:has_siblings": lambda event, old, new, all_new: len(all_new) > 1,
    "m:odd_raises": odd_raises,
    "m:stop_on_two": stop_on_two,
    "m:explain": lambda event, old, error: {"error": repr(error), "old": old},
}


def route(segments, fn, *conditions):
    job = Job("j", JOB, (), flow_conditions=conditions)
    compiled = compile_conditions(job, "a", FUNCTIONS.__getitem__)
    return route_batch(compiled, CHILDREN, {}, segments, apply_function(fn, (), segments))


def same(segment):
    return segment


def numbered(count):
    return [{"n": n} for n in range(count)]


def sent(routed):
    return {child: [s.get("n", "?") for s in out.segments] for child, out in routed.to.items()}


def parents(routed, child):
    column = routed.to[child].parents
    return None if column is None else column.tolist()


def test_without_conditions_every_child_gets_everything():
    batch = numbered(3)
    routed = route(batch, same)
    assert sent(routed) == {"b": [0, 1, 2], "c": [0, 1, 2], "errors": [0, 1, 2]}
    assert parents(routed, "c") is None
    assert all(out.segments[0] is batch[0] for out in routed.to.values())


def test_without_conditions_a_failing_function_is_a_failure():
    routed = route(numbered(2), lambda s: 1 // s["n"] and s)
    assert sent(routed) == {"b": [1], "c": [1], "errors": [1]}
    assert [(i, type(e)) for i, e in routed.failures] == [(0, ZeroDivisionError)]


def test_each_child_gets_what_its_condition_holds_for():
    routed = route(
        numbered(5),
        same,
        FlowCondition("a", ("b",), "m:even"),
        FlowCondition("a", ("c",), ("m:over", "limit"), options={"limit": 2}),
    )
    assert sent(routed) == {"b": [0, 2, 4], "c": [3, 4], "errors": []}
    assert parents(routed, "b") == [0, 2, 4]


def test_a_condition_that_always_holds_costs_no_columns():
    routed = route(numbered(3), same, FlowCondition("a", ("b",), "m:yes"))
    assert parents(routed, "b") is None
    assert len(routed.to["c"]) == 0
    assert parents(routed, "c") == []


def test_a_short_circuit_ends_it_for_those_it_holds_for():
    routed = route(
        numbered(4),
        same,
        FlowCondition("a", ("b",), "m:even", short_circuit=True),
        FlowCondition("a", ("c",), "m:yes"),
    )
    assert sent(routed) == {"b": [0, 2], "c": [1, 3], "errors": []}


def test_columns_of_a_fan_out_speak_of_the_batch():
    routed = route(
        numbered(3),
        lambda s: [{"n": s["n"] * 10 + i} for i in range(3)],
        FlowCondition("a", ("b",), "m:even"),
        FlowCondition("a", ("c",), "m:first_of_all"),
        FlowCondition("a", ("errors",), "m:has_siblings"),
    )
    assert sent(routed)["b"] == [0, 2, 10, 12, 20, 22]
    assert parents(routed, "b") == [0, 0, 1, 1, 2, 2]
    assert routed.to["b"].child_index.tolist() == [0, 2, 0, 2, 0, 2]
    assert sent(routed)["c"] == [0, 10, 20]
    assert len(sent(routed)["errors"]) == 9


def test_excluded_keys_are_gone_for_the_children_of_the_condition_and_for_nobody_else():
    batch = [{"n": 2, "x": 1, "y": 2}, {"n": 3, "x": 1}]
    routed = route(
        batch,
        same,
        FlowCondition("a", ("b",), "m:even", exclude_keys=("x", "n")),
        FlowCondition("a", ("c",), "m:even", exclude_keys=("missing",)),
        FlowCondition("a", ("errors",), "m:yes"),
    )
    assert routed.to["b"].segments == [{"y": 2}]
    assert routed.to["c"].segments == [{"n": 2, "x": 1, "y": 2}]
    assert routed.to["errors"].segments == batch
    assert batch == [{"n": 2, "x": 1, "y": 2}, {"n": 3, "x": 1}]


def test_a_retry_sends_nothing_and_names_the_parent_once():
    routed = route(
        numbered(4),
        lambda s: [s, s],
        FlowCondition("a", "none", "m:even", short_circuit=True, action="retry"),
        FlowCondition("a", ("b",), "m:yes"),
    )
    assert routed.retries == [0, 2]
    assert sent(routed)["b"] == [1, 1, 3, 3]


ON_ERROR = FlowCondition(
    "a", ("errors",), "m:yes", short_circuit=True, thrown_exception=True, post_transform="m:explain"
)


def test_exceptions_become_segments_in_their_parents_place():
    routed = route(numbered(3), lambda s: 1 // (s["n"] - 1) and s, ON_ERROR)
    assert sent(routed)["b"] == [0, 2]
    [error] = routed.to["errors"].segments
    assert error["old"] == {"n": 1}
    assert parents(routed, "errors") == [1]
    assert routed.failures == []


def test_exceptions_and_leaves_for_the_same_child_are_in_order_of_parents():
    routed = route(
        numbered(4),
        lambda s: [s, s][: 1 + 4 // s["n"]],
        ON_ERROR,
        FlowCondition("a", "all", "m:even"),
    )
    assert parents(routed, "errors") == [0, 2, 2]
    assert routed.to["errors"].child_index.tolist() == [0, 0, 1]
    assert parents(routed, "b") == [2, 2]


def test_an_exception_that_no_condition_wants_is_not_swallowed():
    only = FlowCondition("a", ("errors",), "m:no", short_circuit=True, thrown_exception=True)
    routed = route(numbered(2), lambda s: 1 // s["n"] and s, only)
    assert [(i, type(e)) for i, e in routed.failures] == [(0, ZeroDivisionError)]


def test_an_exception_can_be_retried():
    retry = FlowCondition(
        "a", "none", "m:yes", short_circuit=True, thrown_exception=True, action="retry"
    )
    routed = route(numbered(2), lambda s: 1 // s["n"] and s, retry)
    assert (routed.retries, routed.failures) == ([0], [])


def test_a_predicate_that_raises_fails_its_segment_only():
    routed = route(
        numbered(4),
        same,
        FlowCondition("a", ("b",), "m:yes"),
        FlowCondition("a", ("c",), "m:odd_raises"),
    )
    assert [(i, str(e)) for i, e in routed.failures] == [(1, "1"), (3, "3")]
    assert sent(routed) == {"b": [0, 2], "c": [0, 2], "errors": []}


def test_a_predicate_that_lets_stop_iteration_out_loses_nothing():
    routed = route(numbered(4), same, FlowCondition("a", ("b",), "m:stop_on_two"))
    assert sent(routed)["b"] == [0, 1, 3]
    assert [(i, type(e)) for i, e in routed.failures] == [(2, StopIteration)]


def test_predicate_errors_go_where_they_are_wanted_instead_of_the_segment():
    routed = route(
        numbered(2),
        same,
        FlowCondition("a", ("b",), "m:yes"),
        FlowCondition(
            "a",
            ("c",),
            "m:odd_raises",
            predicate_errors_to=("errors",),
            post_transform="m:explain",
            exclude_keys=("old",),
        ),
    )
    assert routed.to["errors"].segments == [{"error": "KeyError(1)"}]
    assert routed.to["b"].segments == [
        {"n": 0},
        {"error": "KeyError(1)", "old": {"old": {"n": 1}, "new": {"n": 1}}},
    ]
    assert routed.failures == []


@pytest.mark.parametrize("conditions", [(), (FlowCondition("a", "all", "m:yes"),), (ON_ERROR,)])
def test_an_empty_batch_sends_nothing(conditions):
    routed = route([], same, *conditions)
    assert all(len(out) == 0 for out in routed.to.values())


def test_a_batch_of_failures_only_sends_nothing_else():
    routed = route(numbered(2), lambda s: 1 // 0, FlowCondition("a", ("b",), "m:yes"))
    assert [index for index, _ in routed.failures] == [0, 1]
    assert isinstance(routed.to["b"].parents, np.ndarray)
    assert len(routed.to["b"]) == 0


def test_an_error_segment_loses_the_keys_excluded_for_the_child_that_gets_it():
    routed = route(
        numbered(4),
        same,
        FlowCondition(
            "a", ("b",), ("m:over", "limit"), options={"limit": 1}, exclude_keys=("old",)
        ),
        FlowCondition(
            "a", ("c",), "m:odd_raises", predicate_errors_to=("errors",), post_transform="m:explain"
        ),
    )
    assert [sorted(segment) for segment in routed.to["errors"].segments] == [["error", "old"]] * 2
    assert [sorted(segment) for segment in routed.to["b"].segments] == [["n"], ["error"]]


@pytest.mark.parametrize(
    ("conditions", "shared"),
    [
        ((FlowCondition("a", ("b",), "m:even"),), False),
        (
            (
                FlowCondition("a", ("b",), "m:even", short_circuit=True),
                FlowCondition("a", ("c",), "m:yes"),
            ),
            False,
        ),
        ((FlowCondition("a", ("b",), "m:even"), FlowCondition("a", ("c",), "m:yes")), True),
        ((FlowCondition("a", ("b", "c"), "m:even"),), True),
        ((FlowCondition("a", ("b", "c"), "m:no"),), False),
    ],
    ids=["one child", "either child", "both by two", "both by one", "nobody"],
)
def test_it_is_known_whether_a_segment_goes_to_several_children(conditions, shared):
    routed = route(numbered(4), same, *conditions)
    assert routed.shared == shared
    segments = [id(segment) for outgoing in routed.to.values() for segment in outgoing.segments]
    assert (len(set(segments)) < len(segments)) == shared


@pytest.mark.parametrize(
    ("conditions", "unmatched"),
    [
        ([], []),
        ([FlowCondition("a", ("b",), (">", "amuont", 1))], [0, 1, 2, 3]),
        ([FlowCondition("a", ("b",), ("<", "n", 2))], [2, 3]),
        (
            [
                FlowCondition("a", ("b",), ("<", "n", 1)),
                FlowCondition("a", "none", (">", "n", 2), short_circuit=True),
            ],
            [1, 2],
        ),
        ([FlowCondition("a", ("b",), "m:odd_raises", predicate_errors_to=("errors",))], []),
    ],
)
def test_leaves_for_which_no_condition_holds_are_named(conditions, unmatched):
    assert route(numbered(4), same, *conditions).unmatched.tolist() == unmatched


def test_a_segment_that_failed_is_not_also_unmatched():
    def odd_fails(segment):
        if segment["n"] % 2:
            raise ValueError("odd")
        return segment

    routed = route(numbered(4), odd_fails, FlowCondition("a", ("b",), ("==", "n", 0)))

    assert [index for index, _ in routed.failures] == [1, 3]
    assert routed.unmatched.tolist() == [1]  # the second leaf, of segment 2
