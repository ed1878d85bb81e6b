"""Cases about lifecycles: verdicts, asking to start, merging, the phase that a handler hears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.bench import Bench, chain

from onyx.model.job import Job, Lifecycle
from onyx.task.lifecycles import Event, Lifecycles, compile_lifecycles

SEGMENTS = [{"n": 1}]


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    check_case = _CHECKS.get(case["op"])
    if check_case is None:
        return f"the adapter does not know {case['op']!r}"
    got, expected = check_case(case)
    return None if got == expected else f"expected {expected}, got {got}"


def _hooks(name: str, functions: list[Callable[..., Any]]) -> Lifecycles:
    entry = Lifecycle("a", "m:calls")
    return Lifecycles({name: tuple((entry, each) for each in functions)} if functions else {})


def _answering(answer: Any) -> Callable[..., Any]:
    return lambda *_: answer


def _verdict(case: dict[str, Any]) -> tuple[Any, Any]:
    if "lifecycles" in case:
        entries = tuple(
            Lifecycle(each["lifecycle/task"], f"m:{each['returns']}") for each in case["lifecycles"]
        )
        job = Job("job", (), (), lifecycles=entries)

        def resolve(name: str) -> Callable[..., Any]:
            return lambda: {"handle_exception": _answering(name.removeprefix("m:"))}

        lifecycles = compile_lifecycles(job, case["task"], resolve)
    else:
        answers = [_answering(each) for each in case["handlers_in_order"]]
        lifecycles = _hooks("handle_exception", answers)
    return lifecycles.verdict({}, "lifecycle/apply-fn", ValueError("boom")), case["expected"]


def _start(case: dict[str, Any]) -> tuple[Any, Any]:
    answers = [_answering(each) for each in case["answers_in_order"]]
    return _hooks("start_task", answers).may_start({}), case["expected"]


_MERGERS: dict[str, Callable[..., Any]] = {
    "sets a=1, who=first": lambda event, _: {"a": 1, "who": "first"},
    "sets b=event.a+1 (or 101), who=second": lambda event, _: {
        "b": event.get("a", 100) + 1,
        "who": "second",
    },
}


def _merge(case: dict[str, Any]) -> tuple[Any, Any]:
    event: Event = dict(case["event"])
    hooks = _hooks("before_batch", [_MERGERS[each] for each in case["lifecycles"]])
    hooks.merge("before_batch", event)
    return event, case["expected"]


def _phase(case: dict[str, Any]) -> tuple[Any, Any]:
    """The function, or a hook, of a real task raises; a handler listens."""

    def boom(*_: Any) -> None:
        raise ValueError("boom")

    heard: list[str] = []

    def listen(event: Event, lifecycle: Lifecycle, phase: str, error: Exception) -> str:
        heard.append(phase)
        return "kill"

    job = chain(SEGMENTS, fn="m:boom", lifecycles=[{"task": "work", "calls": "m:calls"}])
    functions = {"m:boom": boom, "m:calls": lambda: {"handle_exception": listen}}
    bench = Bench(job, functions)
    bench.settle()
    got = (bool(heard), heard[0] if heard else None, bool(bench.proposals("kill-job")))
    killed = case["expected_job_state"] == "killed"
    return got, (case["expected_handler_called"], case["expected_phase"], killed)


_CHECKS: dict[str, Callable[[dict[str, Any]], tuple[Any, Any]]] = {
    "handle-exception": _verdict,
    "start-task?": _start,
    "before-batch": _merge,
    "phase": _phase,
}
