"""The size of batches where `batchSize` is left out: by load, cost, time and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.bench import Bench, chain

from onyx.flow.columns.record_batch import Columns
from onyx.model.job import CatalogEntry
from onyx.task.batching import (
    BATCH_BYTES_MAX,
    COLUMNS_CPU_ENOUGH_S,
    COSTLY_MAX_S,
    CPU_ENOUGH_S,
    PENDING_BATCHES,
    PENDING_MIN,
    SEGMENTS_MAX,
    TIME_MAX_S,
    BatchSizing,
)
from onyx.telemetry.recorder import ROOTS_MAX

SMALL = {"n": 1}


def sizing(**entry: Any) -> BatchSizing:
    return BatchSizing(CatalogEntry("read", "input", plugin="files", **entry))


def work(
    sizing: BatchSizing,
    took_s: Callable[[int], float],
    batches: int = 100,
    segment: dict[str, Any] = SMALL,
    there: int = ROOTS_MAX,
    cpu_share: float = 1.0,
    made_of_each: int = 1,
) -> BatchSizing:
    """Process batches of which each takes so long, by its size, with so many segments waiting, and
    so much of the time is the processor's."""
    for _ in range(batches):
        count = min(there, sizing.segments_max)
        sizing.taken(there)
        sizing.done(
            [segment] * count, made_of_each * count, took_s(count), cpu_share * took_s(count)
        )
    return sizing


def test_a_batch_size_that_is_given_stays() -> None:
    given = sizing(batch_size=20)
    work(given, lambda count: 0.0)
    work(given, lambda count: 100.0)
    assert given.segments_max == 20


def test_under_load_batches_grow_until_there_is_enough_work_in_each() -> None:
    found = work(sizing(), lambda count: count * 2e-6)
    assert CPU_ENOUGH_S <= found.segments_max * 2e-6 < 2 * CPU_ENOUGH_S


def test_in_a_process_with_a_part_of_a_processor_batches_hold_as_much_work() -> None:
    found = work(sizing(), lambda count: count * 8e-6, cpu_share=0.25)
    assert CPU_ENOUGH_S <= found.segments_max * 2e-6 < 2 * CPU_ENOUGH_S


def test_a_function_that_waits_for_each_segment_gets_batches_that_do_not_take_too_long() -> None:
    found = work(sizing(), lambda count: count * 1e-3, cpu_share=0.001)
    assert TIME_MAX_S / 5 < found.segments_max * 1e-3 <= TIME_MAX_S


def test_full_batches_grow_although_bad_records_are_taken_out_of_each() -> None:
    found, columns = sizing(), Columns(pa.record_batch({"n": pa.array(range(ROOTS_MAX))}))
    for _ in range(20):
        found.taken(ROOTS_MAX)
        good = found.segments_max * 9 // 10
        found.done(columns.slice(0, good), good, 1e-4, 1e-4)
        found.done([SMALL], 1, 1e-4, 1e-4)
    assert found.segments_max == ROOTS_MAX


def test_batches_that_are_not_full_do_not_grow() -> None:
    found = sizing()
    first = found.segments_max
    work(found, lambda count: 1e-6, there=first - 1)
    assert found.segments_max == first


def test_a_slow_function_gets_small_batches() -> None:
    found = work(sizing(), lambda count: count * 0.02)
    assert found.segments_max * 0.02 <= TIME_MAX_S


def test_a_slow_function_gets_small_batches_though_none_is_full() -> None:
    found = work(sizing(), lambda count: count * 0.02, there=50)
    assert found.segments_max * 0.02 <= TIME_MAX_S


def test_the_smallest_batch_is_one_segment() -> None:
    found = work(sizing(), lambda count: count * 60.0)
    assert found.segments_max == 1


@pytest.mark.parametrize("cost_s", [0.01, 0.06, 0.2])
def test_a_plugin_that_takes_long_for_any_batch_gets_large_ones(cost_s: float) -> None:
    each_s = 1e-4
    found = work(sizing(), lambda count: cost_s + count * each_s)
    took_s = cost_s + found.segments_max * each_s
    assert cost_s < took_s / 2 <= COSTLY_MAX_S


def test_a_plugin_that_has_become_fast_gets_larger_batches_again() -> None:
    found = work(sizing(), lambda count: count * 0.02)
    work(found, lambda count: count * 2e-6)
    assert found.segments_max * 2e-6 >= CPU_ENOUGH_S


def test_one_batch_that_was_interrupted_changes_little() -> None:
    found = work(sizing(), lambda count: count * 1e-6)
    before = found.segments_max
    work(found, lambda count: 0.3, batches=1)
    assert found.segments_max == before


def test_a_batch_of_large_segments_is_bounded_by_its_bytes() -> None:
    large = {"text": "x" * 10_000}
    found = work(sizing(), lambda count: count * 1e-6, segment=large)
    assert 0.8 * BATCH_BYTES_MAX < found.segments_max * 10_000 <= BATCH_BYTES_MAX


def test_a_segment_larger_than_a_batch_may_be_is_a_batch() -> None:
    huge = {"text": "x" * (BATCH_BYTES_MAX + 1)}
    assert work(sizing(), lambda count: 0.001, segment=huge, batches=1).segments_max == 1


