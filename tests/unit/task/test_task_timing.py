"""Seconds of a batch by stage, and what is back-pressure instead."""

from __future__ import annotations

from tests.support.clocks import ManualClock

from onyx.task.batching import BatchTimer
from onyx.telemetry.metrics import PrometheusGroupMetrics

TASK = {"job": "flights", "task": "parse"}


class Batch:
    """One task whose clock moves only when the test says so."""

    def __init__(self) -> None:
        self._group = PrometheusGroupMetrics()
        self.metrics = self._group.task("flights", "parse")
        self.clock = ManualClock()
        self.timer = BatchTimer(self.clock)

    def run(self, read_s: int, apply_s: int, write_s: int, *held_s: int) -> None:
        self.timer.begin(cpu=True)
        self.clock.advance(read_s)
        self.timer.read()
        self.clock.advance(apply_s)
        self.timer.applied()
        self.clock.advance(write_s)
        for seconds in held_s:
            self.timer.refused(self.metrics)
            self.clock.advance(seconds)
        self.timer.written(self.metrics)
        self.timer.report(self.metrics, 10, 10)

    def stage(self, stage: str) -> float | None:
        labels = {**TASK, "stage": stage}
        return self._group.registry.get_sample_value("onyx_task_batch_seconds_sum", labels)

    def total(self, name: str) -> float | None:
        return self._group.registry.get_sample_value(f"onyx_task_{name}_seconds_total", TASK)


def test_each_stage_has_its_own_seconds() -> None:
    batch = Batch()
    batch.run(1, 20, 300)
    batch.clock.advance(5_000)
    batch.run(1, 20, 300)
    assert [batch.stage(stage) for stage in ("read", "apply", "write")] == [2, 40, 600]
    assert batch.total("busy") == 642
    assert batch.total("backpressured") == 0


def test_waiting_for_a_destination_is_no_work_and_is_told_while_it_lasts() -> None:
    batch = Batch()
    batch.run(1, 2, 3, 40, 500)
    assert batch.total("busy") == 6
    assert batch.total("backpressured") == 540
    batch.run(1, 2, 3)
    assert batch.total("busy") == 12
    assert batch.total("backpressured") == 540


def test_a_batch_that_was_given_up_while_held_leaves_nothing_behind() -> None:
    batch = Batch()
    batch.timer.begin()
    batch.timer.refused(batch.metrics)
    batch.clock.advance(60)
    batch.run(1, 2, 3)
    assert batch.total("backpressured") == 0


def test_the_work_on_a_batch_is_told_without_back_pressure() -> None:
    batch = Batch()
    batch.run(1, 20, 300, 4_000)
    assert (batch.timer.busy_s(reading=True), batch.timer.busy_s(reading=False)) == (321, 320)
    assert batch.timer.cpu_s == 321


def test_cpu_time_is_measured_only_where_it_is_asked_for() -> None:
    batch = Batch()
    batch.timer.begin()
    batch.timer.written(batch.metrics)
    assert batch.timer.cpu_s is None
