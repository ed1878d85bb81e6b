import itertools
import math

import numpy as np
import pytest

import onyx
from onyx.errors import UserError, UserFunctionError
from onyx.flow import leaves as leaves_module
from onyx.flow.leaves import apply_function, resolve_params
from onyx.functions.retry import retries_of
from onyx.model.job import CatalogEntry

BATCH = [{"n": n} for n in range(4)]


def columns(leaves):
    parents = None if leaves.parents is None else leaves.parents.tolist()
    index = None if leaves.child_index is None else leaves.child_index.tolist()
    return [segment["n"] for segment in leaves.segments], parents, index


def times_ten(segment):
    return {"n": segment["n"] * 10}


def odd_only(segment):
    return segment if segment["n"] % 2 else None


def as_many_as_n(segment):
    return [{"n": segment["n"] * 10 + i} for i in range(segment["n"])]


def fails_on(*numbers):
    calls = []

    def fn(segment):
        calls.append(segment["n"])
        if segment["n"] in numbers:
            raise ValueError(f"no {segment['n']}")
        return segment

    fn.calls = calls
    return fn


def test_one_dict_each_needs_no_columns():
    assert columns(apply_function(times_ten, (), BATCH)) == ([0, 10, 20, 30], None, None)


def test_none_and_empty_lists_end_a_segment():
    assert columns(apply_function(odd_only, (), BATCH)) == ([1, 3], [1, 3], None)
    empty = apply_function(lambda s: [] if s["n"] < 3 else s, (), BATCH)
    assert columns(empty) == ([3], [3], None)
    assert columns(apply_function(lambda s: None, (), BATCH)) == ([], [], None)
    assert columns(apply_function(lambda s: (), (), BATCH)) == ([], [], None)


def test_an_empty_dict_is_a_segment():
    leaves = apply_function(lambda s: {} if s["n"] else None, (), BATCH)
    assert leaves.segments == [{}, {}, {}]
    assert leaves.parents.tolist() == [1, 2, 3]


def test_lists_are_flattened_in_order():
    segments, parents, index = columns(apply_function(as_many_as_n, (), BATCH))
    assert segments == [10, 20, 21, 30, 31, 32]
    assert parents == [1, 2, 2, 3, 3, 3]
    assert index == [0, 0, 1, 0, 1, 2]


def test_results_of_every_kind_mix():
    results = iter([{"n": 1}, None, [{"n": 2}, {"n": 3}], ({"n": 4},)])
    leaves = apply_function(lambda s: next(results), (), BATCH)
    assert columns(leaves) == ([1, 2, 3, 4], [0, 2, 2, 3], [0, 0, 1, 0])
    assert leaves.failures == []


def test_generators_are_lists_too():
    def both(segment):
        yield segment
        yield {"n": -segment["n"]}

    assert columns(apply_function(both, (), BATCH[1:3])) == (
        [1, -1, 2, -2],
        [0, 0, 1, 1],
        [0, 1, 0, 1],
    )


def test_an_endless_generator_is_a_failure_and_not_the_end_of_memory(monkeypatch):
    monkeypatch.setattr(leaves_module, "LEAVES_MAX", 100)
    leaves = apply_function(lambda s: ({"n": n} for n in itertools.count()), (), BATCH[:1])
    [(index, error)] = leaves.failures
    assert index == 0
    assert "more than 100 segments" in str(error)


def test_a_generator_that_raises_midway_has_no_leaves():
    def one_then_fail(segment):
        yield segment
        raise ValueError("midway")

    leaves = apply_function(one_then_fail, (), BATCH[:2])
    assert leaves.segments == []
    assert [index for index, _ in leaves.failures] == [0, 1]


def test_what_one_segment_raises_does_not_lose_the_others_nor_calls_twice():
    fn = fails_on(0, 2, 3)
    leaves = apply_function(fn, (), BATCH)
    assert fn.calls == [0, 1, 2, 3]
    assert columns(leaves) == ([1], [1], None)
    assert [(i, str(error)) for i, error in leaves.failures] == [
        (0, "no 0"),
        (2, "no 2"),
        (3, "no 3"),
    ]


def test_stop_iteration_from_a_function_is_a_failure_like_any_other():
    leaves = apply_function(lambda s: next(iter(())), (), BATCH[:2])
    assert [type(error) for _, error in leaves.failures] == [StopIteration] * 2


@pytest.mark.parametrize("batch_fn", [False, True])
def test_what_would_end_the_thread_is_a_failure_with_its_cause(batch_fn):
    def interrupted(segment):
        raise KeyboardInterrupt

    leaves = apply_function(interrupted, (), BATCH, batch_fn)
    assert [index for index, _ in leaves.failures] == list(range(len(BATCH)))
    for _, error in leaves.failures:
        assert isinstance(error, UserFunctionError)
        assert isinstance(error.__cause__, KeyboardInterrupt)


@pytest.mark.parametrize(
    ("result", "named"),
    [
        ({1, 2}, "returned a set"),
        (7, "returned an int"),
        (0, "returned an int"),
        ("", "returned a str"),
        (np.zeros(3), "returned a numpy.ndarray"),
        ([{"n": 1}, 7], "list that holds an int"),
        ([None], "list that holds a NoneType"),
    ],
)
def test_a_result_that_is_no_segment_is_a_failure_that_says_what_came(result, named):
    leaves = apply_function(lambda s: result if s["n"] == 1 else s, (), BATCH)
    assert [segment["n"] for segment in leaves.segments] == [0, 2, 3]
    [(index, error)] = leaves.failures
    assert index == 1
    assert isinstance(error, UserFunctionError)
    assert named in str(error)


