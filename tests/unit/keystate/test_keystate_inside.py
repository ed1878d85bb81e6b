"""Parts of states that questions ask for: as text, and of states that are kept in a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.client.test_query_kinds import JOB, job

from onyx.client.stored_state import Kept, KeptStates
from onyx.client.window_view import Question
from onyx.codec.questions import selection
from onyx.errors import UserError
from onyx.keystate.extents import FROM, TO, Extent
from onyx.keystate.selection import Answer, Inside, Selection
from onyx.settings import Settings


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ({"path": "home"}, Inside(("home",))),
        ({"path": "5"}, Inside((5,))),
        ({"path": '["home", -1, "5"]'}, Inside(("home", -1, "5"))),
        ({"first_item": "2026-01", "before_item": "2026-02"}, Inside((), "2026-01", "2026-02")),
        ({"first_item": "3", "items": "10"}, Inside((), 3, None, 10)),
    ],
)
def test_a_part_is_asked_for_in_text(text: dict[str, str], inside: Inside) -> None:
    assert selection(**text).inside == inside


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"path": "[null]"}, "whole numbers and texts"),
        ({"path": '[["a"]]'}, "whole numbers and texts"),
        ({"path": "true"}, "whole numbers and texts"),
        ({"first_item": "1", "before_item": "a"}, "begins and ends with a number"),
        ({"items": "0"}, "at least one item"),
        ({"items": "many"}, "'many' is no number of items"),
    ],
)
def test_what_makes_no_sense_is_refused(text: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        selection(**text)


class Stored(KeptStates):
    """States of which the store has one."""

    def _kept(self, *_: Any) -> Kept:
        return lambda question: Answer([Extent("a", FROM, TO, {"x": [1, 2, 3]})], more=False)


@pytest.mark.parametrize(("path", "found"), [((), {"x": [1, 2, 3]}), (("x", 1), 2), (("y",), None)])
def test_what_is_kept_in_a_store_is_looked_into_as_well(
    path: Sequence[str | int], found: Any
) -> None:
    asked = Question(JOB, "prices", Selection(inside=Inside(tuple(path))))
    (extent,) = Stored(Settings())(None, job(), asked).extents  # type: ignore[arg-type]
    assert extent.state == found
