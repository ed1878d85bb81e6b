"""Appending: requests that are sent, repeated and dropped, as a conversation with the server."""

import pytest
from tests.support.log.markers import marker

from onyx.codec.entries import decode_entry
from onyx.errors import Fenced, Unavailable, UserError
from onyx.ids import GroupId, Position
from onyx.log.append_queue import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, Append, AppendQueue, Reply
from onyx.log.interface import Session
from onyx.replica.command import Command
from onyx.settings import LogSettings

G = GroupId("g1")


def commands(*names: str) -> list[Command]:
    return [marker(name) for name in names]


def sent(request: Append | None) -> list[tuple[str, int]]:
    assert request is not None, "nothing was sent"
    entries = [decode_entry(Position(0), data) for data in request.payloads]
    return [(entry.command.id, entry.sequence) for entry in entries]


def test_an_entry_is_sent_at_once_with_writer_sequence_parent_time_and_fence():
    request = AppendQueue(G).enqueue(commands("a"), parent=Position(7), at_ms=5)
    assert request is not None
    assert request.fence == G
    entry = decode_entry(Position(9), request.payloads[0])
    assert (entry.writer, entry.sequence, entry.parent, entry.at_ms) == (G, 1, 7, 5)


def test_what_comes_while_a_transaction_is_under_way_goes_into_the_next_one():
    queue = AppendQueue(G)
    first = queue.enqueue(commands("a"))
    assert queue.enqueue(commands("b")) is None
    assert queue.enqueue(commands("c", "d")) is None
    assert first is not None
    assert sent(queue.on_reply(first.attempt, Reply.WRITTEN)) == [("b", 2), ("c", 3), ("d", 4)]


def test_after_a_lost_reply_the_same_session_sends_again_from_the_first_unacknowledged():
    queue = AppendQueue(G)
    first = queue.enqueue(commands("a", "b"))
    assert first is not None
    assert queue.on_reply(first.attempt, Reply.UNKNOWN) is None
    assert queue.on_session(Session.SUSPENDED) is None
    assert queue.enqueue(commands("c")) is None, "not while disconnected"
    assert sent(queue.on_session(Session.CONNECTED)) == [("a", 1), ("b", 2), ("c", 3)]


def test_a_lost_reply_reported_after_the_reconnect_does_not_disturb():
    queue = AppendQueue(G)
    first = queue.enqueue(commands("a"))
    queue.on_session(Session.SUSPENDED)
    second = queue.on_session(Session.CONNECTED)
    assert first is not None
    assert second is not None
    assert queue.on_reply(first.attempt, Reply.UNKNOWN) is None
    assert queue.on_reply(second.attempt, Reply.WRITTEN) is None
    assert len(queue) == 0
    assert sent(queue.enqueue(commands("b"))) == [("b", 2)]


@pytest.mark.parametrize("how", ["session lost", "pulse gone"])
def test_a_dead_incarnation_drops_everything_and_refuses_more(how):
    queue = AppendQueue(G)
    first = queue.enqueue(commands("a"))
    queue.enqueue(commands("b"))
    assert first is not None
    if how == "session lost":
        assert queue.on_session(Session.LOST) is None
    else:
        assert queue.on_reply(first.attempt, Reply.PULSE_GONE) is None
    assert queue.fenced
    assert len(queue) == 0
    assert queue.on_session(Session.CONNECTED) is None, "a new session must not write for it"
    with pytest.raises(Fenced, match="g1"):
        queue.enqueue(commands("c"))


def test_a_full_queue_refuses_a_call_as_a_whole():
    queue = AppendQueue(G, LogSettings(append_queue_entries_max=2))
    queue.enqueue(commands("a"))
    with pytest.raises(Unavailable, match="at most 2"):
        queue.enqueue(commands("b", "c"))
    assert len(queue) == 1
    assert queue.enqueue(commands("b")) is None


def test_a_large_command_is_refused_before_it_is_sent_and_burns_no_sequence():
    queue = AppendQueue(G, LogSettings(entry_bytes_max=200))
    with pytest.raises(UserError, match=r"add-virtual-peer takes .* at most 200"):
        queue.enqueue([marker("a"), marker("b", x="y" * 200)])
    assert sent(queue.enqueue(commands("b"))) == [("b", 1)]


def test_transactions_are_bounded_in_entries_and_bytes():
    queue = AppendQueue(G)
    first = queue.enqueue(commands("a"))
    queue.enqueue(commands(*["b"] * (BATCH_ENTRIES_MAX + 1)))
    assert first is not None
    second = queue.on_reply(first.attempt, Reply.WRITTEN)
    assert second is not None
    assert len(second.payloads) == BATCH_ENTRIES_MAX
    big = AppendQueue(G).enqueue([marker("a", x="y" * 200_000)] * 4)
    assert big is not None
    assert sum(map(len, big.payloads)) <= BATCH_BYTES_MAX