def test_failures_of_both_kinds_are_in_order_of_the_batch():
    def fn(segment):
        if segment["n"] == 2:
            raise ValueError
        return 7 if segment["n"] in (1, 3) else segment

    leaves = apply_function(fn, (), BATCH)
    assert [index for index, _ in leaves.failures] == [1, 2, 3]


def test_a_subclass_of_dict_is_a_segment():
    class Row(dict):
        pass

    leaves = apply_function(lambda s: Row(s) if s["n"] % 2 else s, (), BATCH)
    assert columns(leaves) == ([0, 1, 2, 3], [0, 1, 2, 3], [0, 0, 0, 0])


def test_params_come_first():
    leaves = apply_function(lambda a, b, s: {"n": (a, b, s["n"])}, (1, 2), BATCH[3:])
    assert leaves.segments == [{"n": (1, 2, 3)}]


def test_an_empty_batch_has_no_leaves():
    assert columns(apply_function(times_ten, (), [])) == ([], None, None)
    assert len(apply_function(lambda batch: batch, (), [], batch_fn=True)) == 0


def test_a_batch_function_takes_and_gives_whole_batches():
    def fn(factor, batch):
        return [{"n": s["n"] * factor} for s in batch]

    assert columns(apply_function(fn, (3,), BATCH, batch_fn=True)) == ([0, 3, 6, 9], None, None)


def test_a_batch_function_may_answer_none_or_several():
    leaves = apply_function(lambda b: [None, [], b[2], [b[3], b[3]]], (), BATCH, batch_fn=True)
    assert columns(leaves) == ([2, 3, 3], [2, 3, 3], [0, 0, 1])


@pytest.mark.parametrize(
    ("result", "named"),
    [([], "0 results for 4"), (None, "a NoneType for 4"), (iter(()), "for 4 segments")],
)
def test_a_batch_function_with_the_wrong_number_of_results_fails_every_segment(result, named):
    leaves = apply_function(lambda batch: result, (), BATCH, batch_fn=True)
    assert len(leaves) == 0
    assert leaves.parents.tolist() == []
    assert [index for index, _ in leaves.failures] == [0, 1, 2, 3]
    assert named in str(leaves.failures[0][1])


def test_a_batch_function_that_raises_fails_every_segment():
    leaves = apply_function(lambda batch: math.sqrt(-1), (), BATCH, batch_fn=True)
    assert [type(error) for _, error in leaves.failures] == [ValueError] * 4


def test_a_batch_function_cannot_shrink_the_batch_it_was_given():
    batch = list(BATCH)

    def fn(given):
        given.clear()
        return BATCH

    apply_function(fn, (), batch, batch_fn=True)
    assert batch == BATCH


def entry(*params, **options):
    return CatalogEntry("parse", "function", 1, params=params, options=options)


def test_params_are_the_peers_then_the_catalogs_in_the_order_of_the_list():
    assert resolve_params({"parse": [42]}, entry("y", "x", x=1, y=2)) == [42, 2, 1]
    assert resolve_params({"other": [42]}, entry("x", x=1)) == [1]


def test_a_param_without_a_value_names_task_and_key():
    with pytest.raises(UserError, match=r"task 'parse'.*'minDelay'.*options"):
        resolve_params({}, entry("minDelay"))


# --- retries -------------------------------------------------------------------------------------


class Busy(onyx.Retry):
    max_retries = 3


@pytest.mark.parametrize(
    "asks",
    [
        lambda s: onyx.FAIL,
        lambda s: [s, onyx.FAIL],
        lambda s: (each for each in (s, onyx.FAIL)),
        lambda s: onyx.Retry("busy"),
    ],
)
def test_a_result_that_asks_for_a_retry_leaves_nothing_else_of_its_segment(asks):
    leaves = apply_function(lambda s: asks(s) if s["n"] == 2 else s, (), BATCH)
    assert columns(leaves)[:2] == ([0, 1, 3], [0, 1, 3])
    assert [(index, type(error)) for index, error in leaves.failures] == [(2, onyx.Retry)]


def test_a_batch_function_asks_for_some_of_its_segments():
    def fn(batch):
        return [onyx.FAIL, batch[1], Busy("third"), None]

    leaves = apply_function(fn, (), BATCH, batch_fn=True)
    assert columns(leaves) == ([1], [1], [0])
    [(_, first), (at, second)] = leaves.failures
    assert (str(first), retries_of(first)) == ("the function returned onyx.FAIL", 10)
    assert (at, str(second), retries_of(second)) == (2, "third", 3)


@pytest.mark.parametrize("most", [0, -1, 10_001, True, 2.0])
def test_a_retry_says_how_often_it_may_be_asked_for(most):
    with pytest.raises(ValueError, match="give 1 to 10,000"):
        onyx.Retry("busy", max_retries=most)


@pytest.mark.parametrize(("most", "used"), [(5, 5), (0, 0), (-1, 0), (1 << 40, 10_000), ("x", 0)])
def test_a_number_of_retries_that_a_class_has_is_kept_within_limits(most, used):
    assert retries_of(type("Mine", (onyx.Retry,), {"max_retries": most})()) == used
