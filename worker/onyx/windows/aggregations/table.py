"""Which class an aggregation is: built-in ones by the name in the manifest, or the user's own.

What else is known of one stands in its row of `model.kinds`, which has the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onyx.errors import UserError
from onyx.flow.predicates import Resolve
from onyx.model.job import Window
from onyx.model.kinds import aggregation_name
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.collecting import CollectByKey, CollectKeyValue, Conj
from onyx.windows.aggregations.numbers import Average, Count, Max, Min, Sum
from onyx.windows.aggregations.user import (
    NEEDED,
    OPTIONAL,
    ArraysAggregation,
    ColumnsAggregation,
    UserAggregation,
)
from onyx.windows.user_functions import Call, check_needed, find_calls

BUILT_IN: Mapping[str, type[Aggregation]] = {
    "average": Average,
    "collect-by-key": CollectByKey,
    "collect-key-value": CollectKeyValue,
    "conj": Conj,
    "count": Count,
    "max": Max,
    "min": Min,
    "sum": Sum,
}


def built_in(name: str, key: str, initial: Any, where: str) -> Aggregation:
    """One of the aggregations that come with Onyx; arguments as `Aggregation` takes them."""
    return BUILT_IN[name](where, key, initial)


def compile_aggregation(window: Window, where: str, resolve: Resolve) -> Aggregation:
    """The aggregation that a window declares; `where` begins messages about it.

    Raises:
        UserError: a function of the user is missing or of the wrong kind.
    """
    name = aggregation_name(window.aggregation)
    if name in BUILT_IN:
        key = "" if isinstance(window.aggregation, str) else window.aggregation[1]
        return built_in(name, key, window.init, f"{where}: {name}")
    needed, optional = ("create_state_update", "apply_state_update"), ("init", "super_aggregation")
    calls = find_calls(name, where, (), (*needed, *optional, *NEEDED, *OPTIONAL), resolve)
    in_arrays = [each for each in calls if each in (*NEEDED, *OPTIONAL)]
    check_needed(calls, NEEDED if in_arrays else needed, f"{where}: {name}")
    if in_arrays:
        return _in_arrays(window, calls, f"{where}: {name}")
    if "init" not in calls and window.init is None:
        raise UserError(f"{where}: {name} returns no init; add it, or give the window an init")
    made = ColumnsAggregation if window.batch_format == "arrow" else UserAggregation
    return made(window, calls)


def _in_arrays(window: Window, calls: Mapping[str, Call], where: str) -> Aggregation:
    others = [each for each in calls if each not in (*NEEDED, *OPTIONAL)]
    if others:
        raise UserError(
            f"{where} returns {', '.join(others)} beside init_array and fold_array, which say the "
            "same: keep one of both forms"
        )
    if window.batch_format != "arrow":
        raise UserError(f"{where} takes record batches: give the window batchFormat: arrow")
    if window.init is not None:
        raise UserError(f"{where} has an init_array: remove init from the window")
    return ArraysAggregation(window, calls, where)
