"""Whatever the user's code raises, wherever Onyx calls it, ends the job and nothing else: also what
`except Exception` lets pass, and exceptions that cannot be shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.support.jobs.bench import Bench, Kept, chain

from onyx.plugins.protocol import Input, Output, PluginContext
from onyx.task.table import StepOutcome

SEGMENTS = [{"n": n, "t": t} for n, t in enumerate([0, 8, 4, 4])]
"""Of which the third joins two sessions."""
Raise = Callable[[], Any]


class OfTheUser(BaseException):
    """Not an Exception."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)

    __repr__ = __str__


def endless(call: Raise) -> Iterator[dict[str, Any]]:
    yield {"n": 1}
    call()


def case(**spec: Any) -> Callable[[Raise], tuple[dict[str, Any], dict[str, Any]]]:
    """A chain with these keys; `functions` get the call that raises."""
    functions = spec.pop("functions")

    def build(call: Raise) -> tuple[dict[str, Any], dict[str, Any]]:
        return chain(SEGMENTS, **spec), {name: make(call) for name, make in functions.items()}

    return build


def lifecycle(hook: str, task: str = "work") -> Any:
    return case(
        lifecycles=[{"task": task, "calls": "m:calls"}],
        functions={"m:calls": lambda call: lambda: {hook: lambda *_: call()}},
    )


def condition(**more: Any) -> dict[str, Any]:
    return {"from": "work", "to": ["write"], "predicate": "m:predicate", **more}


TRIGGER: dict[str, Any] = {"windowId": "w", "type": "segment", "refinement": "accumulating"}
EACH = {"threshold": [1, "elements"]}


