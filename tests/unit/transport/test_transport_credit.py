"""Credit and the queue of packets, step by step."""

import pytest

from onyx.ids import AllocationVersion, JobId, PeerId
from onyx.settings import TransportSettings
from onyx.transport.counters import Counters
from onyx.transport.frames.packets import Credit
from onyx.transport.interface import Channel
from onyx.transport.sending import InChannel, OutChannel, PacketQueue, Sending, Urgency

CHANNEL = Channel(JobId("job"), AllocationVersion(1), PeerId("a"), PeerId("b"))


def test_nothing_may_be_sent_before_credit_comes():
    out = OutChannel(1, CHANNEL)
    assert not out.may_send(1)
    assert out.credit(Credit(1, 0, 100))
    assert out.may_send(100)


def test_a_batch_goes_if_it_fits_or_if_at_most_half_of_the_window_is_in_use():
    out = OutChannel(1, CHANNEL, window=100)
    out.advance(50)
    assert out.may_send(51)
    out.advance(1)
    assert out.may_send(49)
    assert not out.may_send(50)
    out.credit(Credit(1, 1, 100))
    assert out.may_send(5_000)


@pytest.mark.parametrize("window", [1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize("size", [1, 2, 3, 50, 99, 100, 101, 1000])
def test_a_task_that_takes_everything_never_leaves_its_sender_without_credit(window, size):
    assert_never_without_credit(size, window, window)


@pytest.mark.parametrize("size", [1, 2, 3, 50, 99, 100, 101, 1000])
@pytest.mark.parametrize("granted", [1, 2, 7, 50, 400])
def test_nor_does_it_when_others_have_joined_or_left_since_credit_was_given(granted, size):
    assert_never_without_credit(size, granted, 100)


def assert_never_without_credit(size: int, granted: int, window: int) -> None:
    out = OutChannel(1, CHANNEL, window=granted)
    into = InChannel(1, CHANNEL, announced=0, granted=granted)
    for _ in range(50):
        assert out.may_send(size)
        out.advance(size)
        if into.take(size, window):
            into.announced, into.granted = into.taken, window
            out.credit(Credit(1, into.taken, window))


def test_credit_is_reported_for_half_of_the_window_at_once():
    into = InChannel(1, CHANNEL, announced=0, granted=100)
    assert [into.take(10, 100) for _ in range(6)] == [False] * 5 + [True]


def test_it_is_reported_once_that_nothing_was_found_also_when_all_credit_was():
    into = InChannel(1, CHANNEL, announced=0, granted=100)
    assert not into.take(10, 100)
    into.announced = into.taken
    assert into.take(0, 100)
    assert into.hungry
    assert not into.take(0, 100)
    assert into.take(60, 100)
    assert not into.hungry


def test_a_receiver_is_hungry_when_it_has_found_nothing_after_all_that_was_sent():
    sending = Sending(1, TransportSettings(), Counters(), lambda: None)
    assert sending.is_hungry(CHANNEL), "whoever sends first opens the channel"
    assert sending.admit(CHANNEL, 1) is None
    assert not sending.is_hungry(CHANNEL)
    sending.credit(Credit(1, 0, 100))
    assert sending.is_hungry(CHANNEL)
    out = sending.admit(CHANNEL, 10)
    assert out is not None
    out.advance(10)
    assert not sending.is_hungry(CHANNEL)
    assert sending.credit(Credit(1, 4, 100)), "whoever asked hears of it"
    assert not sending.is_hungry(CHANNEL)
    sending.credit(Credit(1, 10, 100))
    assert not sending.is_hungry(CHANNEL), "it works on the last of them"
    sending.credit(Credit(1, 10, 100, hungry=True))
    assert sending.is_hungry(CHANNEL)


def test_credit_for_more_than_was_sent_is_impossible_and_old_credit_changes_nothing():
    out = OutChannel(1, CHANNEL, window=100)
    out.advance(10)
    assert not out.credit(Credit(1, 11, 100))
    assert out.credit(Credit(1, 10, 80))
    assert out.credit(Credit(1, 5, 100))
    assert (out.taken, out.window) == (10, 80)


def test_sequence_numbers_begin_at_one():
    out = OutChannel(1, CHANNEL)
    assert [out.advance(5), out.advance(1)] == [1, 2]


def test_a_queue_numbers_packets_and_keeps_them_until_they_are_acknowledged():
    queue = PacketQueue(session=9)
    for packet in (b"one", b"two", b"three"):
        queue.append(packet)
    assert queue.next_packets(6, 6) == (1, [b"one", b"two"])
    assert queue.next_packets(1, 1) == (3, [b"three"])
    assert queue.next_packets(100, 100) == (4, [])
    assert queue.bytes == 11
    queue.acknowledge(2)
    assert queue.bytes == 5
    assert len(queue) == 1


def test_a_queue_sends_again_what_was_not_acknowledged_under_the_same_numbers():
    queue = PacketQueue(session=9)
    for packet in (b"one", b"two", b"three"):
        queue.append(packet)
    queue.next_packets(6, 6)
    queue.acknowledge(1)
    assert queue.rewind() == 1
    assert queue.next_packets(100, 100) == (2, [b"two", b"three"])
    assert queue.waiting_bytes == 0
    assert queue.bytes == 8


def test_the_last_packet_of_a_frame_may_exceed_its_target_but_not_the_limit():
    queue = PacketQueue(session=9)
    for packet in (b"ack", b"large batch", b"ack"):
        queue.append(packet)
    assert queue.next_packets(5, 20) == (1, [b"ack", b"large batch"])
    queue.rewind()
    assert queue.next_packets(5, 13) == (1, [b"ack"])


def test_a_queue_is_as_urgent_as_its_most_urgent_packet_until_all_have_gone():
    queue = PacketQueue(session=9)
    queue.append(b"ack", Urgency.PATIENT)
    assert queue.urgency is Urgency.PATIENT
    queue.append(b"flush", Urgency.FLUSH)
    queue.append(b"batch", Urgency.GATHER)
    queue.next_packets(3, 3)
    assert queue.urgency is Urgency.FLUSH
    queue.next_packets(100, 100)
    assert queue.urgency is Urgency.PATIENT
    queue.rewind()
    assert queue.urgency is Urgency.ITEM
