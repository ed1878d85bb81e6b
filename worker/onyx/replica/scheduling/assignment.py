"""The assignment problem: rows get columns so that the costs of all are least.

The solver is SciPy's (Jonker-Volgenant), not a search of our own. This is a module apart because it
takes longer to import than all the rest of a worker, and most clusters never need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment


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
    by_column = np.array(costs, np.float64)[:, kinds]
    for column, row in free.items():
        by_column[row, column] = 0.0
    wanted = by_column[list(rows)]
    chosen, columns = linear_sum_assignment(wanted)
    if wanted[chosen, columns].max() >= forbidden:
        return None
    found: list[int] = columns.tolist()
    return found