def windowed(
    functions: Mapping[str, Callable[[Raise], Any]],
    window: Mapping[str, Any] | None = None,
    trigger: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    base = {"id": "w", "task": "work", "type": "global", "aggregation": "count"}
    return case(
        guarantee="exactly-once",
        windows=[{**base, **(window or {})}],
        triggers=[{**TRIGGER, "emit": "m:nothing", **(EACH if trigger is None else trigger)}],
        functions={"m:nothing": lambda call: lambda *_: None, **functions},
        **more,
    )


def aggregation(failing: str) -> Any:
    def calls(call: Raise) -> Callable[[], dict[str, Any]]:
        own: dict[str, Any] = {
            "init": lambda *_: 0,
            "create_state_update": lambda *_: 1,
            "apply_state_update": lambda window, state, update: state + update,
            "super_aggregation": lambda window, one, other: one + other,
        }
        own[failing] = lambda *_: call()
        return lambda: own

    session = {
        "type": "session",
        "windowKey": "t",
        "timeoutGap": [5, "elements"],
    }
    return windowed({"m:own": calls}, {"aggregation": "m:own", **session})


def own_trigger(failing: str) -> Any:
    def calls(call: Raise) -> Callable[[], dict[str, Any]]:
        own: dict[str, Any] = {
            "init_state": lambda *_: 0,
            "next_state": lambda *_: 1,
            "trigger_fire": lambda *_: True,
        }
        own[failing] = lambda *_: call()
        return lambda: own

    return windowed({"m:own": calls}, trigger={"type": "m:own"})


def refinement(failing: str) -> Any:
    def calls(call: Raise) -> Callable[[], dict[str, Any]]:
        own: dict[str, Any] = {
            "create_state_update": lambda *_: 1,
            "apply_state_update": lambda trigger, state, update: state,
        }
        own[failing] = lambda *_: call()
        return lambda: own

    return windowed({"m:own": calls}, trigger={"refinement": "m:own", **EACH})


CASES: dict[str, Any] = {
    "function": case(functions={"m:same": lambda call: lambda _: call()}),
    "batch function": case(
        work={"batchFn": True}, functions={"m:same": lambda call: lambda _: call()}
    ),
    "generator": case(functions={"m:same": lambda call: lambda _: endless(call)}),
    "predicate": case(
        flowConditions=[condition()], functions={"m:predicate": lambda call: lambda *_: call()}
    ),
    "predicate of an exception": case(
        flowConditions=[condition(thrownException=True, shortCircuit=True)],
        functions={
            "m:same": lambda call: lambda _: [][1],
            "m:predicate": lambda call: lambda *_: call(),
        },
    ),
    "postTransform": case(
        flowConditions=[
            condition(thrownException=True, shortCircuit=True, postTransform="m:transform")
        ],
        functions={
            "m:same": lambda call: lambda _: [][1],
            "m:predicate": lambda call: lambda *_: True,
            "m:transform": lambda call: lambda *_: call(),
        },
    ),
    "calls of a lifecycle": case(
        lifecycles=[{"task": "work", "calls": "m:calls"}],
        functions={"m:calls": lambda call: lambda: call()},
    ),
    **{
        hook: lifecycle(hook, task)
        for hook, task in {
            "start_task": "work",
            "before_task_start": "work",
            "before_batch": "read",
            "after_read_batch": "work",
            "after_apply_fn": "read",
            "after_batch": "write",
            "after_ack_segment": "read",
        }.items()
    },
    "handle_exception": case(
        lifecycles=[{"task": "work", "calls": "m:calls"}],
        functions={
            "m:same": lambda call: lambda _: [][1],
            "m:calls": lambda call: lambda: {"handle_exception": lambda *_: call()},
        },
    ),
    "groupByFn": case(
        work={"groupByFn": "m:group", "minPeers": 2, "fluxPolicy": "kill"},
        functions={"m:group": lambda call: lambda _: call()},
    ),
    "assignWatermarkFn": windowed(
        {"m:time": lambda call: lambda _: call()},
        {"type": "fixed", "range": [1, "minute"], "windowKey": "t"},
        {"type": "watermark"},
        read={"assignWatermarkFn": "m:time"},
    ),
    **{
        name: aggregation(name)
        for name in ("init", "create_state_update", "apply_state_update", "super_aggregation")
    },
    **{
        f"trigger {name}": own_trigger(name)
        for name in ("init_state", "next_state", "trigger_fire")
    },
    "trigger pred": windowed(
        {"m:pred": lambda call: lambda *_: call()},
        trigger={"type": "punctuation", "pred": "m:pred"},
    ),
    "trigger sync": windowed(
        {"m:sync": lambda call: lambda *_: call()}, trigger={"sync": "m:sync", **EACH}
    ),
    "trigger emit": windowed({"m:nothing": lambda call: lambda *_: call()}),
    **{
        f"refinement {name}": refinement(name)
        for name in ("create_state_update", "apply_state_update")
    },
}
"""By who raises: a job and its functions."""

RAISED: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "BaseException": lambda: OfTheUser("of the user"),
    "StopIteration": StopIteration,
    "RecursionError": lambda: RecursionError("too deep"),
    "MemoryError": MemoryError,
    "__str__ that exits": Unspeakable,
    "a message of megabytes": lambda: ValueError("x" * 5_000_000),
}


def raising(kind: str) -> Raise:
    def call() -> Any:
        raise RAISED[kind]()

    return call


def ends(bench: Bench) -> dict[str, Any]:
    """The one report of a job that was killed."""
    for _ in range(bench.settings.task.seal_attempts_max):
        bench.settle()
        bench.clock.advance(bench.settings.task.ready_back_off_s)
    assert bench.killed() == ["job-1"] * len(bench.exceptions)
    assert bench.exceptions, "the job goes on"
    return dict(bench.exceptions[0])


@pytest.mark.parametrize("who", CASES)
@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_what_would_end_the_process_ends_the_job(who: str, kind: str) -> None:
    spec, functions = CASES[who](raising(kind))
    peers = {"work": 2 if who == "groupByFn" else 1}
    report = ends(Bench(spec, {"m:same": lambda segment: segment, **functions}, peers))
    assert kind in report["detail"]
    assert kind in report["traceback"], "the cause is there"


@pytest.mark.parametrize("kind", RAISED)
@pytest.mark.parametrize("who", ["function", "predicate", "before_batch", "create_state_update"])
def test_any_exception_ends_the_job_with_a_report_of_bounded_size(who: str, kind: str) -> None:
    spec, functions = CASES[who](raising(kind))
    report = ends(Bench(spec, {"m:same": lambda segment: segment, **functions}))
    assert max(len(str(value)) for value in report.values()) < 20_000


