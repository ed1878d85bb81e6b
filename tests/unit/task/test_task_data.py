"""What happens to segments on their way: filtered, multiplied, copied, grouped, dealt out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from tests.support.jobs.bench import Bench, chain

from onyx.errors import Unavailable
from onyx.ledger.lineage import positions_of
from onyx.telemetry.interface import TalliedTask

SEGMENTS = [{"n": n} for n in range(12)]
Segment = dict[str, Any]


def numbers(bench: Bench, task: str = "write") -> list[int]:
    return [segment["n"] for segment in bench.written(task)]


def finish(bench: Bench) -> Bench:
    bench.settle()
    assert bench.exceptions == []
    assert bench.completed
    return bench


FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any], list[int]]] = {
    "one to one": (lambda s: {"n": s["n"] + 1}, {}, list(range(1, 13))),
    "filter": (lambda s: s if s["n"] % 3 == 0 else None, {}, [0, 3, 6, 9]),
    "nothing at all": (lambda s: [], {}, []),
    "one to many": (
        lambda s: [{"n": s["n"]}] * (s["n"] % 3),
        {},
        [1, 2, 2, 4, 5, 5, 7, 8, 8, 10, 11, 11],
    ),
    "params": (
        lambda a, b, s: {"n": a * s["n"] + b},
        {"params": ["a", "b"], "options": {"a": 2, "b": 1}},
        list(range(1, 25, 2)),
    ),
    "whole batches": (
        lambda batch: [[s] if s["n"] % 2 else s for s in batch],
        {"batchFn": True},
        list(range(12)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_may_keep_drop_or_multiply_segments(name: str) -> None:
    fn, more, expected = FUNCTIONS[name]
    bench = finish(Bench(chain(SEGMENTS, fn="m:fn", work=more), {"m:fn": fn}))
    assert numbers(bench) == expected


def fan_out(children: int = 2, **spec: Any) -> dict[str, Any]:
    """read -> work -> several outputs."""
    job = chain(SEGMENTS)
    names = [f"out{index}" for index in range(children)]
    output = {"type": "output", "plugin": "blackhole", "batchSize": 3}
    job["catalog"] = [*job["catalog"][:2], *({"name": name, **output} for name in names)]
    job["workflow"] = [["read", "work"], *(["work", name] for name in names)]
    return {**job, **spec}


def test_a_batch_to_two_local_children_is_copied() -> None:
    bench = finish(Bench(fan_out(), {"m:same": lambda s: s}))
    first, second = bench.written("out0"), bench.written("out1")
    assert first == second == SEGMENTS
    first[0]["n"] = "changed"
    assert second[0] == {"n": 0}


def test_flow_conditions_route_and_nothing_is_lost_of_what_no_one_wants() -> None:
    conditions = [
        {"from": "work", "to": ["out0"], "predicate": "m:even"},
        {"from": "work", "to": ["out1"], "predicate": ["not", "m:even"], "excludeKeys": ["extra"]},
        {"from": "work", "to": "none", "predicate": "m:eleven", "shortCircuit": True},
    ]
    conditions.insert(0, conditions.pop())
    functions = {
        "m:same": lambda s: {**s, "extra": 1},
        "m:even": lambda event, old, new, all_new: new["n"] % 2 == 0,
        "m:eleven": lambda event, old, new, all_new: new["n"] == 11,
    }
    bench = finish(Bench(fan_out(flowConditions=conditions), functions))
    assert bench.written("out0") == [{"n": n, "extra": 1} for n in range(0, 12, 2)]
    assert bench.written("out1") == [{"n": n} for n in range(1, 11, 2)]


def test_an_exception_that_a_condition_takes_care_of_becomes_a_segment() -> None:
    def odd_fails(segment: Segment) -> Segment:
        if segment["n"] % 2:
            raise ValueError(f"odd {segment['n']}")
        return segment

    conditions = [
        {
            "from": "work",
            "to": ["out1"],
            "predicate": "m:always",
            "thrownException": True,
            "shortCircuit": True,
            "postTransform": "m:tell",
        },
        {"from": "work", "to": ["out0"], "predicate": "m:always"},
    ]
    functions = {
        "m:same": odd_fails,
        "m:always": lambda *_: True,
        "m:tell": lambda event, segment, error: {"why": str(error), **segment},
    }
    bench = finish(Bench(fan_out(flowConditions=conditions), functions))
    assert [segment["n"] for segment in bench.written("out0")] == list(range(0, 12, 2))
    assert bench.written("out1")[0] == {"why": "odd 1", "n": 1}
    assert len(bench.written("out1")) == 6


def test_a_predicate_that_fails_kills_the_job_as_a_flow_condition() -> None:
    conditions = [{"from": "work", "to": ["out0"], "predicate": "m:boom"}]

    def boom(*_: Any) -> bool:
        raise LookupError("no idea")

    bench = Bench(fan_out(flowConditions=conditions), {"m:same": lambda s: s, "m:boom": boom})
    bench.settle()
    reported = bench.exceptions[0]
    assert (reported["phase"], reported["type"]) == ("route", "LookupError")
    assert reported["detail"].startswith(
        "a flow condition raised LookupError: no idea (test_task_data.py"
    )


def test_equal_keys_go_to_one_peer_and_each_peer_gets_some() -> None:
    job = chain(
        [{"n": n, "key": f"k{n % 7}"} for n in range(70)],
        batch_size=5,
        work={"groupByKey": "key", "minPeers": 3, "fluxPolicy": "kill"},
    )
    seen: dict[str, Counter[str]] = {}

    def hooks() -> dict[str, Any]:
        def note(event: Any, lifecycle: Any) -> None:
            keys = seen.setdefault(event["id"], Counter())
            keys.update(segment["key"] for segment in event["batch"])

        return {"after_read_batch": note}

    job["lifecycles"] = [{"task": "work", "calls": "m:calls"}]
    functions = {"m:same": lambda s: s, "m:calls": hooks}
    finish(Bench(job, functions, peers={"work": 3}))
    assert sum(map(len, seen.values())) == 7, "no key at two peers"
    assert all(count == 10 for keys in seen.values() for count in keys.values())


def test_batches_are_dealt_to_the_peers_of_every_child_in_turn() -> None:
    """Two children with two peers each: one turn for both would starve half of the peers."""
    bench = finish(Bench(fan_out(), {"m:same": lambda s: s}, peers={"out0": 2, "out1": 2}))
    for task in ("out0", "out1"):
        assert [len(output.written) for output in bench.outputs[task]] == [6, 6]


def test_a_slow_peer_gets_less() -> None:
    job = chain([{"n": n} for n in range(60)], batch_size=5, read={"maxPending": 1000})
    bench = Bench(job, {"m:same": lambda s: s}, peers={"work": 2})
    bench.start()
    slow = bench.task("work", 1)
    settings = bench.settings.task.inbox_segments_max
    assert settings >= 60, "the slow one could take all"
    for _ in range(200):
        for task in bench.tasks.values():
            if task is not slow:
                bench.step(task)
    assert 0 < len(bench.written("write")) < 60
    bench.settle()
    assert sorted(numbers(bench)) == list(range(60))


def test_a_source_of_several_partitions_is_shared_by_the_peers_of_the_task() -> None:
    job = chain([{"n": n} for n in range(20)], partitions=5)
    bench = finish(Bench(job, {"m:same": lambda s: s}, peers={"read": 2}))
    assert sorted(numbers(bench)) == list(range(20))
    exhausted = [each.partitions for each in bench.proposals("exhaust-input")]
    assert sorted(exhausted) == [(0, 1, 2), (3, 4)]


def test_what_is_read_again_is_what_was_at_its_position_though_some_has_completed_since() -> None:
    bench = Bench(chain(SEGMENTS[:10], batch_size=10), {"m:same": lambda segment: segment})
    bench.start()
    source = bench.task("read").runtime.source
    assert source is not None
    while not (batches := source.read()):
        pass
    (batch,) = batches
    source.replay_pending()
    source.complete(batch.roots[:3])
    (again,) = source.read()
    assert again.roots is not None
    found = [segment["n"] for segment in again.segments]
    assert found == positions_of(again.roots).tolist() == list(range(3, 10))


def test_of_trees_that_are_complete_one_is_an_example() -> None:
    bench = Bench(chain(SEGMENTS[:10], batch_size=10), {"m:same": lambda segment: segment})
    bench.start()
    source, metrics = bench.task("read").runtime.source, TalliedTask()
    assert source is not None
    while not (batches := source.read()):
        pass
    (batch,) = batches
    (name,) = (each.name for each in source.partitions.values())
    for chosen in (slice(0, 2), [4, 7]):
        source.complete(batch.roots[chosen], metrics)
        (example,) = filter(None, metrics.tally.complete.examples)
        assert example[1] == (name, 0 if isinstance(chosen, slice) else 4)


def test_a_flush_that_is_refused_does_not_write_the_batch_before_it_again() -> None:
    bench = Bench(chain(SEGMENTS, batch_size=5), {"m:same": lambda segment: segment})
    bench.start()
    output = bench.outputs["write"][0]
    flush, refusals = output.flush, [Unavailable("not now"), Unavailable("not yet")]

    def refusing() -> None:
        if refusals:
            raise refusals.pop()
        flush()

    output.flush = refusing  # type: ignore[method-assign]
    assert sorted(numbers(finish(bench))) == list(range(12))
    assert not refusals


def test_more_peers_than_partitions_leaves_some_without_work_and_the_job_completes() -> None:
    bench = finish(Bench(chain(SEGMENTS), {"m:same": lambda s: s}, peers={"read": 3}))
    assert numbers(bench) == list(range(12))


def test_an_empty_source_completes_at_once() -> None:
    bench = finish(Bench(chain([]), {"m:same": lambda s: s}))
    assert numbers(bench) == []


@pytest.mark.parametrize("short_circuit", [True, False])
@pytest.mark.parametrize("bad", [object(), {1}, 2**64, datetime(2026, 1, 1), {"deep": {1: 2}}])  # noqa: DTZ001
def test_a_value_that_cannot_travel_kills_the_job_and_is_named(
    bad: object, short_circuit: bool
) -> None:
    """Also in a segment that is not the first one, and inside one process."""
    functions = {"m:fn": lambda segment: segment | ({"bad": bad} if segment["n"] == 7 else {})}
    bench = Bench(chain(SEGMENTS, fn="m:fn"), functions, short_circuit=short_circuit)
    bench.settle()
    reported = bench.exceptions[0]
    assert (reported["task"], reported["phase"], reported["type"]) == (
        "work",
        "apply-fn",
        "SegmentError",
    )
    assert "key 'bad" in reported["message"]
    assert "1 of" not in reported["detail"]


@pytest.mark.parametrize("short_circuit", [True, False])
def test_what_may_travel_arrives_as_it_was(short_circuit: bool) -> None:
    value = [date(2026, 1, 2), Decimal("1.50"), (1, timedelta(days=-1, microseconds=5)), time(1, 2)]
    functions = {"m:fn": lambda segment: segment | {"v": value}, "m:same": dict}
    bench = finish(Bench(chain(SEGMENTS[:1], fn="m:fn"), functions, short_circuit=short_circuit))
    assert repr(bench.written("write")) == repr([SEGMENTS[0] | {"v": value}])


def test_what_cannot_travel_goes_the_way_of_exceptions() -> None:
    functions = {
        "m:fn": lambda segment: segment | ({"bad": {1}} if segment["n"] % 2 else {}),
        "m:any": lambda *arguments: True,
        "m:tell": lambda event, segment, error: {"n": segment["n"], "error": type(error).__name__},
    }
    job = chain(SEGMENTS[:4], fn="m:fn")
    job["flowConditions"] = [
        {"from": "work", "to": ["write"], "predicate": "m:any", "thrownException": True,
         "shortCircuit": True, "postTransform": "m:tell"},
        {"from": "work", "to": ["write"], "predicate": "m:any"},
    ]  # fmt: skip
    written = finish(Bench(job, functions)).written("write")
    reported = {segment["n"]: segment.get("error") for segment in written}
    assert reported == {0: None, 1: "SegmentError", 2: None, 3: "SegmentError"}


def raises(*arguments: Any) -> bool:
    raise ValueError("odd")


def errors_of_predicates() -> Bench:
    """A job whose predicate always raises, and what is written then."""
    job = chain(SEGMENTS[:2])
    job["flowConditions"] = [
        {"from": "work", "to": ["write"], "predicate": "m:raises", "predicateErrorsTo": ["write"]}
    ]
    bench = Bench(job, {"m:same": dict, "m:raises": raises})
    bench.settle()
    return bench


def test_an_error_of_a_predicate_is_a_segment_of_its_own_without_a_transform() -> None:
    error = {"type": "ValueError", "message": "odd"}
    found = errors_of_predicates()
    assert found.exceptions == []
    assert found.written("write") == [{"error": error, "segment": each} for each in SEGMENTS[:2]]


def test_what_a_transform_makes_must_travel_as_well() -> None:
    job = chain(SEGMENTS[:2], fn="m:raises")
    job["flowConditions"] = [
        {"from": "work", "to": ["write"], "predicate": "m:true", "thrownException": True,
         "shortCircuit": True, "postTransform": "m:set"},
    ]  # fmt: skip
    functions = {"m:raises": raises, "m:true": lambda *a: True, "m:set": lambda *a: {"bad": {1}}}
    bench = Bench(job, functions)
    bench.settle()
    assert "key 'bad' holds a set" in bench.exceptions[0]["message"]


def test_the_parameters_of_an_outputs_function_are_no_options_of_its_plugin() -> None:
    job = chain(SEGMENTS[:1])
    more = {"fn": "m:add", "params": ["amount"], "options": {"amount": 5}}
    job["catalog"][0].update(fn="m:add", params=["amount"])
    job["catalog"][0]["options"]["amount"] = 1
    job["catalog"][2].update(more)
    functions = {"m:same": lambda s: s, "m:add": lambda amount, s: {"n": s["n"] + amount}}
    assert finish(Bench(job, functions)).written("write") == [{"n": 6}]
