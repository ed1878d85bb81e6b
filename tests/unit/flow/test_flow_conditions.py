import pytest

from onyx.errors import UserError, UserFunctionError
from onyx.flow.conditions import Route, compile_conditions, sendable
from onyx.flow.predicates import read, segment_test
from onyx.model.job import FlowCondition, Job, Window

WORKFLOW = (("in", "a"), ("a", "late"), ("a", "punctual"), ("a", "errors"))


def over(event, old, new, all_new, limit):
    return new["delay"] > limit


def odd_raises(event, old, new, all_new):
    if new["delay"] % 2:
        raise KeyError("odd")
    return True


FUNCTIONS = {
    "m:yes": lambda *_: True,
    "m:no": lambda *_: False,
    "m:over": over,
    "m:between": lambda event, old, new, all_new, low, high: low <= new["delay"] <= high,
    "m:odd_raises": odd_raises,
    "m:is_value_error": lambda event, old, error, all_new: isinstance(error, ValueError),
    "m:explain": lambda event, old, error: {"why": str(error), "old": old, "secret": 1},
    "m:list": lambda event, old, error: [old],
    "m:fail": lambda event, old, error: 1 / 0,
}


def compiled(*conditions, task="a", workflow=WORKFLOW, windows=()):
    job = Job("flights", workflow, (), flow_conditions=conditions, windows=windows)
    return compile_conditions(job, task, FUNCTIONS.__getitem__)


def predicate(expression, **options):
    test = segment_test(read(expression, options, FUNCTIONS.__getitem__, "here"))
    return lambda delay: bool(test({}, {}, {"delay": delay}, []))


def test_predicates_compose_with_parameters():
    test = predicate(
        ("and", ("m:over", "low"), ("not", ("or", ("m:over", "high"), "m:no"))), low=10, high=20
    )
    assert [test(10), test(11), test(20), test(21)] == [False, True, True, False]


def test_and_and_or_take_any_number_from_two():
    assert predicate(("and", "m:yes", "m:yes", ("m:over", "l")), l=1)(2)
    assert not predicate(("or", "m:no", "m:no", "m:no"))(2)


def test_a_predicate_may_take_several_parameters():
    test = predicate(("m:between", "low", "high"), low=1, high=3)
    assert [test(0), test(1), test(3), test(4)] == [False, True, True, False]


def test_and_and_or_stop_as_soon_as_they_know():
    assert not predicate(("and", "m:no", "m:odd_raises"))(1)
    assert predicate(("or", "m:yes", "m:odd_raises"))(1)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (("and", "m:yes"), "and takes two operands or more"),
        (("not",), "not takes one operand"),
        (("not", "m:yes", "m:no"), "not takes one operand"),
        ("and", "needs operands"),
        ((), "empty"),
        ((("m:yes",),), "starts with a function's name"),
        (("m:over", "limit"), "'limit' is not under options"),
        (("m:over", ("m:yes",)), "is not under options"),
    ],
)
def test_a_malformed_predicate_is_refused_when_it_is_compiled(expression, message):
    with pytest.raises(UserError, match=message):
        predicate(expression)


def test_errors_name_the_job_the_task_and_the_condition():
    with pytest.raises(UserError, match=r"'flights', flowConditions\[1\] from 'a'"):
        compiled(FlowCondition("a", "all", "m:yes"), FlowCondition("a", "all", ("not",)))


def test_a_task_without_conditions_has_none():
    assert compiled(FlowCondition("in", ("a",), "m:yes")) is None


def test_conditions_from_all_concern_the_tasks_that_have_the_children():
    condition = FlowCondition("all", ("late",), "m:yes")
    assert compiled(condition).route({}, {}, {}, []).flow == {"late"}
    assert compiled(condition, task="in") is None


def test_exceptions_go_only_to_exception_conditions():
    conditions = compiled(
        FlowCondition("a", "all", "m:yes"),
        FlowCondition(
            "a",
            ("errors",),
            "m:is_value_error",
            short_circuit=True,
            thrown_exception=True,
            post_transform="m:explain",
            exclude_keys=("secret",),
        ),
    )
    old, error = {"n": 1}, ValueError("bad")
    route = conditions.route({}, old, error, [error])
    assert route.flow == {"errors"}
    segment = sendable(route, {}, old, error)
    assert route.for_child("errors", segment) == {"why": "bad", "old": old}
    assert conditions.route({}, old, KeyError("x"), []) == Route()


def test_an_error_that_nothing_transforms_cannot_be_sent():
    error = ValueError("bad")
    with pytest.raises(ValueError, match="bad"):
        sendable(Route(frozenset({"errors"})), {}, {}, error)


@pytest.mark.parametrize(("transform", "said"), [("m:list", "returned list"), ("m:fail", "raised")])
def test_a_post_transform_that_gives_no_segment_is_an_error_of_its_own(transform, said):
    route = Route(frozenset({"errors"}), post_transform=FUNCTIONS[transform])
    with pytest.raises(UserFunctionError, match=said):
        sendable(route, {}, {}, ValueError("bad"))


def test_ordinary_segments_do_not_go_where_only_exceptions_should():
    conditions = compiled(
        FlowCondition("a", ("errors",), "m:yes", short_circuit=True, thrown_exception=True)
    )
    assert conditions.route({}, {}, {"n": 1}, []).flow == {"late", "punctual"}


@pytest.mark.parametrize("to", ["all", "none"])
def test_exception_conditions_to_all_or_none_keep_nothing_from_ordinary_segments(to):
    conditions = compiled(
        FlowCondition("a", to, "m:yes", short_circuit=True, thrown_exception=True)
    )
    assert conditions.route({}, {}, {"n": 1}, []).flow == {"late", "punctual", "errors"}


BY_HOUR = Window("w", "a", "fixed", "count", allowed_lateness=(0, "hours"), late_to="late")


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        ((), {"punctual", "errors"}),
        ((FlowCondition("a", "all", "m:yes", short_circuit=True),), {"punctual", "errors"}),
        ((FlowCondition("a", ("late",), "m:yes"),), {"late"}),
        ((FlowCondition("a", ("punctual",), "m:no"),), set()),
    ],
)
def test_a_child_for_late_segments_gets_others_only_by_a_condition_that_names_it(
    conditions, wanted
):
    found = compiled(*conditions, windows=(BY_HOUR,))
    assert found.route({}, {}, {"delay": 1}, []).flow == wanted


def test_an_exception_is_a_failure_where_only_windows_say_where_segments_go():
    assert compiled(windows=(BY_HOUR,)).route({}, {}, ValueError(), []) == Route()
    assert compiled(task="in", windows=(BY_HOUR,)) is None
