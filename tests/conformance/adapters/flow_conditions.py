"""Cases about flow conditions: predicates and the route of one segment or exception.

Each route is asked twice: of `Conditions.route`, and of `route_batch`, which must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.errors import UserError
from onyx.flow.conditions import Route, compile_conditions, sendable
from onyx.flow.leaves import Leaves, apply_function
from onyx.flow.predicates import read, segment_test
from onyx.flow.routing import route_batch
from onyx.model.job import FlowCondition, Job

EVENT: dict[str, Any] = {}


class Boom(Exception):
    """What a case's function throws; `data` as in the case."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__("boom")
        self.data = data


def _throws(*_: Any) -> bool:
    raise ValueError("predicate blew up")


def _throws_if_odd_old(event: Any, old: Any, new: Any, all_new: Any) -> bool:
    if old["n"] % 2:
        raise ValueError("Value wasn't even.")
    return True


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fcp/true-pred": lambda *_: True,
    "fcp/false-pred": lambda *_: False,
    "fcp/even-n": lambda event, old, new, all_new: new["n"] % 2 == 0,
    "fcp/odd-n": lambda event, old, new, all_new: new["n"] % 2 == 1,
    "fcp/old-n-even": lambda event, old, new, all_new: old["n"] % 2 == 0,
    "fcp/n-gt": lambda event, old, new, all_new, limit: new["n"] > limit,
    "fcp/n-between": lambda event, old, new, all_new, low, high: low <= new["n"] <= high,
    "fcp/many-leaves": lambda event, old, new, all_new: len(all_new) > 1,
    "fcp/error-is-even": lambda event, old, new, all_new: (
        isinstance(new, Boom) and new.data.get("error") == "even"
    ),
    "fcp/is-exception": lambda event, old, new, all_new: isinstance(new, Exception),
    "fcp/throws": _throws,
    "fcp/throws-if-odd-old": _throws_if_odd_old,
    "fcp/to-error-segment": lambda event, segment, error: {"error?": True, "value": segment},
    "fcp/to-message": lambda event, segment, error: {"message": str(error), "segment": segment},
}


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    return _check_predicate(case) if case["op"] == "predicate" else _check_route(case)


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def _check_predicate(case: dict[str, Any]) -> str | None:
    try:
        test = segment_test(
            read(_as_tuple(case["predicate"]), {}, FUNCTIONS.__getitem__, case["id"])
        )
    except UserError as error:
        return None if case.get("expected_error") else f"refused: {error}"
    if case.get("expected_error"):
        return "expected an error"
    answer = test(EVENT, {}, {}, [])
    return None if bool(answer) == bool(case["expected"]) else f"gave {answer!r}"


def _condition(entry: dict[str, Any]) -> FlowCondition:
    own = {key: value for key, value in entry.items() if not key.startswith("flow/")}
    return FlowCondition(
        from_task=entry["flow/from"],
        to=_as_tuple(entry.get("flow/to", "none")),
        predicate=_as_tuple(entry["flow/predicate"]),
        options=own,
        predicate_errors_to=_as_tuple(entry.get("flow/predicate-errors-to")),
        exclude_keys=tuple(entry.get("flow/exclude-keys", ())),
        short_circuit=entry.get("flow/short-circuit?", False),
        thrown_exception=entry.get("flow/thrown-exception?", False),
        post_transform=entry.get("flow/post-transform"),
        action=entry.get("flow/action"),
    )


def _check_route(case: dict[str, Any]) -> str | None:
    workflow = tuple((a, b) for a, b in case["workflow"])
    conditions = tuple(_condition(entry) for entry in case["flow_conditions"] or ())
    job = Job("case", workflow, (), flow_conditions=conditions)
    compiled = compile_conditions(job, case["task"], FUNCTIONS.__getitem__)
    children = tuple(child for parent, child in workflow if parent == case["task"])
    thrown = None if case["thrown"] is None else Boom(case["thrown"])
    new = case["new"] if thrown is None else thrown
    if compiled is None:
        route = Route(frozenset(children)) if thrown is None else Route()
    else:
        route = compiled.route(EVENT, case["old"], new, case["all_new"] or [new])
    got = _describe(case, route, new, exceptional=bool(compiled and compiled.exceptional))
    expected = dict(case["expected"])
    if "transform_threw" in expected:
        expected["transform_threw"] = True
    if got != expected:
        return f"expected {expected}, got {got}"
    return _check_batch(case, compiled, children, thrown)


def _describe(case: dict[str, Any], route: Route, new: Any, exceptional: bool) -> dict[str, Any]:
    """The route in the words of the case file."""
    if isinstance(new, Exception) and not exceptional:
        return {"threw": str(new)}
    if route.error is not None and route.post_transform is None:
        return {"threw": str(route.error)}
    transform = next((n for n, fn in FUNCTIONS.items() if fn is route.post_transform), None)
    answer: dict[str, Any] = {
        "flow": sorted(route.flow),
        "action": "retry" if route.retry else None,
        "exclusions": sorted(frozenset().union(*route.exclude_keys.values())),
        "post_transform": transform,
        "pred_failure": route.error is not None,
    }
    try:
        answer["output_segment"] = _sent(route, sendable(route, EVENT, case["old"], new))
    except Boom:
        answer["unhandled_exception_segment"] = True
    except UserError:
        answer["transform_threw"] = True
    return answer


def _sent(route: Route, segment: Any) -> Any:
    """What the children get: one segment, or by child where they do not get the same."""
    by_child = {child: route.for_child(child, segment) for child in sorted(route.flow)}
    sent = list(by_child.values()) or [segment]
    return sent[0] if all(each == sent[0] for each in sent) else by_child


def _check_batch(
    case: dict[str, Any], compiled: Any, children: tuple[str, ...], thrown: Exception | None
) -> str | None:
    if thrown is None:
        leaves = apply_function(lambda _: case["all_new"], (), [case["old"]])
    else:
        leaves = Leaves([], apply_function(lambda _: None, (), [{}]).parents, None, [(0, thrown)])
    routed = route_batch(compiled, children, EVENT, [case["old"]], leaves)
    expected = case["expected"]
    unsendable = "threw" in expected or "unhandled_exception_segment" in expected
    retry = expected.get("action") == "retry"
    if bool(routed.retries) != retry:
        return f"the batch has retries {routed.retries}"
    if bool(routed.failures) != (("transform_threw" in expected or unsendable) and not retry):
        return f"the batch has failures {routed.failures}"
    if routed.failures or len(case["all_new"] or [None]) > 1:
        return None
    got = {child: out.segments for child, out in routed.to.items() if len(out)}
    want = {child: [expected.get("output_segment")] for child in expected["flow"]}
    return None if got == want else f"the batch sends {got}, not {want}"
