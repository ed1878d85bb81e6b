"""Cases about the XOR ledger. Values are signed there and unsigned here: the same 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from onyx.base.runs import joined
from onyx.ledger.acker import Acker
from onyx.ledger.lineage import pack_roots


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    acker = Acker()
    numbers: dict[str, int] = {}
    for index, step in enumerate(case["steps"]):
        ack = step["ack"]
        number = numbers.setdefault(ack["id"], len(numbers))
        root = pack_roots(0, 0, np.array([number], dtype=np.uint64))
        value = np.array([ack["ack-val"]], dtype=np.int64).view(np.uint64)
        completed = joined(acker.absorb([(root, value)])).tolist() == root.tolist()
        if completed != (step["completed"] is not None):
            return f"step {index}: completed is {completed}"
        if acker.pending_count() != len(step["state"]):
            return f"step {index}: {acker.pending_count()} are pending"
    return None