def test_batches_shrink_soon_when_segments_get_large_and_grow_again() -> None:
    found = work(sizing(), lambda count: count * 1e-6)
    small = found.segments_max
    work(found, lambda count: count * 1e-6, segment={"text": "x" * 10_000}, batches=8)
    assert found.segments_max * 10_000 <= BATCH_BYTES_MAX
    work(found, lambda count: count * 1e-6, batches=1_000)
    assert found.segments_max == small


def test_the_bytes_of_columns_are_known() -> None:
    found = sizing()
    texts = pa.array(["x" * 10_000] * found.segments_max)
    found.taken(found.segments_max)
    columns = Columns(pa.record_batch([texts], names=["text"]))
    found.done(columns, len(columns), 0.001, 0.001)
    assert 1 <= found.segments_max * 10_000 <= BATCH_BYTES_MAX


def test_what_cannot_be_encoded_has_no_bytes_and_changes_nothing() -> None:
    found = work(sizing(), lambda count: count * 2e-6, segment={"s": object()})
    assert found.segments_max * 2e-6 >= CPU_ENOUGH_S


def test_dicts_of_a_batch_are_no_more_than_the_cache_holds() -> None:
    assert work(sizing(), lambda count: count * 1e-7).segments_max == SEGMENTS_MAX


def test_dicts_that_are_made_of_a_batch_count_as_well() -> None:
    found = work(sizing(), lambda count: count * 1e-7, made_of_each=10)
    assert SEGMENTS_MAX / 2 < 10 * found.segments_max <= SEGMENTS_MAX


def test_a_batch_that_costs_much_has_more_dicts_than_the_cache_holds() -> None:
    found = work(sizing(), lambda count: 0.05 + count * 1e-6)
    assert found.segments_max == ROOTS_MAX


def test_a_size_that_grew_because_of_one_slow_batch_shrinks_again() -> None:
    found = work(sizing(), lambda count: count * (1e-5 if count == SEGMENTS_MAX // 2 else 1e-6), 6)
    assert work(found, lambda count: count * 1e-6).segments_max == SEGMENTS_MAX


def test_a_batch_of_columns_grows_until_it_holds_several_times_the_work_of_one_of_dicts() -> None:
    found, columns = sizing(), Columns(pa.record_batch({"n": pa.array(range(ROOTS_MAX))}))
    for _ in range(40):
        found.taken(ROOTS_MAX)
        count, took_s = found.segments_max, found.segments_max * 1e-6
        found.done(columns.slice(0, count), count, took_s, took_s)
    assert CPU_ENOUGH_S < COLUMNS_CPU_ENOUGH_S <= found.segments_max * 1e-6
    assert found.segments_max * 1e-6 < 2 * COLUMNS_CPU_ENOUGH_S


def test_columns_of_a_batch_may_be_as_many_as_the_flight_recorder_holds() -> None:
    found, columns = sizing(), Columns(pa.record_batch({"n": pa.array(range(ROOTS_MAX))}))
    for _ in range(20):
        found.taken(ROOTS_MAX)
        found.done(columns.slice(0, found.segments_max), found.segments_max, 1e-4, 1e-4)
    assert found.segments_max == ROOTS_MAX


def test_rows_that_are_made_of_a_batch_are_never_too_many_for_the_flight_recorder() -> None:
    found, columns = sizing(), Columns(pa.record_batch({"n": pa.array(range(ROOTS_MAX))}))
    for _ in range(20):
        found.taken(ROOTS_MAX)
        found.done(columns.slice(0, found.segments_max), 10 * found.segments_max, 1e-4, 1e-4)
    assert ROOTS_MAX / 2 < 10 * found.segments_max <= ROOTS_MAX


def test_enough_may_be_in_flight_for_batches_that_have_grown() -> None:
    found = sizing()
    assert found.pending_max == PENDING_MIN
    work(found, lambda count: 0.0)
    assert found.pending_max == PENDING_BATCHES * found.segments_max > PENDING_MIN
    assert work(sizing(max_pending=50), lambda count: 0.0).pending_max == 50


def test_an_input_takes_larger_batches_while_it_is_full_and_the_job_completes() -> None:
    count = 3_000
    job = chain([{"n": n} for n in range(count)])
    for entry in job["catalog"]:
        del entry["batchSize"]
    bench = Bench(job, {"m:same": lambda segment: segment})
    bench.settle()
    assert bench.completed, bench.exceptions
    assert sorted(each["n"] for each in bench.written("write")) == list(range(count))
    assert bench.task("read").runtime.sizing.segments_max > 128


def test_few_segments_are_processed_at_once() -> None:
    job = chain([{"n": 1}])
    for entry in job["catalog"]:
        del entry["batchSize"]
    bench = Bench(job, {"m:same": lambda segment: segment})
    bench.settle()
    assert bench.clock.monotonic_s() < 60
    assert bench.completed, bench.exceptions


def test_a_batch_that_is_larger_than_its_task_wants_comes_in_parts() -> None:
    sizes: list[int] = []

    def work(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
        sizes.append(len(segments))
        return segments

    spec = chain([{"n": n} for n in range(1_000)], "m:work", 1_000, work={"batchFn": True})
    del spec["catalog"][1]["batchSize"]
    bench = Bench(spec, {"m:work": work})
    bench.settle()
    assert sum(sizes) == 1_000
    assert sizes[:2] == [128, 128]
    assert bench.written("write") == [{"n": n} for n in range(1_000)]
