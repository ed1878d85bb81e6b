"""Windows that read again all after a failure, give up, or return: against lists, in any order."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.examples import examples

from onyx.ledger.lineage import FINAL, pack_roots, unpack
from onyx.ledger.pending import GivingUpPositions, OrderedPositions, ReturningPositions
from onyx.ledger.retry_delay import RetryDelay

CAPACITY = 16
LIFETIME = 3
BACK_OFF = RetryDelay(first_s=0.5, max_s=1.5)
FIRST = 4090


class Sender(RuleBasedStateMachine):
    """What an input does with a window: ranges that are due come first, then what is new."""

    kind = OrderedPositions

    def __init__(self):
        super().__init__()
        self.now_s = 0.0
        self.window = self.kind(
            5, FIRST, CAPACITY, pending_timeout_s=LIFETIME, retry_interval_s=1, retry_delay=BACK_OFF
        )
        self.ranges = []
        self.sent = []
        """Positions in the order in which they were sent."""
        self.latest = {}
        """For each position its newest root."""
        self.old = set()
        """Roots of older attempts."""

    def send(self, roots):
        positions = unpack(roots).positions.tolist()
        for position, root in zip(positions, roots.tolist(), strict=True):
            if position in self.latest:
                self.old.add(self.latest[position])
            self.latest[position] = root
        self.sent += positions

    def due(self, ranges):
        if ranges:
            self.ranges = list(ranges)

    @precondition(lambda self: not self.ranges and not self.window.waits)
    @rule(data=st.data())
    def read(self, data):
        count = data.draw(st.integers(0, self.window.room))
        self.send(self.window.emit(count, self.now_s).array())

    @precondition(lambda self: self.ranges)
    @rule(most=st.integers(1, CAPACITY))
    def read_again(self, most):
        first, end = self.ranges.pop(0)
        first = max(first, self.window.frontier)
        middle = min(end, first + most)
        if middle < end:
            self.ranges.insert(0, (middle, end))
        self.send(self.window.retry(first, middle, self.now_s))

    @rule(seconds=st.sampled_from([0.25, 1.0, 2.5, 7.0]))
    def time_passes(self, seconds):
        self.now_s += seconds

    @rule()
    def look(self):
        self.due(self.window.rested(self.now_s))
        self.due(self.window.expired(self.now_s))

    @rule()
    def is_re_allocated(self):
        self.ranges = list(self.window.replay_all())

    def some(self, data, roots):
        chosen = data.draw(st.sets(st.sampled_from(sorted(roots)), max_size=6)) if roots else []
        return pack_roots(0, 0, _column(chosen))

    @rule(data=st.data(), retries_max=st.integers(1, 3))
    def ask_for_a_retry(self, data, retries_max):
        self.window.retry_roots(self.some(data, self.latest.values()), retries_max, self.now_s)

    @rule(data=st.data())
    def hold(self, data):
        self.window.held(self.some(data, self.latest.values()), self.now_s)

    def finish(self):
        """Until everything is complete, without failures."""
        for _ in range(100):
            self.now_s += 2.0
            self.due(self.window.rested(self.now_s))
            while self.ranges:
                self.read_again(CAPACITY)
            roots = pack_roots(0, 0, _column(self.latest.values()))
            self.window.complete(roots)
            if not self.window.in_flight:
                break
        assert (self.window.in_flight, self.window.waits) == (0, False)
        assert self.window.frontier == self.window.next_position

    def teardown(self):
        self.finish()


class Ordered(Sender):
    @rule(data=st.data())
    def complete(self, data):
        roots = self.some(data, self.latest.values())
        fresh = self.window.incomplete(roots)
        count = self.window.complete(roots)
        assert count == len(fresh)
        assert set(fresh.tolist()) <= set(roots.tolist())

    @rule(data=st.data())
    def an_old_attempt_is_complete(self, data):
        roots = self.some(data, self.old - set(self.latest.values()))
        before = self.window.frontier, self.window.in_flight
        assert not len(self.window.incomplete(roots))
        assert self.window.complete(roots) == 0
        assert (self.window.frontier, self.window.in_flight) == before

    @invariant()
    def is_in_order(self):
        """What is sent is the next position, or goes back to one that was sent before."""
        for before, after in zip(self.sent, self.sent[1:], strict=False):
            assert after == before + 1 or after <= before

    @invariant()
    def nothing_new_passes_what_is_to_be_read_again(self):
        waiting = [p for first, end in self.ranges for p in range(first, end)]
        assert not waiting or waiting[-1] == self.window.next_position - 1


class GivingUp(Sender):
    kind = GivingUpPositions

    def __init__(self):
        super().__init__()
        self.counted = 0

    @rule(data=st.data())
    def complete(self, data):
        self.counted += self.window.complete(self.some(data, self.latest.values()))

    @invariant()
    def nothing_is_sent_twice(self):
        assert self.sent == list(range(FIRST, self.window.next_position))
        assert (self.ranges, self.window.waits, self.window.rested_s) == ([], False, float("inf"))

    @invariant()
    def everything_is_complete_given_up_or_in_flight(self):
        self.counted += len(self.window.take_given_up())
        assert self.counted + self.window.in_flight == len(self.sent)

    def teardown(self):
        self.window.replay_all()
        super().teardown()


class Returning(Sender):
    """What was lost is read again, what asks for a retry is not."""

    kind = ReturningPositions

    def __init__(self):
        super().__init__()
        self.counted = 0
        self.asked, self.asked_before = set(), set()
        self.looked_at = 0

    def due(self, ranges):
        self.ranges += ranges

    @rule(data=st.data())
    def complete(self, data):
        self.counted += self.window.complete(self.some(data, self.latest.values()))

    @invariant()
    def everything_is_complete_given_up_or_in_flight(self):
        given_up = self.window.take_given_up().tolist()
        assert given_up == sorted(set(given_up) - self.asked), "each once"
        self.asked |= set(given_up)
        assert not self.asked_before & set(self.sent[self.looked_at :]), "not read again"
        self.asked_before, self.looked_at = set(self.asked), len(self.sent)
        assert (self.window.waits, self.window.rested_s) == (False, float("inf"))
        sent = self.window.next_position - FIRST
        assert self.counted + len(self.asked) + self.window.in_flight == sent


def _column(numbers):
    return np.array(sorted(numbers), dtype=np.uint64)


def test_a_final_attempt_stays_final_when_it_is_read_again_behind_another():
    window = OrderedPositions(5, 0, CAPACITY, retry_delay=BACK_OFF)
    roots = window.emit(3, 0.0).array()
    window.retry_roots(roots[1:2], 1, 0.0)
    assert window.waits
    window.rested(1.0)
    again = window.retry(1, 3, 1.0)
    assert unpack(again).attempts.tolist() == [1 | FINAL, 1]
    window.retry_roots(roots[:1], 5, 1.0)
    window.rested(9.0)
    assert unpack(window.retry(0, 3, 9.0)).attempts.tolist() == [1, 2 | FINAL, 2]


TestOrdered, TestGivingUp = Ordered.TestCase, GivingUp.TestCase
TestReturning = Returning.TestCase
TestOrdered.settings = TestGivingUp.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestReturning.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
