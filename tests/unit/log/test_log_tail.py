"""Following the log: events, and the requests and deliveries that follow."""

from tests.support.log.markers import marker

from onyx.codec.entries import encode_entry
from onyx.ids import NO_POSITION, Position
from onyx.log.interface import Origin
from onyx.log.zookeeper.subscription import (
    FETCHES_MAX,
    Actions,
    Cause,
    Deliver,
    GetEntry,
    ListChildren,
    LogTail,
    ReadOrigin,
)
from onyx.replica.command import Undecodable


def data(position: int) -> bytes:
    return encode_entry(marker(f"c{position}"))


def delivered(actions: Actions) -> list[int]:
    return [action.item.position for action in actions if isinstance(action, Deliver)]


def get(*positions: int) -> Actions:
    return tuple(GetEntry(Position(p)) for p in positions)


def started(after: int = NO_POSITION) -> LogTail:
    tail = LogTail(Position(after))
    assert tail.start() == (ListChildren(),)
    return tail


def arrive(tail: LogTail, *positions: int) -> list[int]:
    return [p for k in positions for p in delivered(tail.on_entry(Position(k), data(k)))]


def test_entries_are_fetched_together_and_delivered_in_order():
    tail = started()
    assert tail.on_children([2, 0, 1]) == get(0, 1, 2)
    assert arrive(tail, 2, 1) == []
    assert arrive(tail, 0) == [0, 1, 2]
    assert tail.position == 2


def test_only_what_is_after_the_position_is_asked_for():
    assert started(4).on_children(range(7)) == get(5, 6)


def test_a_change_lists_again_and_one_during_a_listing_lists_once_more():
    tail = started()
    assert tail.on_watch(Cause.CHANGED) == (), "a listing is under way"
    assert tail.on_children([0]) == (ListChildren(), *get(0))
    assert tail.on_children([0, 1]) == get(1)
    assert tail.on_watch(Cause.CHANGED) == (ListChildren(),)


def test_a_watch_that_fires_with_none_is_armed_again():
    tail = started()
    tail.on_children([0])
    assert tail.on_watch(Cause.NONE) == (ListChildren(),)


def test_after_a_reconnect_everything_unanswered_is_asked_for_again():
    tail = started()
    tail.on_children([0, 1])
    assert arrive(tail, 1) == []
    assert tail.on_connected() == (ListChildren(), *get(0))
    assert arrive(tail, 0) == [0, 1]


def test_a_poll_replaces_a_listing_whose_reply_never_came():
    tail = started()
    assert tail.on_poll() == (ListChildren(),)


def test_a_gap_that_the_origin_does_not_cover_is_stepped_over():
    tail = started(2)
    assert tail.on_children([5, 6]) == (ReadOrigin(Position(2)),)
    assert tail.on_origin(None) == get(5, 6)
    assert arrive(tail, 5, 6) == [5, 6]


def test_a_gap_between_listed_entries_is_stepped_over():
    tail = started()
    tail.on_children([0, 3])
    assert tail.on_entry(Position(0), data(0))[1:] == (ReadOrigin(Position(0)),)
    assert arrive(tail, 3) == []
    assert delivered(tail.on_origin(None)) == [3]


def test_a_reader_behind_a_collection_jumps_to_the_origin_and_goes_on():
    tail = started(2)
    assert tail.on_children([9, 10]) == (ReadOrigin(Position(2)),)
    actions = tail.on_origin(Origin(Position(8), b"replica"))
    assert actions[0] == Deliver(Origin(Position(8), b"replica"))
    assert actions[1:] == get(9, 10)
    assert arrive(tail, 9, 10) == [9, 10]


def test_entries_that_the_origin_contains_are_not_delivered_after_it():
    tail = started(2)
    tail.on_children([4, 5, 6])
    assert delivered(tail.on_origin(Origin(Position(5), b""))) == [5]
    assert arrive(tail, 6) == [6]


def test_an_entry_collected_between_listing_and_reading_leads_to_the_origin():
    tail = started()
    tail.on_children([0, 1])
    actions = tail.on_entry(Position(0), None)
    assert actions == (ListChildren(), ReadOrigin(NO_POSITION))
    assert delivered(tail.on_origin(Origin(Position(0), b""))) == [0]
    assert arrive(tail, 1) == [1]


def test_a_log_collected_entirely_is_noticed_at_the_start_and_by_the_poll():
    tail = started(2)
    assert tail.on_children([]) == (ReadOrigin(Position(2)),)
    assert tail.on_origin(None) == ()
    tail.on_poll()
    assert tail.on_children([]) == (ReadOrigin(Position(2)),)
    assert delivered(tail.on_origin(Origin(Position(30), b""))) == [30]


def test_an_answer_of_the_origin_speaks_only_of_the_gap_it_was_asked_for():
    tail = started(2)
    tail.on_children([5, 9])
    tail.on_origin(None)
    assert tail.on_entry(Position(5), None) == (ListChildren(), ReadOrigin(Position(2)))


def test_a_late_listing_takes_nothing_back():
    tail = started()
    tail.on_children([0, 1])
    assert arrive(tail, 0) == [0]
    tail.on_children([0])
    assert arrive(tail, 1) == [1]


def test_fetches_are_bounded():
    tail = started()
    requests = tail.on_children(range(10 * FETCHES_MAX))
    assert requests == get(*range(FETCHES_MAX))
    assert tail.on_entry(Position(5), data(5)) == (), "waits for an earlier one"
    assert tail.on_entry(Position(0), data(0))[1:] == get(FETCHES_MAX)


def test_bytes_that_are_no_entry_are_delivered_as_an_unreadable_one():
    tail = started()
    tail.on_children([0])
    (action,) = tail.on_entry(Position(0), b"\xff{")
    assert isinstance(action, Deliver)
    assert isinstance(action.item.command, Undecodable)
