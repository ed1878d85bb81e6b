"""`onyx set`: how values are written, and how `onyx jobs` shows them."""

from __future__ import annotations

import pytest

from onyx.cli.commands.set import parse_value
from onyx.cli.status_table import lines
from onyx.client.statuses import JobStatus
from onyx.errors import UserError
from onyx.ids import JobId, Position


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("maxPending=500", ("maxPending", 500)),
        ("batchTimeout=50ms", ("batchTimeout", "50ms")),
        ("maxPending=default", ("maxPending", "default")),
        ("maxPending=-5", ("maxPending", "-5")),
        ("maxPending=\u0665", ("maxPending", "\u0665")),
        (f"maxPending={'9' * 5000}", ("maxPending", "9" * 5000)),
    ],
)
def test_a_value_is_a_number_or_text(text: str, expected: tuple[str, object]) -> None:
    assert parse_value(text) == expected


@pytest.mark.parametrize("text", ["maxPending", "maxPending=", "=5", ""])
def test_what_is_no_key_with_a_value_is_told(text: str) -> None:
    with pytest.raises(UserError, match="is not KEY=VALUE, as in maxPending=500"):
        parse_value(text)


def test_what_was_set_is_shown_below_the_job() -> None:
    values = {"read": {"maxPending": 500, "batchSize": None}, "write": {"batchSize": 9}}
    status = JobStatus(JobId("j"), "flights", "running", Position(7), 9, options=values)
    assert list(lines([status], 80))[-1] == (
        "    set: read maxPending=500 batchSize=default, write batchSize=9"
    )
