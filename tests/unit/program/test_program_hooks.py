"""Lifecycles: which hook is called when, what it may change, and what it may decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.jobs.bench import Bench, chain

from onyx.model.job import Lifecycle
from onyx.program.lifecycles import Lifecycles
from onyx.program.phases import Phase
from onyx.replica.commands import KillJob

SEGMENTS = [{"n": n} for n in range(4)]
Hooks = dict[str, Callable[..., Any]]


def run(hooks: Hooks, task: str = "work", fn: Callable[..., Any] | None = None) -> Bench:
    """The chain with these hooks around one task, until nothing happens any more."""
    job = chain(SEGMENTS, lifecycles=[{"task": task, "calls": "m:calls"}])
    functions = {"m:same": fn or (lambda segment: segment), "m:calls": lambda: hooks}
    bench = Bench(job, functions)
    bench.settle()
    return bench


def test_hooks_are_called_in_the_order_of_the_phases() -> None:
    calls: list[str] = []

    def note(name: str) -> Callable[..., Any]:
        def hook(event: Any, lifecycle: Lifecycle) -> Any:
            calls.append(name)
            return True if name == "start_task" else None

        return hook

    loop = ["before_batch", "after_read_batch", "after_apply_fn", "after_batch"]
    names = ["start_task", "before_task_start", *loop, "after_task_stop"]
    bench = run({name: note(name) for name in names})
    bench.stop(bench.task("work"))
    assert calls[:10] == ["start_task", "before_task_start", *loop, *loop]
    assert calls[-1] == "after_task_stop"
    assert calls.count("before_task_start") == calls.count("after_task_stop") == 1


def test_what_a_hook_returns_is_merged_and_the_next_hook_sees_it() -> None:
    seen: list[dict[str, Any]] = []
    first: Hooks = {"before_batch": lambda event, _: {"a": 1, "who": "first"}}
    second: Hooks = {
        "before_batch": lambda event, _: {"b": event["a"] + 1, "who": "second"},
        "after_read_batch": lambda event, _: seen.append(dict(event)),
    }
    lifecycles = [{"task": "work", "calls": "m:first"}, {"task": "work", "calls": "m:second"}]
    functions = {"m:same": lambda s: s, "m:first": lambda: first, "m:second": lambda: second}
    Bench(chain(SEGMENTS, lifecycles=lifecycles), functions).settle()
    assert {key: seen[0][key] for key in ("a", "b", "who")} == {"a": 1, "b": 2, "who": "second"}


def test_an_entry_for_all_is_called_around_every_task() -> None:
    names: list[str] = []
    run({"before_task_start": lambda event, _: names.append(event["task"])}, task="all")
    assert sorted(names) == ["read", "work", "write"]


def test_a_task_starts_only_when_every_start_task_says_true_and_all_are_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[int] = []
    caplog.set_level("INFO", "onyx.jobs")

    def answering(number: int, answers: list[Any]) -> Callable[..., Any]:
        def start(event: Any, lifecycle: Any) -> Any:
            asked.append(number)
            return answers.pop(0)

        return start

    both: list[Hooks] = [
        {"start_task": answering(1, [False, True, True])},
        {"start_task": answering(2, [True, "yes", True])},
    ]
    job = chain(
        SEGMENTS,
        lifecycles=[{"task": "work", "calls": "m:a"}, {"task": "work", "calls": "m:b"}],
    )
    bench = Bench(job, {"m:same": lambda s: s, "m:a": lambda: both[0], "m:b": lambda: both[1]})
    work = bench.task("work")
    for _ in range(2):
        bench.settle()
        assert work.phase is Phase.START_TASK
        bench.clock.advance(bench.settings.task.ready_back_off_s)
    bench.settle()
    assert asked == [1, 2] * 3
    assert bench.completed
    refused, begins = caplog.messages
    assert refused == "task work is not started: its lifecycle says no, and is asked again"
    assert begins.startswith("task read begins to read 1 partition: ")


def test_a_hook_may_inject_the_parameters_of_the_function() -> None:
    totals: list[int] = [0]

    def add(state: list[int], segment: dict[str, Any]) -> dict[str, Any]:
        state[0] += segment["n"]
        return segment

    run({"before_task_start": lambda event, _: {"params": [totals]}}, fn=add)
    assert totals == [6]


def test_hooks_see_the_batch_as_read_and_what_the_function_made_of_it_each_once() -> None:
    read: list[Any] = []
    made: list[Any] = []
    hooks: Hooks = {
        "after_batch": lambda event, _: read.extend(event["batch"]),
        "after_apply_fn": lambda event, _: made.extend(event["results"]),
    }
    run(hooks, fn=lambda segment: {"n": segment["n"] * 10})
    assert read == SEGMENTS
    assert made == [{"n": n * 10} for n in range(4)]


def test_an_acked_segment_is_told_once_by_its_place_in_the_source() -> None:
    reported: list[Any] = []
    run({"after_ack_segment": lambda event, id, lifecycle: reported.append(id)}, task="read")
    assert [position for _, position in sorted(reported)] == [0, 1, 2, 3]
    assert len({partition for partition, _ in reported}) == 1


def test_a_retried_segment_is_told_when_it_is_sent_again() -> None:
    reported: list[Any] = []
    hooks: Hooks = {"after_retry_segment": lambda event, id, lifecycle: reported.append(id[1])}
    job = chain(SEGMENTS, lifecycles=[{"task": "read", "calls": "m:calls"}])
    bench = Bench(job, {"m:same": lambda s: s, "m:calls": lambda: hooks})
    bench.start()
    bench.settle(["read"])
    assert reported == []
    bench.clock.advance(61.0)
    bench.settle()
    assert sorted(reported) == [0, 1, 2, 3]
    assert bench.completed


@pytest.mark.parametrize(
    ("phase", "task"),
    [
        ("start_task", "work"),
        ("before_task_start", "work"),
        ("before_batch", "read"),
        ("after_read_batch", "work"),
        ("after_apply_fn", "read"),
        ("after_batch", "write"),
        ("after_ack_segment", "read"),
    ],
)
def test_an_exception_of_a_hook_is_told_with_its_phase(phase: str, task: str) -> None:
    def boom(*_: Any) -> None:
        raise KeyError("no such row")

    heard: list[Any] = []

    def handle(event: Any, lifecycle: Any, name: str, error: Exception) -> str:
        heard.append((name, type(error)))
        return "kill"

    bench = run({phase: boom, "handle_exception": handle}, task=task)
    name = phase.replace("_", "-")
    assert heard == [(f"lifecycle/{name}", KeyError)]
    assert len(bench.exceptions) == 1
    reported = bench.exceptions[0]
    assert (reported["task"], reported["phase"], reported["type"]) == (task, name, "KeyError")
    why = f"task {task} failed in {name} with KeyError"
    assert bench.proposals("kill-job") == [KillJob("job-1", why)]


def test_an_exception_of_the_function_is_told_as_of_the_function() -> None:
    def boom(_: object) -> None:
        raise ValueError("boom at 500")

    bench = run({}, fn=boom)
    reported = bench.exceptions[0]
    assert (reported["phase"], reported["type"], reported["message"]) == (
        "apply-fn",
        "ValueError",
        "boom at 500",
    )
    assert reported["detail"].startswith(
        "m:same raised ValueError: boom at 500 (test_program_hooks.py, "
    )
    assert "(3 segments of the batch failed)" in reported["detail"]
    assert "boom" in reported["traceback"]


@pytest.mark.parametrize(
    ("verdicts", "killed"),
    [([], True), (["defer"], True), (["defer", "restart"], False), (["restart", "kill"], False)],
)
def test_the_first_verdict_that_is_not_defer_decides(verdicts: list[str], killed: bool) -> None:
    def boom(_: object) -> None:
        raise ValueError("boom")

    functions: dict[str, Callable[..., Any]] = {"m:same": boom}
    for number, verdict in enumerate(verdicts):
        hooks = {"handle_exception": lambda *_, answer=verdict: answer}
        functions[f"m:calls{number}"] = lambda hooks=hooks: hooks
    entries = [{"task": "work", "calls": f"m:calls{n}"} for n in range(len(verdicts))]
    bench = Bench(chain(SEGMENTS, lifecycles=entries), functions)
    bench.settle()
    bench.clock.advance(bench.settings.task.retry_start_interval_s)
    bench.settle()
    assert bool(bench.proposals("kill-job")) is killed
    assert bench.restarted == ([] if killed else ["work-0"])


def test_a_handler_that_fails_or_answers_nonsense_kills_the_job_and_says_so() -> None:
    def boom(_: object) -> None:
        raise ValueError("boom")

    bench = run({"handle_exception": lambda *_: "maybe"}, fn=boom)
    assert "'maybe'" in bench.exceptions[0]["detail"]
    assert bench.exceptions[0]["phase"] == "handle-exception"


def test_a_failing_after_task_stop_does_not_keep_the_peer_on_the_task() -> None:
    def boom(*_: Any) -> None:
        raise ValueError("cannot say goodbye")

    bench = run({"after_task_stop": boom}, task="write")
    bench.stop(bench.task("write"))
    assert bench.outputs["write"][0].calls[-1] == "close"


def test_after_task_stop_is_not_called_for_a_task_that_never_started() -> None:
    called: list[Any] = []
    hooks: Hooks = {
        "start_task": lambda *_: False,
        "after_task_stop": lambda *_: called.append(1),
    }
    bench = run(hooks)
    bench.stop(bench.task("work"))
    assert called == []


def test_calls_with_an_unknown_hook_kill_the_job_and_name_those_there_are() -> None:
    bench = run({"before_bach": lambda *_: None})
    reported = bench.exceptions[0]
    assert reported["phase"] == "load-job"
    assert "'before_bach' is not a hook" in reported["detail"]
    assert "before_batch" in reported["detail"]


def test_without_lifecycles_the_event_stays_as_it_is() -> None:
    event = {"x": 7}
    Lifecycles().merge("before_batch", event)
    assert event == {"x": 7}
