"""A token bucket gives no more than its rate, whoever asks when, and all to who asks often."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.ledger.token_bucket import BURST_S, TokenBucket

rates = st.floats(0.01, 10_000)
asks = st.lists(st.tuples(st.floats(0, 5), st.integers(0, 20_000)), min_size=1, max_size=40)


def spend(bucket, now_s, wanted):
    count = min(wanted, bucket.available(now_s))
    bucket.spend(count)
    return count


@given(rates, asks)
def test_any_stretch_of_time_gives_its_tokens_and_those_of_a_pause_at_most(rate, asks):
    bucket, now_s, given = TokenBucket(rate, 0.0), 0.0, []
    for wait_s, wanted in asks:
        now_s += wait_s
        given.append((now_s, spend(bucket, now_s, wanted)))
    for first, (began_s, _) in enumerate(given):
        for last in range(first, len(given)):
            count = sum(each for _, each in given[first : last + 1])
            most = rate * (given[last][0] - began_s) + (1.0 + BURST_S * rate)
            assert count <= most * (1 + 1e-9)


@given(rates, st.integers(1, 400), st.integers(2, 50))
def test_who_asks_often_enough_gets_all_of_it(rate, seconds, often):
    bucket, taken, step_s = TokenBucket(rate, 0.0), 0, 1 / often
    for number in range(1, seconds * often + 1):
        taken += spend(bucket, number * step_s, 10**9)
    assert taken == pytest.approx(rate * seconds, abs=1.001, rel=1e-6)


@given(rates, rates, st.floats(0, 3), st.floats(0, 3))
def test_another_rate_counts_from_its_moment_on(before, after, first_s, then_s):
    bucket = TokenBucket(before, 0.0)
    bucket.change(after, first_s)
    most = min(before * first_s, 1.0 + BURST_S * after) + after * then_s
    assert bucket.available(first_s + then_s) <= most + 1e-6
    assert bucket.per_second == after


@given(rates, asks)
def test_a_clock_that_stands_still_gives_nothing_more(rate, asks):
    bucket = TokenBucket(rate, 0.0)
    for _, wanted in asks:
        spend(bucket, 0.0, wanted)
    assert bucket.available(0.0) == 0
