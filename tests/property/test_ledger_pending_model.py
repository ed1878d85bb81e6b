"""The pending window against a dict of position to (attempt, state, rotation when sent or held)."""

import math

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.examples import examples

from onyx.ledger.lineage import FINAL, pack_roots, run_of_roots, unpack
from onyx.ledger.pending import PendingPositions
from onyx.ledger.retry_delay import RetryDelay

CAPACITY = 16
LIFETIME = 3
BACK_OFF = RetryDelay(first_s=0.5, max_s=1.5)
FIRST = 4090


class PendingModel(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now_s = 0.0
        self.window = PendingPositions(
            5, FIRST, CAPACITY, pending_timeout_s=LIFETIME, retry_interval_s=1, retry_delay=BACK_OFF
        )
        self.resting: dict[int, float] = {}
        self.retries: dict[int, int] = {}
        self.open: dict[int, list] = {}
        self.next = FIRST
        self.looked = 0

    def frontier(self):
        return min(self.open, default=self.next)

    def draw_roots(self, data):
        """Roots of positions and attempts around the window, in any order, repeated perhaps."""
        pairs = data.draw(
            st.lists(
                st.tuples(
                    st.integers(self.frontier() - 3, self.next + 3),
                    st.sampled_from([0, 1, 2, 1 | FINAL, 2 | FINAL, FINAL]),
                ),
                max_size=10,
            )
        )
        positions = np.array([position for position, _ in pairs], dtype=np.uint64)
        attempts = np.array([attempt for _, attempt in pairs], dtype=np.uint64)
        return pack_roots(5, attempts, positions), pairs

    @rule(data=st.data())
    def emit(self, data):
        assert self.window.room == CAPACITY - (self.next - self.frontier())
        count = data.draw(st.integers(0, self.window.room))
        roots = self.window.emit(count, self.now_s)
        positions = list(range(self.next, self.next + count))
        assert unpack(roots.array()).positions.tolist() == positions
        assert unpack(roots.array()).attempts.tolist() == [0] * count
        for position in positions:
            self.open[position] = [0, "in flight", int(self.now_s)]
        self.next += count

    def complete_model(self, pairs):
        found = {p for p, _ in pairs if p in self.open}
        for position in found:
            del self.open[position]
        return len(found)

    @rule(data=st.data())
    def complete(self, data):
        roots, pairs = self.draw_roots(data)
        assert self.window.complete(roots) == self.complete_model(pairs)

    @rule(data=st.data())
    def complete_a_run(self, data):
        start = data.draw(st.integers(self.frontier() - 3, self.next))
        count = data.draw(st.integers(0, CAPACITY + 4))
        pairs = [(position, 0) for position in range(start, start + count)]
        roots = pack_roots(5, 0, np.arange(start, start + count, dtype=np.uint64))
        assert self.window.complete(run_of_roots(6, start, start + count)) == 0
        either = data.draw(st.sampled_from([roots, run_of_roots(5, start, start + count)]))
        assert self.window.complete(either) == self.complete_model(pairs)

    @rule(data=st.data())
    def hold_a_run(self, data):
        start = data.draw(st.integers(self.frontier() - 3, self.next))
        end = start + data.draw(st.integers(1, CAPACITY + 4))
        self.window.held(run_of_roots(5, start, end), self.now_s)
        for position in {p for p in range(start, end) if p in self.open}:
            self.open[position][2] = max(self.open[position][2], int(self.now_s) + 1)

    @rule(data=st.data())
    def hold(self, data):
        roots, pairs = self.draw_roots(data)
        self.window.held(roots, self.now_s)
        for position in {p for p, _ in pairs if p in self.open}:
            # One rotation more than if it had been sent now: it may be at the end of this one.
            self.open[position][2] = max(self.open[position][2], int(self.now_s) + 1)

    @rule(seconds=st.sampled_from([0.25, 1.0, 2.5, 7.0]))
    def time_passes(self, seconds):
        self.now_s += seconds

    @rule()
    def expire(self):
        rotation = int(self.now_s)
        due = set()
        if rotation > self.looked:
            due = {
                position
                for position, (_, state, sent) in self.open.items()
                if state == "in flight" and sent + LIFETIME <= rotation
            }
        self.looked = rotation
        self.check_ranges(self.window.expired(self.now_s), due)

    @rule(data=st.data(), retries_max=st.integers(1, 3))
    def ask_for_a_retry(self, data, retries_max):
        roots, pairs = self.draw_roots(data)
        self.window.retry_roots(roots, retries_max, self.now_s)
        for position in {p for p, attempt in pairs if self.is_in_flight(p, attempt)}:
            retries = self.retries.get(position, 0)
            self.resting[position] = self.now_s + BACK_OFF.delay_s(retries)
            self.retries[position] = retries + 1
            self.open[position][1] = "resting"
            if retries + 1 >= retries_max:
                self.open[position][0] |= FINAL

    def is_in_flight(self, position, attempt):
        return position in self.open and self.open[position][:2] == [attempt, "in flight"]

    @rule()
    def rest_enough(self):
        resting = {p: self.resting[p] for p, each in self.open.items() if each[1] == "resting"}
        due = {p for p, until_s in resting.items() if until_s <= self.now_s}
        self.check_ranges(self.window.rested(self.now_s), due)
        later = [until_s for p, until_s in resting.items() if p not in due]
        assert self.window.rested_s <= min(later, default=math.inf)

    @rule()
    def replay_all(self):
        self.check_ranges(self.window.replay_all(), set(self.open))

    def check_ranges(self, ranges, due):
        for position in due:
            self.open[position][1] = "due"
            assert any(first <= position < end for first, end in ranges)
        assert all(first in due and end - 1 in due for first, end in ranges)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def retry(self, data):
        first = data.draw(st.integers(self.frontier() - 1, self.next))
        end = data.draw(st.integers(first, self.next + 2))
        roots = self.window.retry(first, end, self.now_s)
        expected = [
            position
            for position in sorted(self.open)
            if first <= position < end and self.open[position][1] == "due"
        ]
        for position in expected:
            before = self.open[position][0]
            attempt = (before & FINAL) | (before + 1) % FINAL
            self.open[position] = [attempt, "in flight", int(self.now_s)]
        _, attempts, positions = unpack(roots)
        assert positions.tolist() == expected
        assert attempts.tolist() == [self.open[position][0] for position in expected]

    @invariant()
    def agrees(self):
        assert self.window.frontier == self.frontier()
        assert self.window.next_position == self.next
        assert self.window.in_flight == len(self.open)


TestPendingModel = PendingModel.TestCase
TestPendingModel.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)
