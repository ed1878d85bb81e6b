"""What an answer means, how long to wait, and where requests go: without a server."""

from __future__ import annotations

import email.utils
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.plugins.http.connection import (
    CONFLICTS_MAX,
    FIRST_PAUSE_S,
    RETRY_AFTER_S_MAX,
    HttpAnswer,
    Tries,
    asked_pause_s,
    pause_s,
    verdict_of,
)
from onyx.plugins.http.options import address_of

NOW_MS = 1_800_000_000_000


@given(st.one_of(st.none(), st.integers(100, 999)))
def test_only_2xx_is_delivered_and_every_answer_has_a_verdict(status: int | None) -> None:
    verdict = verdict_of(HttpAnswer(status, ""))
    assert (verdict == "delivered") == (status is not None and 200 <= status < 300)
    if status is None or status >= 500 or status in (408, 425, 429):
        assert verdict == "again"
    if status in (400, 403, 404, 405, 409, 410, 413, 415, 422):
        assert verdict == "refused"
    if status in (301, 302, 304, 401, 407):
        assert verdict == "wrong"


@given(st.lists(st.integers(200, 599), min_size=1, max_size=30), st.booleans())
def test_409_is_tried_again_a_few_times_while_the_request_is_in_doubt(
    statuses: list[int], in_doubt: bool
) -> None:
    tries = Tries(None, in_doubt)
    conflicts = 0
    for status in statuses:
        verdict = tries.judged(HttpAnswer(status, ""))
        if status == 409 and in_doubt:
            conflicts += 1
            assert verdict == ("again" if conflicts <= CONFLICTS_MAX else "refused")
        else:
            assert verdict == verdict_of(HttpAnswer(status, ""))
        in_doubt = in_doubt or status >= 500


@given(st.integers(0, 20))
def test_tries_come_to_an_end_if_the_job_says_so(retries_max: int) -> None:
    tries = Tries(retries_max)
    found = [tries.judged(HttpAnswer(503, "")) for _ in range(retries_max + 1)]
    assert found == ["again"] * retries_max + ["exhausted"]
    assert Tries(0).judged(HttpAnswer(400, "")) == "refused"


BROKEN = HttpAnswer(200, "", broken_off=True)


def test_a_request_whose_answers_break_off_is_not_sent_for_ever() -> None:
    tries = Tries(None)
    found = [tries.judged(each) for each in (BROKEN, HttpAnswer(None, "away"), *[BROKEN] * 4)]
    assert found == ["again"] * 5 + ["delivered"]


def test_a_whole_answer_after_one_that_broke_off_counts() -> None:
    tries = Tries(None)
    assert tries.judged(BROKEN) == "again"
    assert tries.judged(HttpAnswer(409, "")) == "again", "the server may be at work on it"
    assert tries.judged(HttpAnswer(200, "")) == "delivered"


def test_the_status_of_an_answer_that_breaks_off_counts_at_the_last_try() -> None:
    tries = Tries(1)
    assert [tries.judged(BROKEN) for _ in range(2)] == ["again", "delivered"]
    assert Tries(None).judged(HttpAnswer(400, "", broken_off=True)) == "refused"
    assert Tries(None).judged(HttpAnswer(503, "", broken_off=True)) == "again"


def test_what_would_fail_again_is_not_tried_again() -> None:
    assert verdict_of(HttpAnswer(None, "not trusted", hopeless=True)) == "wrong"


@given(st.integers(1, 10_000), st.floats(0.01, 3_600), st.floats(0, 1))
def test_pauses_grow_to_the_longest_and_half_of_each_is_by_chance(
    tries: int, longest_s: float, drawn: float
) -> None:
    whole_s = pause_s(tries, longest_s, 1)
    assert whole_s / 2 <= pause_s(tries, longest_s, drawn) <= whole_s <= longest_s
    assert whole_s <= pause_s(tries + 1, longest_s, 1)
    assert pause_s(1, 3_600, 1) == FIRST_PAUSE_S


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, 0), ("", 0), ("5", 5), (" 7 ", 7), ("9" * 400, RETRY_AFTER_S_MAX), ("-3", 0),
     ("soon", 0), ("1.5", 0), ("٣", 0), ("Wed, 99 Foo 2015 07:28:00 GMT", 0),
     ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("Wed, 21 Oct 9999 07:28:00 -0000", RETRY_AFTER_S_MAX)],
)  # fmt: skip
def test_a_pause_that_is_asked_for_has_a_limit(text: str | None, seconds: float) -> None:
    assert asked_pause_s(text, NOW_MS) == seconds


@given(st.integers(-1_000, 1_000))
def test_a_time_of_http_is_a_pause_until_then(after_s: int) -> None:
    at = email.utils.format_datetime(
        datetime.fromtimestamp(NOW_MS / 1_000 + after_s, UTC), usegmt=True
    )
    assert asked_pause_s(at, NOW_MS) == min(max(after_s, 0), RETRY_AFTER_S_MAX)


@given(st.text())
def test_any_text_is_a_pause(text: str) -> None:
    assert 0 <= asked_pause_s(text, NOW_MS) <= RETRY_AFTER_S_MAX


def test_an_answer_is_shown_in_one_short_line() -> None:
    assert HttpAnswer(404, "no\n such  path").words == "404 Not Found: no such path"
    assert HttpAnswer(799, "").words == "799"
    assert HttpAnswer(None, "no answer").words == "no answer"
    assert len(HttpAnswer(500, "x" * 10_000).words) < 400


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "target", "shown"),
    [
        ("http://a.b", "http", "a.b", 80, "/", "http://a.b/"),
        ("https://a.b:8443/x/y?k=v", "https", "a.b", 8443, "/x/y?k=v", "https://a.b:8443/x/y?..."),
        ("HTTPS://A.b/x#part", "https", "a.b", 443, "/x", "https://a.b/x"),
        ("http://[::1]:80/", "http", "::1", 80, "/", "http://[::1]/"),
    ],
)
def test_a_url_is_taken_apart(
    url: str, scheme: str, host: str, port: int, target: str, shown: str
) -> None:
    found = address_of(url)
    assert (found.scheme, found.host, found.port, found.target) == (scheme, host, port, target)
    assert found.shown == shown


@pytest.mark.parametrize(
    ("url", "why"),
    [("ftp://a", "is no URL"), ("a.b/c", "is no URL"), ("http:///x", "is no URL"),
     ("http://a b", "blanks"), ("http://a/ü", "not ASCII"), ("http://u:p@a/", "credentials"),
     ("http://a:0/", "port"), ("http://a:70000/", "port"), ("http://a:x/", "port"),
     ("http://a/\r\nHost: b", "blanks")],
)  # fmt: skip
def test_what_is_no_url_is_refused(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        address_of(url)


@given(st.text())
def test_any_text_is_a_url_or_refused(text: str) -> None:
    try:
        found = address_of(text)
    except ValueError:
        return
    assert address_of(found.shown.removesuffix("?...")).host == found.host
