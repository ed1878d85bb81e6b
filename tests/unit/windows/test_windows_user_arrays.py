"""A user's aggregation over arrays: what it computes, in arrays or not, and what it may not do."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.support.windows.short import WATERMARK, add_grouped, shown, task_windows

from onyx.errors import UserError
from onyx.flow.columns.record_batch import from_dicts
from onyx.flow.groups.codes import KeyCodes
from onyx.keystate.coded import GroupKeys

ROWS = [{"at": n, "k": "ab"[n % 2], "v": n} for n in range(5)]


def first(window: Any, count: int) -> dict[str, Any]:
    return {"n": np.zeros(count, np.int64), "best": np.full(count, -1.0)}


def fold(window: Any, states: Any, groups: Any, rows: Any) -> dict[str, Any]:
    np.add.at(states["n"], groups, 1)
    np.maximum.at(states["best"], groups, rows["v"].to_numpy().astype(float))
    return states


def merge(window: Any, one: Any, other: Any) -> dict[str, Any]:
    return {"n": one["n"] + other["n"], "best": np.maximum(one["best"], other["best"])}


CALLS = {"init_array": first, "fold_array": fold, "merge_array": merge}


def windows(calls: Any = CALLS, columns: bool = True, **window: Any) -> Any:
    shape = {"aggregation": "m:best", "batch_format": "arrow", **window}
    functions = {"m:best": lambda: calls}
    return task_windows((shape, [WATERMARK]), group_by="k", functions=functions, columns=columns)


def add(made: Any) -> None:
    batch, _, _ = from_dicts(ROWS)
    made.add(batch, GroupKeys().of(KeyCodes.of_column(batch, "k")), 0)


@pytest.mark.parametrize("columns", [True, False])
def test_states_are_dicts_of_the_arrays_wherever_they_are(columns: bool) -> None:
    made = windows(columns=columns)
    if columns:
        add(made)
    else:
        add_grouped(made, *ROWS)
    assert sorted(shown(made.advance(100))) == [
        "t0 'a' 0-9: {'n': 3, 'best': 4.0}",
        "t0 'b' 0-9: {'n': 2, 'best': 3.0}",
    ]


def test_sessions_merge_by_merge_array() -> None:
    made = windows(type="session", timeout_gap=(3, "elements"))
    add_grouped(made, {"at": 0, "k": "a", "v": 1}, {"at": 6, "k": "a", "v": 2})
    add_grouped(made, {"at": 3, "k": "a", "v": 9})
    assert shown(made.advance(100)) == ["t0 'a' 0-6: {'n': 3, 'best': 9.0}"]


def test_one_array_has_numbers_as_states() -> None:
    calls = {
        "init_array": lambda _, count: np.zeros(count),
        "fold_array": lambda _, states, groups, rows: states + np.bincount(groups, rows["v"]),
    }
    made = windows(calls)
    add(made)
    assert sorted(shown(made.advance(100))) == ["t0 'a' 0-9: 6.0", "t0 'b' 0-9: 4.0"]


@pytest.mark.parametrize(
    ("calls", "window", "reported"),
    [
        ({"fold_array": fold}, {}, "returns no init_array; add them"),
        ({**CALLS, "init": first}, {}, "returns init beside init_array and fold_array"),
        (CALLS, {"batch_format": "dicts"}, "takes record batches: give the window batchFormat"),
        (CALLS, {"init": 3}, "has an init_array: remove init from the window"),
        (
            {"init_array": first, "fold_array": fold},
            {"type": "session", "timeout_gap": (3, "elements")},
            "has no merge_array, which a session window needs",
        ),
        (
            {**CALLS, "init_array": lambda _, count: [0] * count},
            {},
            "init_array must return arrays of 1 numbers, not a list",
        ),
        (
            {**CALLS, "init_array": lambda _, count: np.array(["a"] * count)},
            {},
            "init_array must return arrays of 1 numbers, not <U1 (1,)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_the_job_runs(
    calls: Any, window: dict[str, Any], reported: str
) -> None:
    with pytest.raises(UserError, match=re.escape(reported)):
        windows(calls, **window)


@pytest.mark.parametrize(
    ("made", "reported"),
    [
        (lambda states: None, "fold_array must return a dict of n, best, not a NoneType"),
        (lambda states: {"n": states["n"]}, "fold_array must return a dict of n, best"),
        (
            lambda states: {**states, "n": states["n"][:1]},
            "fold_array must return arrays of 2 numbers, not int64 (1,)",
        ),
        (
            lambda states: {**states, "n": states["n"] + 0.5},
            "fold_array must return arrays of the types of init_array (int64, float64)",
        ),
    ],
)
def test_what_fold_array_may_not_return_is_reported(made: Any, reported: str) -> None:
    found = windows({**CALLS, "fold_array": lambda _, states, *more: made(states)})
    with pytest.raises(UserError, match=re.escape(reported)):
        add(found)
