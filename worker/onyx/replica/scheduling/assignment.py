"""The assignment problem: rows get columns so that the costs of all are least.

Rows and columns are of few kinds, so this is a transportation problem: kinds of rows have a supply,
kinds of columns a capacity. Solved by successive shortest paths, each found by the rounds of
Bellman and Ford over all pairs of kinds at once, as arrays of NumPy: R. K. Ahuja, T. L. Magnanti
and J. B. Orlin, "Network Flows", 1993, section 9.7.

Every worker computes the same allocation of the same log, so ties are decided here, by the order of
kinds and columns. Rejected: SciPy's solver of single rows and columns. It is 100 MB for one call,
and its ties may be decided otherwise in another version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_NONE = -1


def cheapest(
    costs: Sequence[Sequence[float]],
    kinds: Sequence[int],
    free: Mapping[int, int],
    rows: Sequence[int],
    forbidden: float,
) -> list[int] | None:
    """The column of each row; None if some row can only have one that is forbidden.

    Args:
        costs: of each kind of row and each kind of column.
        kinds: the kind of each column.
        free: columns that cost nothing, each with the kind of row for which that holds.
        rows: the kind of each row; there are no more of them than columns.
        forbidden: what is as dear as this is.
    """
    alike: dict[tuple[int, int], list[int]] = {}
    for column, kind in enumerate(kinds):
        alike.setdefault((kind, free.get(column, _NONE)), []).append(column)
    by_class = np.array(costs, np.float64)[:, [kind for kind, _ in alike]]
    for index, (_, row) in enumerate(alike):
        if row != _NONE:
            by_class[row, index] = 0.0
    supply = Counter(rows)
    shares = _shares(
        by_class,
        [supply[kind] for kind in range(len(costs))],
        np.array([len(columns) for columns in alike.values()]),
    )
    assert int(shares.sum()) == len(rows), "each row has a column"
    if (shares[by_class >= forbidden] > 0).any():
        return None
    waiting = [iter(columns) for columns in alike.values()]
    order = {kind: iter(np.repeat(np.arange(len(alike)), shares[kind]).tolist()) for kind in supply}
    return [next(waiting[next(order[kind])]) for kind in rows]


def _shares(costs: Any, supply: Sequence[int], capacity: Any) -> Any:
    """How many columns of each class every kind of row gets, so that the sum of costs is least."""
    shares = np.zeros(costs.shape, np.int64)
    for source, wanted in enumerate(supply):
        while wanted:
            classes, rows = _path(costs, shares, capacity, source)
            # A row takes the class before it on the path, and gives up the one behind it.
            many = min(wanted, capacity[classes[0]], *shares[rows[:-1], classes[1:]].tolist())
            shares[rows, classes] += many
            shares[rows[:-1], classes[1:]] -= many
            capacity[classes[0]] -= many
            wanted -= many
    return shares


def _path(costs: Any, shares: Any, capacity: Any, source: int) -> tuple[list[int], list[int]]:
    """The cheapest way from a kind of row to a class with columns left, from its end: the classes,
    and the kind of row that takes each. Kinds on the way give up what they had.

    Only what is strictly cheaper replaces what was found, so no way has a circle in it.
    """
    kinds, classes = costs.shape
    to_row, to_class = np.full(kinds, np.inf), np.full(classes, np.inf)
    by_row, by_class = np.full(classes, _NONE), np.full(kinds, _NONE)
    to_row[source] = 0.0
    taken = shares > 0
    while True:
        there = to_row[:, None] + costs
        nearest = there.argmin(0)
        cost = there[nearest, np.arange(classes)]
        better = cost < to_class
        if not better.any():
            break
        to_class[better], by_row[better] = cost[better], nearest[better]
        back = np.where(taken, to_class - costs, np.inf)
        nearest = back.argmin(1)
        cost = back[np.arange(kinds), nearest]
        better = cost < to_row
        to_row[better], by_class[better] = cost[better], nearest[better]
    at = int(np.where(capacity > 0, to_class, np.inf).argmin())
    through, rows = [at], [int(by_row[at])]
    while rows[-1] != source:
        through.append(int(by_class[rows[-1]]))
        rows.append(int(by_row[through[-1]]))
    return through, rows
