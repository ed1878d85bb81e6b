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
from onyx.windows.aggregations.count import Count
from onyx.windows.aggregations.numbers import Average, Max, Min, Sum
from onyx.windows.aggregations.user import ColumnsAggregation, UserAggregation
from onyx.windows.user_functions import find_calls

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
    calls = find_calls(name, where, needed, optional, resolve)
    if "init" not in calls and window.init is None:
        raise UserError(f"{where}: {name} returns no init; add it, or give the window an init")
    made = ColumnsAggregation if window.batch_format == "arrow" else UserAggregation
    return made(window, calls)
