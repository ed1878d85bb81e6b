"""What clients learned of their requests, and whether an output agrees with it.

A request ends in one of three ways for its client. `ok`: it was taken, and all of it is in the
output once. `fail`: it is never taken, and nothing of it is in the output. `unknown`: the client
has stopped asking; each of its segments is there at most once. Nothing else is in the output.
The checker knows nothing of Onyx, and looks at no order: requests of several clients have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended for its client."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


ALLOWED = {Outcome.OK: (1, 1), Outcome.FAIL: (0, 0), Outcome.UNKNOWN: (0, 1)}
"""How often each segment of a request is in the output: at least, at most."""


@dataclass(frozen=True)
class Operation:
    """One request, from its first sending to its end."""

    request: str
    segments: Collection[int]
    outcome: Outcome
    values: Mapping[str, object] = field(default_factory=dict)
    """What came back with the answer."""
    expected: Mapping[str, object] = field(default_factory=dict)
    """What has to come back with it."""
    durable: bool = False
    """The answer says that all of it is in the output already."""


def violations(history: Collection[Operation], there: Counter[int]) -> list[str]:
    """What contradicts what clients learned; empty if nothing does.

    Args:
        history: of all requests, none of which shares a segment with another.
        there: how often each segment is in the output.
    """
    found, known = [], set[int]()
    for each in history:
        known.update(each.segments)
        least, most = ALLOWED[each.outcome]
        found += [
            f"{each.request} ended as {each.outcome}, and segment {segment} is there "
            f"{there[segment]} times"
            for segment in each.segments
            if not least <= there[segment] <= most
        ]
        if each.outcome is Outcome.OK and each.values != each.expected:
            found.append(f"{each.request} gave back {each.values}, not {each.expected}")
    strangers = sorted(set(there) - known)
    return found + [f"segment {segment} is there, and was never sent" for segment in strangers]
