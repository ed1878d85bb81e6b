"""What is acked and when: durability, flushes, limits, retries, re-allocation, the end."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.support.clocks import ManualClock
from tests.support.jobs.bench import Bench, chain

from onyx.errors import Unavailable
from onyx.flow.batch import U64
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.ledger.acker import Acker
from onyx.ledger.lineage import RANGE_POSITIONS
from onyx.plugins.protocol import Output, PluginContext
from onyx.program.phases import Phase
from onyx.task.acking import acker as acker_module
from onyx.task.acking.acker import EXPIRE_MARGIN_S, REPLAYS_MAX, AckerTask, idle_timeout_s
from onyx.task.channels.wiring import Site
from onyx.task.table import TaskKind
from onyx.task.task import Stop
from onyx.telemetry.catalog import ACKS, FORGOTTEN_TREES, OPEN_TREES, Metric
from onyx.telemetry.interface import NULL_TASK, TaskMetrics
from onyx.transport.interface import FLUSH, Channel

SAME = {"m:same": lambda segment: segment}


def segments(count: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in range(count)]


def numbers(bench: Bench) -> list[int]:
    return [segment["n"] for segment in bench.written("write")]


def in_flight(bench: Bench, index: int = 0) -> int:
    source = bench.task("read", index).runtime.source
    assert source is not None
    return source.in_flight


def test_only_what_is_durable_is_acked() -> None:
    bench = Bench(chain(segments(6)), SAME)
    bench.start()
    output = bench.outputs["write"][0]
    output.flushes = False
    bench.settle()
    assert numbers(bench) == list(range(6))
    assert in_flight(bench) == 6
    output.durable_count = 3
    bench.settle()
    assert in_flight(bench) == 3
    assert not bench.completed
    output.durable_count = 6
    bench.settle()
    assert in_flight(bench) == 0
    assert bench.completed


def test_what_an_output_filters_is_acked_without_being_durable() -> None:
    job = chain(segments(6))
    job["catalog"][2]["fn"] = "m:none"
    bench = Bench(job, {**SAME, "m:none": lambda segment: None})
    bench.settle()
    assert numbers(bench) == []
    assert bench.completed


def test_an_input_has_at_most_max_pending_segments_in_flight() -> None:
    bench = Bench(chain(segments(40), read={"maxPending": 10}), SAME)
    bench.start()
    output = bench.outputs["write"][0]
    output.flushes = False
    bench.settle()
    assert in_flight(bench) == 9, "room for one more is not worth a batch of three"
    assert len(numbers(bench)) == 9
    output.durable_count = 3
    bench.settle()
    assert in_flight(bench) == 9
    assert len(numbers(bench)) == 12


def test_outputs_are_asked_to_flush_when_half_of_max_pending_is_out_and_at_the_end() -> None:
    bench = Bench(chain(segments(23), batch_size=2, read={"maxPending": 10}), SAME)
    bench.start()
    seen: list[int] = []
    output = bench.outputs["write"][0]
    for _ in range(400):
        before = output.calls.count("flush")
        bench.round()
        if output.calls.count("flush") > before:
            seen.append(len(output.written))
    assert seen[-1] == 23, "what is left at the end is flushed too"
    steps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert all(0 < step <= 10 for step in steps), "never more than may be pending, or it would hang"
    assert bench.completed


def test_a_flow_condition_with_retry_sends_the_segment_again_as_a_new_attempt() -> None:
    tries: dict[int, int] = {}

    def heals(segment: dict[str, Any]) -> dict[str, Any]:
        tries[segment["n"]] = tries.get(segment["n"], 0) + 1
        if segment["n"] % 2 and tries[segment["n"]] < 3:
            raise ValueError("not yet")
        return segment

    retry = {
        "from": "work",
        "to": "none",
        "predicate": "m:always",
        "thrownException": True,
        "shortCircuit": True,
        "action": "retry",
    }
    rest = {"from": "work", "to": ["write"], "predicate": "m:always"}
    job = chain(segments(6), fn="m:heals", flowConditions=[retry, rest])
    bench = Bench(job, {"m:heals": heals, "m:always": lambda *_: True})
    for _ in range(3):
        bench.settle()
        bench.clock.advance(1.0)
    assert bench.completed
    assert sorted(numbers(bench)) == list(range(6)), "each came out once"
    assert tries == {0: 1, 1: 3, 2: 1, 3: 3, 4: 1, 5: 3}


def test_what_times_out_is_read_again_and_sent_once_more() -> None:
    bench = Bench(chain(segments(6), read={"pendingTimeout": 5000}), SAME)
    bench.start()
    bench.settle(["read"])
    bench.task("work").allocation.inbox.take(100)
    bench.clock.advance(4.0)
    bench.settle()
    assert numbers(bench) == []
    bench.clock.advance(2.0)
    bench.settle()
    assert sorted(numbers(bench)) == list(range(6))
    assert bench.completed


def test_a_reallocation_replays_exactly_what_was_pending() -> None:
    bench = Bench(chain(segments(9)), SAME, peers={"work": 2})
    bench.start()
    output = bench.outputs["write"][0]
    output.flushes = False
    bench.settle()
    output.durable_count = 3
    bench.settle()
    assert in_flight(bench) == 6
    pending = sorted(numbers(bench)[3:])
    output.flushes = True
    bench.rewire(work=1)
    bench.settle()
    assert sorted(numbers(bench)[9:]) == pending
    assert bench.completed


def test_nothing_of_an_old_allocation_version_is_acked_in_the_new_one() -> None:
    bench = Bench(chain(segments(6)), SAME)
    bench.start()
    output = bench.outputs["write"][0]
    output.flushes = False
    bench.settle()
    bench.rewire()
    output.durable_count = 6
    bench.until(lambda: bench.task("write").phase is Phase.AWAIT_READY)
    bench.settle(["write"])
    assert in_flight(bench) == 6
    output.flushes = True
    bench.settle()
    assert bench.completed


def test_a_partition_goes_on_at_its_frontier_when_its_peer_leaves_the_task() -> None:
    job = chain(segments(20), partitions=2, read={"maxPending": 4})
    bench = Bench(job, SAME, peers={"read": 2})
    bench.start()
    output = bench.outputs["write"][0]
    output.flushes = False
    bench.settle()
    output.durable_count = 8
    bench.settle()
    leaving = bench.task("read", 1)
    assert leaving.runtime.source is not None
    leaving.runtime.source.save_frontiers()
    frontier = leaving.runtime.source.partitions[1].pending.frontier
    assert frontier > 0
    output.flushes = True
    bench.rewire(read=1)
    bench.settle()
    assert bench.completed
    assert sorted(set(numbers(bench))) == list(range(20))
    first_of_partition_1 = next(n for n in range(20) if n % 2 == 1)
    assert numbers(bench).count(first_of_partition_1) == 1, "below the frontier nothing is replayed"


def test_the_end_of_input_is_told_without_a_ledger_under_at_most_once() -> None:
    job = chain(segments(20), partitions=2, guarantee="at-most-once")
    bench = Bench(job, SAME, peers={"read": 2, "work": 3, "write": 2})
    bench.start()
    for output in bench.outputs["write"]:
        output.flushes = False
    bench.settle()
    assert sorted(numbers(bench)) == list(range(20))
    assert bench.proposals("exhaust-input") == [], "not before the outputs have it all durable"
    for output in bench.outputs["write"]:
        output.durable_count = len(output.written)
    bench.settle()
    assert bench.completed
    batches = [task.work.batch for task in bench.tasks.values() if task.kind is not TaskKind.INPUT]
    assert batches == [None] * 5


def test_at_most_once_sends_nothing_twice_when_the_job_is_reallocated() -> None:
    job = chain(segments(30), guarantee="at-most-once")
    bench = Bench(job, SAME, peers={"work": 2})
    bench.start()
    for _ in range(30):
        bench.round()
    assert numbers(bench)
    bench.rewire(work=1)
    bench.settle()
    assert bench.completed
    assert len(numbers(bench)) == len(set(numbers(bench)))


@pytest.mark.parametrize("failures", [0, 1, 2, 3])
def test_sealing_is_tried_again_before_it_kills_the_job(failures: int) -> None:
    bench = Bench(chain(segments(3)), SAME, seal_failures=failures)
    for _ in range(5):
        bench.settle()
        bench.clock.advance(1.0)
    assert bench.completed is (failures < 3)
    if failures == 3:
        reported = bench.exceptions[0]
        assert (reported["phase"], reported["type"], reported["message"]) == (
            "seal",
            "OSError",
            "disk full",
        )
        assert "3 times" in reported["detail"]


def test_sealing_waits_two_minutes_for_what_cannot_be_reached() -> None:
    bench = Bench(chain(segments(3)), SAME, seal_failures=1_000)
    bench.seal_error = Unavailable("no server answers")
    for _ in range(11):
        bench.settle()
        assert bench.exceptions == []
        assert "no server answers" in bench.task("write").status.obstacle
        bench.clock.advance(10.0)
    bench.seal_failures = 0
    bench.clock.advance(30.0)
    bench.settle()
    assert bench.completed
    assert bench.task("write").status.obstacle == ""


def test_an_output_seals_though_control_items_keep_coming() -> None:
    bench = Bench(chain(segments(3)), SAME)
    bench.start()
    write, work = bench.task("write"), bench.task("work")
    channel = Channel(bench.id, write.allocation.wiring.version, work.peer, write.peer)
    for _ in range(400):
        bench.transport.send(write.allocation.wiring.me.group, channel, FLUSH)
        bench.clock.advance(0.01)
        bench.round()
    assert bench.completed


def test_a_plugin_sees_at_once_that_its_task_was_told_to_stop() -> None:
    contexts: list[PluginContext] = []

    class Noting(Bench):
        def build_output(self, plugin: str, context: PluginContext) -> Output:
            contexts.append(context)
            return super().build_output(plugin, context)

    bench = Noting(chain(segments(3)), SAME)
    bench.start()
    (context,) = contexts
    assert context.wanted()
    bench.task("write").post(Stop("job-killed"))
    assert not context.wanted()


def test_a_seal_that_waits_to_be_tried_again_is_not_forgotten_when_the_job_is_rewired() -> None:
    bench = Bench(chain(segments(3)), SAME, seal_failures=1)
    bench.settle()
    assert bench.outputs["write"][0].calls[-1] == "seal"
    assert not bench.completed
    bench.rewire()
    bench.clock.advance(1.0)
    bench.settle()
    assert bench.completed


def test_the_dead_are_fenced_off_before_a_peer_signals_ready() -> None:
    bench = Bench(chain(segments(3)), SAME)
    bench.start()
    assert bench.outputs["write"][0].calls == ["fence"]
    bench.rewire()
    bench.settle()
    assert bench.outputs["write"][0].calls.count("fence") == 2


def test_an_acker_forgets_no_tree_before_its_input_reads_it_again() -> None:
    day_ms = 24 * 3_600_000
    for change, expected_s in (
        ({}, 60 + 2 + EXPIRE_MARGIN_S),
        ({"pendingTimeout": day_ms}, 24 * 3_600 + 2 + EXPIRE_MARGIN_S),
        ({"pendingTimeout": 1_000, "inputRetryTimeout": 500}, 1 + 1 + EXPIRE_MARGIN_S),
    ):
        assert idle_timeout_s(Bench(chain(segments(1), read=change), SAME).job) == expected_s


def test_trees_for_which_the_acker_has_no_room_are_replayed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acker_module, "Acker", partial(Acker, ranges_max=1, trees_max=1))
    sent: list[tuple[list[int], int]] = []

    class Refusing:
        """Takes nothing at first."""

        room = False

        def send_completions(self, *args: Any) -> bool:
            if self.room:
                sent.append((args[4].tolist(), args[5]))
            return self.room

    class One:
        def split(self, roots: U64) -> list[tuple[Site, U64]]:
            site = Site(PeerId("p"), GroupId("g"))
            return [(site, roots)] if len(roots) else []

    transport = Refusing()
    version, clock = AllocationVersion(1), ManualClock()
    task = AckerTask(transport, clock, JobId("j"), version, lambda: None, lambda: None)  # type: ignore[arg-type]
    task.ready(One())  # type: ignore[arg-type]
    ranges = np.arange(4, dtype=np.uint64) * np.uint64(RANGE_POSITIONS)
    task.post(ranges, np.full(4, 7, np.uint64))
    task.advance()
    assert sent == []
    transport.room = True
    task.advance()
    assert sent == [(ranges[:2].tolist(), REPLAYS_MAX)]


def test_an_acker_counts_acks_open_trees_and_those_that_it_has_no_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acker_module, "Acker", partial(Acker, ranges_max=1, trees_max=1))
    counted: Counter[str] = Counter()
    gauges: dict[str, float] = {}
    closed: list[bool] = []

    class Counting(TaskMetrics):
        def add(self, metric: Metric, amount: float = 1) -> None:
            counted[metric.name] += int(amount)

        def set(self, metric: Metric, value: float) -> None:
            gauges[metric.name] = value

        def close(self) -> None:
            closed.append(True)

    class Takes:
        def send_completions(self, *args: Any) -> bool:
            return True

    class One:
        def split(self, roots: U64) -> list[tuple[Site, U64]]:
            return [(Site(PeerId("p"), GroupId("g")), roots)] if len(roots) else []

    clock, loaded = ManualClock(), [NULL_TASK]
    task = AckerTask(
        Takes(), clock, JobId("j"), AllocationVersion(1), lambda: None, lambda: None,  # type: ignore[arg-type]
        lambda: loaded[-1],
    )  # fmt: skip
    task.ready(One())  # type: ignore[arg-type]
    task.advance()
    loaded.append(Counting())
    ranges = np.arange(4, dtype=np.uint64) * np.uint64(RANGE_POSITIONS)
    task.post(ranges, np.full(4, 7, np.uint64))
    task.advance()
    clock.advance(10.0)
    task.advance()
    assert counted == {ACKS.name: 4, FORGOTTEN_TREES.name: 2}
    assert gauges == {OPEN_TREES.name: 2}
    task.stopped = True
    task.advance()
    assert closed == [True]
