"""How often, and for how long, what fails is tried again."""

from __future__ import annotations

import pytest

from onyx.errors import FailsAgain, NameNotRegistered, Unavailable, UserFunctionError
from onyx.plugins.attempts import Attempts


@pytest.mark.parametrize(
    ("error", "takes_s", "begun_s"),
    [
        (FailsAgain("no such column"), 0, [0]),
        (NameNotRegistered("m has no 'f'"), 0, [0]),
        (UserFunctionError("ValueError: no"), 0, [0, 0.1, 0.2]),
        (UserFunctionError("ValueError: no"), 600, [0, 600.1, 1200.2]),
        (Unavailable("no server answers"), 0, [0, 1, 6, 21, 51, 81, 111, 141]),
        (Unavailable("no server answers"), 10, [0, 11, 26, 51, 91, 131]),
        (Unavailable("the process died"), 600, [0, 601, 1206]),
    ],
    ids=[
        "would fail again",
        "has no such function",
        "raises",
        "raises late",
        "away",
        "away and slow to say so",
        "dies late",
    ],
)
def test_what_fails_is_tried_so_often_and_what_is_away_for_two_minutes(
    error: Exception, takes_s: float, begun_s: list[float]
) -> None:
    attempts, begun, now_s = Attempts(), [], 0.0
    next_s: float | None = now_s
    while next_s is not None:
        begun.append(next_s)
        next_s = attempts.next_s(error, next_s + takes_s, attempts_max=3, delay_s=0.1)
    assert begun == pytest.approx(begun_s)
    assert attempts.failed == len(begun)