@pytest.mark.parametrize("kind", ["SystemExit", "BaseException"])
def test_a_flow_condition_and_handle_exception_see_an_exception_with_its_cause(kind: str) -> None:
    spec, functions = CASES["function"](raising(kind))
    seen: list[BaseException] = []

    def thrown(event: Any, old: Any, error: BaseException, _: Any) -> bool:
        seen.append(error)
        return False

    spec["flowConditions"] = [condition(thrownException=True, shortCircuit=True)]
    spec["lifecycles"] = [{"task": "work", "calls": "m:calls"}]

    def handle(event: Any, lifecycle: Any, phase: str, error: BaseException) -> str:
        seen.append(error)
        return "restart"

    functions |= {"m:predicate": thrown, "m:calls": lambda: {"handle_exception": handle}}
    bench = Bench(spec, functions)
    bench.settle()
    bench.clock.advance(bench.settings.task.retry_start_interval_s)
    bench.settle()
    assert bench.restarted == ["work-0"]
    assert len(seen) > 1
    for error in seen:
        assert isinstance(error, Exception)
        assert type(error.__cause__) is type(RAISED[kind]())


def test_a_condition_routes_a_function_that_exits_like_one_that_raises() -> None:
    def odd_ones_exit(segment: dict[str, Any]) -> dict[str, Any]:
        if segment["n"] % 2:
            raise SystemExit(segment["n"])
        return segment

    spec = chain(
        SEGMENTS,
        flowConditions=[
            condition(thrownException=True, shortCircuit=True, postTransform="m:told"),
            condition(),
        ],
    )
    functions = {
        "m:same": odd_ones_exit,
        "m:predicate": lambda *_: True,
        "m:told": lambda event, segment, error: {"failed": segment["n"]},
    }
    bench = Bench(spec, functions)
    bench.settle()
    assert bench.completed
    written = bench.written("write")
    assert sorted(s["failed"] for s in written if "failed" in s) == [1, 3]
    assert len(written) == 4


@pytest.mark.parametrize(
    "method", ["write", "durable", "flush", "tick", "fence", "seal", "factory"]
)
def test_an_output_that_exits_ends_the_job(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(self: Bench, plugin: str, context: PluginContext) -> Output:
        if method == "factory":
            raise SystemExit(1)
        output = Kept(self, context.task)
        monkeypatch.setattr(output, method, exits)
        return output

    monkeypatch.setattr(Bench, "build_output", build)
    report = ends(Bench(chain(SEGMENTS), {"m:same": lambda segment: segment}))
    assert report["task"] == "write"


@pytest.mark.parametrize("method", ["partitions", "open", "factory"])
def test_an_input_that_exits_ends_the_job(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Bench.build_input

    def build(self: Bench, plugin: str, context: PluginContext) -> Input:
        if method == "factory":
            raise SystemExit(1)
        made = plain(self, plugin, context)
        monkeypatch.setattr(made, method, exits)
        return made

    monkeypatch.setattr(Bench, "build_input", build)
    report = ends(Bench(chain(SEGMENTS), {"m:same": lambda segment: segment}))
    assert report["task"] == "read"


def exits(*_: Any) -> Any:
    raise SystemExit(1)


def test_what_exits_on_the_way_out_keeps_no_peer_on_the_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec = chain(SEGMENTS, lifecycles=[{"task": "write", "calls": "m:calls"}])
    functions = {
        "m:same": lambda segment: segment,
        "m:calls": lambda: {"after_task_stop": exits},
    }
    bench = Bench(spec, functions)
    bench.settle()
    output = bench.outputs["write"][0]
    output.close = exits  # type: ignore[method-assign]
    assert bench.stop(bench.task("write")) is StepOutcome.DONE
    assert caplog.text.count("SystemExit") >= 2


def test_what_a_segment_raises_when_it_is_deleted_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda end: seen.append(end.exc_type))

    class Loud:
        def __del__(self) -> None:
            raise SystemExit(1)

    def drops(segment: dict[str, Any]) -> dict[str, Any]:
        Loud()
        return segment

    bench = Bench(chain(SEGMENTS), {"m:same": drops})
    bench.settle()
    assert bench.completed
    assert seen == [SystemExit] * len(SEGMENTS)
