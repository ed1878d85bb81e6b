"""Queries of URLs that mean one thing to a proxy and another to Onyx, or that are no numbers."""

from __future__ import annotations

import pytest

from onyx.gateway.request_head import parameters_of, timeout_of
from onyx.gateway.states import _asked
from onyx.requests.request import NOBODY
from onyx.serving.replies import Rejected


@pytest.mark.parametrize(
    "value", ["1_0", " 1", "1 ", "\u00b2", "\u0661", "nan", "inf", "1e2", "+1", ""]
)
def test_a_timeout_is_a_plain_number(value: str) -> None:
    with pytest.raises(Rejected):
        timeout_of(value)


@pytest.mark.parametrize(("value", "seconds"), [("1", 1.0), ("0.5", 0.5), ("10.", 10.0)])
def test_plain_numbers_are_timeouts(value: str, seconds: float) -> None:
    assert timeout_of(value) == seconds


@pytest.mark.parametrize("query", [b"timeout=1&timeout=2", b"ack=ack&ack=none", b"a=&a="])
def test_a_parameter_that_is_there_twice_is_refused(query: bytes) -> None:
    with pytest.raises(Rejected):
        parameters_of(query)


@pytest.mark.parametrize(
    "limit",
    [b"%C2%B2", b"%D9%A1", b"0", b"01", b"0000000010000000", b"-1", b""],
)
def test_a_limit_is_a_plain_number_of_extents(limit: bytes) -> None:
    with pytest.raises(Rejected):
        _asked(("job", "state"), b"limit=" + limit, {}, NOBODY)


def test_a_plain_limit_is_taken() -> None:
    assert _asked(("job", "state"), b"limit=20", {}, NOBODY).extents_max == 20
