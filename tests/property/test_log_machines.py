"""The append queue and the tail against a small model of ZooKeeper that loses, delays and collects.

The model keeps what matters: transactions are performed in the order sent on a connection, a broken
connection loses replies and watches, entries are collected only up to the origin. Hypothesis
chooses what happens next; at the end everything heals and must converge.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.log.markers import marker

from onyx.codec.entries import decode_entry, encode_entry
from onyx.ids import NO_POSITION, GroupId, Position
from onyx.log.append_queue import Append, AppendQueue, Reply
from onyx.log.interface import Origin, Session
from onyx.log.zookeeper.subscription import (
    Action,
    Actions,
    Cause,
    Deliver,
    GetEntry,
    ListChildren,
    LogTail,
    ReadOrigin,
)

G = GroupId("g")
STEPS = st.lists(st.integers(0, 99), max_size=120)


@dataclass
class AppendWorld:
    """One writer, one server, one connection."""

    queue: AppendQueue = field(default_factory=lambda: AppendQueue(G))
    log: list[bytes] = field(default_factory=list)
    pulse: bool = True
    connected: bool = True
    requests: deque[Append] = field(default_factory=deque)
    replies: deque[tuple[int, Reply]] = field(default_factory=deque)
    enqueued: int = 0
    written_when_dead: int | None = None

    def send(self, request: Append | None) -> None:
        if request is not None:
            self.requests.append(request)

    def enqueue(self) -> None:
        if not self.queue.fenced:
            self.enqueued += 1
            self.send(self.queue.enqueue([marker("n", number=self.enqueued)]))

    def serve(self) -> None:
        if self.requests and self.connected:
            request = self.requests.popleft()
            alive = self.pulse or request.fence is None
            if alive:
                self.log.extend(request.payloads)
            self.replies.append((request.attempt, Reply.WRITTEN if alive else Reply.PULSE_GONE))

    def answer(self) -> None:
        if self.replies and self.connected:
            self.send(self.queue.on_reply(*self.replies.popleft()))

    def break_connection(self) -> None:
        """Requests may have been performed; no reply comes."""
        if self.connected:
            lost = [attempt for attempt, _ in self.replies] + [r.attempt for r in self.requests]
            self.requests.clear()
            self.replies.clear()
            self.connected = False
            self.queue.on_session(Session.SUSPENDED)
            for attempt in lost:
                self.send(self.queue.on_reply(attempt, Reply.UNKNOWN))

    def connect(self) -> None:
        if not self.connected:
            self.connected = True
            self.send(self.queue.on_session(Session.CONNECTED))

    def expire(self) -> None:
        """The server ends the session; the writer has not heard of it."""
        if self.pulse:
            self.pulse = False
            self.written_when_dead = len(self.log)

    def step(self, choice: int) -> None:
        if choice < 40:
            self.enqueue()
        elif choice < 65:
            self.serve()
        elif choice < 90:
            self.answer()
        elif choice < 95:
            self.break_connection()
        else:
            self.connect()

    def settle(self) -> None:
        self.connect()
        for _ in range(1000):
            self.serve()
            self.answer()

    def effects(self) -> list[int]:
        last, numbers = 0, []
        for data in self.log:
            entry = decode_entry(Position(0), data)
            if entry.sequence > last:
                last = entry.sequence
                numbers.append(entry.command.peer_site["number"])
        return numbers


@given(STEPS)
def test_every_entry_has_effect_once_and_in_order_whatever_is_lost(choices):
    world = AppendWorld()
    for choice in choices:
        world.step(choice)
    world.settle()
    assert world.effects() == list(range(1, world.enqueued + 1))
    assert len(world.queue) == 0


@given(STEPS, st.integers(0, 120))
def test_nothing_is_written_after_the_pulse_is_gone(choices, death):
    world = AppendWorld()
    for number, choice in enumerate(choices):
        if number == death:
            world.expire()
        world.step(choice)
    world.expire()
    world.enqueue()
    world.settle()
    assert world.queue.fenced
    assert len(world.log) == world.written_when_dead
    effects = world.effects()
    assert effects == list(range(1, len(effects) + 1)), "a prefix of what was enqueued"


class Unfenced(AppendQueue):
    """Planted bug B2."""

    def fence(self) -> None:
        return None


def test_this_model_finds_an_append_without_a_fence():
    def entries_of_the_dead(queue: AppendQueue) -> int:
        world = AppendWorld(queue)
        world.enqueue()
        world.expire()
        world.settle()
        return len(world.log)

    assert entries_of_the_dead(Unfenced(G)) == 1
    assert entries_of_the_dead(AppendQueue(G)) == 0


@dataclass
class TailWorld:
    """One reader and a server whose log grows, has gaps and is collected."""

    tail: LogTail = field(default_factory=lambda: LogTail(NO_POSITION))
    entries: list[int] = field(default_factory=list)
    ever: list[int] = field(default_factory=list)
    next_number: int = 0
    origin: int = -1
    connected: bool = True
    watching: bool = False
    requests: deque[Action] = field(default_factory=deque)
    events: deque[Any] = field(default_factory=deque)
    delivered: list[int] = field(default_factory=list)
    skipped: set[int] = field(default_factory=set)

    def do(self, actions: Actions) -> None:
        for action in actions:
            if not isinstance(action, Deliver):
                self.requests.append(action)
                continue
            position = action.item.position
            last = self.delivered[-1] if self.delivered else -1
            assert position > last, "strictly increasing (L2)"
            missed = [p for p in self.ever if last < p < position]
            assert not missed or isinstance(action.item, Origin), "only an origin may skip"
            self.delivered.append(position)

    def append(self, gap: bool) -> None:
        self.next_number += 3 if gap else 1
        self.entries.append(self.next_number - 1)
        self.ever.append(self.next_number - 1)
        if self.watching:
            self.watching = False
            self.events.append(lambda: self.tail.on_watch(Cause.CHANGED))

    def collect(self, keep: int) -> None:
        """Origin first, then the entries: here at once, as a reader sees only the result."""
        if len(self.entries) > keep:
            self.origin = self.entries[-keep - 1]
            self.entries = [p for p in self.entries if p > self.origin]

    def serve(self) -> None:
        if not (self.requests and self.connected):
            return
        match self.requests.popleft():
            case ListChildren():
                self.watching = True
                listed = [Position(p) for p in reversed(self.entries)]
                self.events.append(lambda: self.tail.on_children(listed))
            case GetEntry(position):
                data = encode_entry(marker("n")) if position in self.entries else None
                self.events.append(lambda: self.tail.on_entry(position, data))
            case ReadOrigin(above):
                found = Origin(Position(self.origin), b"") if self.origin > above else None
                self.events.append(lambda: self.tail.on_origin(found))

    def hear(self) -> None:
        if self.events and self.connected:
            self.do(self.events.popleft()())

    def break_connection(self) -> None:
        """Replies are lost; the watch fires once with NONE and is gone."""
        if self.connected:
            self.requests.clear()
            self.events.clear()
            self.connected = False
            if self.watching:
                self.watching = False
                self.do(self.tail.on_watch(Cause.NONE))
                self.requests.clear()

    def connect(self) -> None:
        if not self.connected:
            self.connected = True
            self.do(self.tail.on_connected())

    def step(self, choice: int) -> None:
        if choice < 15:
            self.append(gap=choice == 0)
        elif choice < 50:
            self.serve()
        elif choice < 88:
            self.hear()
        elif choice < 92:
            self.collect(keep=choice % 3)
        elif choice < 95:
            self.break_connection()
        else:
            self.connect()

    def settle(self) -> None:
        self.connect()
        for _ in range(3000):
            self.serve()
            self.hear()

    @property
    def reached(self) -> int:
        return self.delivered[-1] if self.delivered else -1

    @property
    def last(self) -> int:
        return self.ever[-1] if self.ever else -1


def run(tail: LogTail, choices: list[int], polled: bool) -> TailWorld:
    world = TailWorld(tail)
    world.do(tail.start())
    for choice in choices:
        world.step(choice)
    world.settle()
    if polled:
        world.do(tail.on_poll())
        world.settle()
    return world


LONG = st.lists(st.integers(0, 99), min_size=50, max_size=200)


@given(LONG)
@settings(max_examples=examples(200))
def test_a_reader_reaches_the_end_of_the_log_and_skips_only_by_an_origin(choices):
    world = run(LogTail(NO_POSITION), choices, polled=True)
    assert world.reached == max(world.last, world.origin)


@given(LONG)
def test_without_a_poll_a_reader_still_reaches_every_entry_that_is_there(choices):
    world = run(LogTail(NO_POSITION), choices, polled=False)
    if world.entries:
        assert world.reached == world.last


class StuckBelowOrigin(LogTail):
    """Planted bug B3."""

    def on_gap(self, first: Position) -> Actions:
        return ()


class WatchNotArmedAgain(LogTail):
    """Planted bug B4."""

    def relist(self, cause: Cause) -> Actions:
        if cause in (Cause.NONE, Cause.CONNECTED, Cause.POLL):
            return ()
        return super().relist(cause)


APPEND, SERVE, HEAR, COLLECT, BREAK, CONNECT = 5, 30, 70, 90, 93, 97


@pytest.mark.parametrize(
    ("bug", "choices"),
    [
        (StuckBelowOrigin, [APPEND, APPEND, APPEND, COLLECT, APPEND, SERVE, HEAR]),
        (WatchNotArmedAgain, [SERVE, HEAR, BREAK, CONNECT, APPEND]),
    ],
)
def test_this_model_finds_the_planted_bugs(bug, choices):
    world = run(bug(NO_POSITION), choices, polled=False)
    assert world.reached < world.last
    sound = run(LogTail(NO_POSITION), choices, polled=False)
    assert sound.reached == sound.last
