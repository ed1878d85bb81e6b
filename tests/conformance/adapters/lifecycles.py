"""Cases about lifecycles: verdicts, asking to start, merging, the phase that a handler hears."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.support.jobs.bench import Bench, chain

from onyx.model.job import Job, Lifecycle
from onyx.plugins.protocol import START, Cursor, Input
from onyx.program.lifecycles import HOOKS, Event, Lifecycles, compile_lifecycles

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


def _merger(words: str) -> Callable[..., Any]:
    """`sets a=1, who=first`, `sets b=event.a+1 (or 101)`: what a hook returns."""

    def hook(event: Event, _: Any) -> dict[str, Any]:
        reported = re.findall(r"(\w+)\s*=\s*([^,(]+)(?:\(or ([^)]*)\))?", words)
        return {key: _sum(event, value.strip(), other) for key, value, other in reported}

    return hook


def _sum(event: Event, words: str, otherwise: str) -> Any:
    found = re.fullmatch(r"event\.(\w+)\s*(?:\+\s*(\d+))?", words)
    if found is None:
        return int(words) if words.lstrip("-").isdigit() else words
    if found[1] not in event:
        return int(otherwise) if otherwise else None
    return event[found[1]] + int(found[2] or 0)


def _merge(case: dict[str, Any]) -> tuple[Any, Any]:
    event: Event = dict(case["event"])
    hooks = _hooks("before_batch", [_merger(each) for each in case["lifecycles"]])
    hooks.merge("before_batch", event)
    return event, case["expected"]


def _boom(*_: Any) -> None:
    raise ValueError("boom")


class Unreadable(Input):
    """An input whose reader raises; also the reader."""

    cooperative = True
    read = _boom

    def partitions(self) -> list[str]:
        return ["p"]

    def open(self, partition: str, cursor: Cursor) -> Unreadable:
        return self

    def exhausted(self) -> bool:
        return False

    def cursor(self, position: int) -> Cursor:
        return START

    def close(self) -> None: ...


def _phase(case: dict[str, Any]) -> tuple[Any, Any]:
    """Something of a real task raises, where the case says; a handler listens."""
    heard: list[str] = []

    def listen(event: Event, lifecycle: Lifecycle, phase: str, error: Exception) -> str:
        heard.append(phase)
        return "kill"

    hooks: dict[str, Callable[..., Any]] = {"handle_exception": listen}
    functions = {
        "m:same": lambda segment: segment,
        "m:boom": _boom,
        "m:true": lambda *_: True,
        "m:mute": lambda context: Unreadable(),
        "m:calls": lambda: hooks,
    }
    place, more, fn = case["raises_in"], {}, "m:same"
    hook = next((each for each in HOOKS if each.replace("_", "-") in place), None)
    task = "work"
    if hook is not None:
        hooks[hook] = _boom
        task = "read" if hook.endswith("_segment") else task
    elif "onyx/fn" in place:
        fn = "m:boom"
        if "with flow" in place:
            more = _conditions("m:true")
    elif "flow" in place or "predicate" in place:
        more = _conditions("m:boom")
    elif "plugin" in place or "read-batch" in place:
        task, more = "read", {"read": {"plugin": "m:boom" if "plugin" in place else "m:mute"}}
    else:
        fn = "m:boom"
    job = chain(SEGMENTS, fn=fn, lifecycles=[{"task": task, "calls": "m:calls"}], **more)
    bench = Bench(job, functions)
    bench.settle()
    if hook == "after_task_stop":
        bench.stop(bench.task(task))
    got = (bool(heard), heard[0] if heard else None, bool(bench.proposals("kill-job")))
    killed = case["expected_job_state"] == "killed"
    wanted = case.get("expected_phase")
    return got, (
        case["expected_handler_called"],
        wanted and _OUR_PHASES.get(wanted, wanted),
        killed,
    )


def _conditions(predicate: str) -> dict[str, Any]:
    return {"flowConditions": [{"from": "work", "to": ["write"], "predicate": predicate}]}


_OUR_PHASES = {
    "lifecycle/start-task?": "lifecycle/start-task",
    "lifecycle/execute-flow-conditions": "lifecycle/route",
}
"""What a handler hears here where the original has another name."""


def _order(case: dict[str, Any]) -> tuple[Any, Any]:
    """The hooks of one task in the order in which they are first called."""
    calls: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        def hook(*_: Any) -> Any:
            calls.append(name)
            return True if name == "start_task" else None

        return hook

    hooks = {name: noting(name) for name in HOOKS if name != "handle_exception"}
    job = chain(SEGMENTS, lifecycles=[{"task": "work", "calls": "m:calls"}])
    bench = Bench(job, {"m:same": lambda segment: segment, "m:calls": lambda: hooks})
    bench.settle()
    bench.stop(bench.task("work"))
    expected = [name for each in _listed(case) if (name := _hook(each)) in hooks]
    reported = [name for name in dict.fromkeys(calls) if name in expected]
    return reported, list(dict.fromkeys(expected))


def _restarts(case: dict[str, Any]) -> tuple[Any, Any]:
    """Each hook raises at its first call and its peer restarts; the last one kills the job."""
    expected = [name for each in _listed(case) if (name := _hook(each)) in HOOKS]
    phases: list[str] = []
    for name in expected:
        hooks: dict[str, Callable[..., Any]] = {name: _boom}

        def listen(event: Event, lifecycle: Lifecycle, phase: str, error: Exception) -> str:
            phases.append(phase.removeprefix("lifecycle/"))
            return "kill" if len(phases) == len(expected) else "restart"

        hooks["handle_exception"] = listen
        job = chain(SEGMENTS, lifecycles=[{"task": "work", "calls": "m:calls"}])
        bench = Bench(job, {"m:same": lambda segment: segment, "m:calls": partial(dict, hooks)})
        bench.settle()
        last = len(phases) == len(expected)
        if bool(bench.restarted) == last or bool(bench.proposals("kill-job")) != last:
            return f"{name}: restarted {bench.restarted}", "a restart, or a kill for the last"
    return [_hook(each) for each in phases], expected


def _listed(case: dict[str, Any]) -> list[str]:
    """The names that a case lists, under whichever key begins so."""
    for key in ("expected", "expected_order", "order", "phases", "hooks", "raises_in"):
        value = case.get(key)
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return value
    raise ValueError(f"no list of hooks among {sorted(case)}")


def _hook(name: str) -> str:
    return name.rpartition("/")[2].removesuffix("?").replace("-", "_")


_CHECKS: dict[str, Callable[[dict[str, Any]], tuple[Any, Any]]] = {
    "handle-exception": _verdict,
    "start-task?": _start,
    "before-batch": _merge,
    "phase": _phase,
    "call-order": _order,
    "restart-chain": _restarts,
}
