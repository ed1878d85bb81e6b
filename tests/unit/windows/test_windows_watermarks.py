"""Watermarks of channels and partitions, and epochs: the cases worth a name."""

from onyx.windows.watermarks import (
    IDLE,
    SILENT,
    TIME_MS_MAX,
    TIME_MS_MIN,
    WAITING_EPOCHS_MAX,
    ChannelEpochs,
    ChannelMarks,
    Lull,
    PartitionMarks,
    Rising,
)


def sent(*news, channels=("a", "b")):
    """What a task sends downstream after each piece of news."""
    marks, rising = ChannelMarks(channels), Rising()
    found = []
    for channel, said in news:
        marks.hear(channel, said)
        found.append(rising.follow(marks.mark))
    return found


def test_nothing_is_sent_before_every_channel_has_a_time():
    assert sent(("a", 5), ("a", 7), ("b", 3)) == [None, None, 3]


def test_an_idle_channel_holds_nothing_back():
    assert sent(("a", 5), ("b", IDLE), ("a", 6)) == [None, 5, 6]


def test_a_channel_that_wakes_up_late_holds_time_where_it_is_and_does_not_pull_it_back():
    news = (("a", 10), ("b", IDLE), ("b", 4), ("a", 20), ("b", 12))
    assert sent(*news) == [None, 10, None, None, 12]


def test_a_task_whose_channels_are_all_idle_is_idle_and_says_so_once():
    assert sent(("a", IDLE), ("b", 5), ("b", IDLE), ("b", IDLE)) == [None, 5, IDLE, None]


def test_a_task_that_wakes_up_says_the_same_time_again():
    news = (("a", 9), ("b", IDLE), ("a", IDLE), ("b", 3), ("b", 11))
    assert sent(*news) == [None, 9, IDLE, 9, 11]


def test_a_task_without_channels_is_idle():
    assert ChannelMarks(()).mark is IDLE


def test_a_partition_that_has_given_nothing_holds_back_until_it_is_idle():
    marks = PartitionMarks(disorder_ms=0, idle_timeout_s=2.0)
    marks.saw(0, 100)
    assert marks.mark((0, 1), 50.0) is SILENT, "it was not even asked yet"
    marks.saw_nothing(1, 50.0)
    marks.saw_nothing(1, 51.0)
    assert marks.mark((0, 1), 51.9) is SILENT
    assert marks.mark((0, 1), 52.0) == 100


def test_without_a_timeout_a_silent_partition_holds_back_for_ever():
    marks = PartitionMarks(disorder_ms=0, idle_timeout_s=None)
    marks.saw(0, 100)
    marks.saw(1, 10)
    marks.saw_nothing(1, 0.0)
    assert marks.mark((0, 1), 1e9) == 10


def test_an_exhausted_partition_is_left_out_and_the_last_one_leaves_idle():
    marks = PartitionMarks(disorder_ms=5, idle_timeout_s=None)
    marks.saw(0, 100)
    marks.saw(1, 10)
    assert marks.mark((0, 1), 0.0) == 5
    assert marks.mark((0,), 0.0) == 95
    assert marks.mark((), 0.0) is IDLE


def test_a_partition_that_comes_back_from_another_peer_starts_anew():
    marks = PartitionMarks(disorder_ms=0, idle_timeout_s=None)
    marks.saw(0, 100)
    marks.saw(1, 10)
    marks.forget((1,))
    assert marks.mark((0,), 0.0) == 100
    assert marks.mark((0, 1), 0.0) is SILENT


def test_disorder_does_not_leave_64_bits():
    marks = PartitionMarks(disorder_ms=5, idle_timeout_s=None)
    marks.saw(0, TIME_MS_MIN + 1)
    assert marks.mark((0,), 0.0) == TIME_MS_MIN


def test_an_epoch_is_complete_when_it_came_on_all_channels():
    epochs = ChannelEpochs("ab")
    epochs.hear("a", 1, [(7, 10)])
    assert epochs.take() is None
    epochs.hear("b", 1, [(8, 3)])
    assert epochs.take() == (1, {7: 10, 8: 3})
    assert epochs.take() is None


def test_a_channel_that_skips_numbers_has_passed_them():
    epochs = ChannelEpochs("ab")
    epochs.hear("a", 1, [(7, 10)])
    epochs.hear("a", 2, [(7, 20)])
    epochs.hear("a", 4, [(7, 40)])
    epochs.hear("b", 3, [])
    assert epochs.take() == (3, {7: 20})


def test_what_comes_late_of_an_epoch_goes_with_the_next():
    epochs = ChannelEpochs("ab")
    epochs.hear("a", 1, [(7, 10)])
    epochs.hear("b", 1, [])
    assert epochs.take() == (1, {7: 10})
    epochs.hear("a", 1, [(9, 5)])
    assert epochs.take() is None
    epochs.hear("a", 2, [])
    epochs.hear("b", 2, [])
    assert epochs.take() == (2, {9: 5})


def test_far_behind_the_newest_epochs_become_one():
    epochs = ChannelEpochs("ab")
    last = WAITING_EPOCHS_MAX + 10
    for epoch in range(1, last + 1):
        epochs.hear("a", epoch, [(epoch, 1)])
    epochs.hear("b", last - 1, [])
    assert epochs.take() == (last - 1, dict.fromkeys(range(1, WAITING_EPOCHS_MAX), 1))
    epochs.hear("b", last, [])
    assert epochs.take() == (last, dict.fromkeys(range(WAITING_EPOCHS_MAX, last + 1), 1))


def test_a_time_that_falls_on_a_channel_is_taken_as_the_one_before():
    rising = Rising()
    assert [rising.follow(mark) for mark in (5, 3, 5, 6)] == [5, None, None, 6]


def test_where_all_channels_are_idle_the_latest_that_follows_the_clock_counts():
    news = (("a", 10), ("b", Lull(30)), ("a", Lull(12)), ("b", Lull(31)), ("a", IDLE))
    assert sent(*news) == [None, 10, Lull(30), Lull(31), None]


def test_a_channel_that_wakes_up_in_a_lull_does_not_pull_time_back():
    news = (("a", IDLE), ("b", Lull(30)), ("b", 7), ("b", 31), ("b", Lull(20)))
    assert sent(*news) == [None, Lull(30), 30, 31, Lull(31)]


def lulled(*times, disorder_ms=0):
    """Partitions 0, 1, ... of an input that follows the clock after 2 s, silent since 0 s."""
    marks = PartitionMarks(disorder_ms, 2.0, follows_clock=True)
    for partition, time_ms in enumerate(times):
        if time_ms is not None:
            marks.saw(partition, time_ms)
        marks.saw_nothing(partition, 0.0)
    return marks


def ask(marks, now_s, partitions=(0, 1)):
    for partition in partitions:
        marks.saw_nothing(partition, now_s)
    return marks.mark(partitions, now_s)


def test_in_a_lull_event_time_goes_on_from_where_it_was_in_steps_of_a_second():
    marks = lulled(100, 500, disorder_ms=40)
    assert ask(marks, 1.9) == 60
    assert ask(marks, 2.0) == Lull(460), "idle partitions hold nothing back"
    assert ask(marks, 2.9) == Lull(460)
    assert ask(marks, 7.0) == Lull(5_460)


def test_event_time_does_not_run_ahead_of_a_partition_that_was_not_asked():
    marks = lulled(100, 500)
    ask(marks, 3.0)
    marks.saw_nothing(0, 60.0)
    assert marks.mark((0, 1), 60.0) == Lull(1_500)
    marks.saw(1, 600)
    assert marks.mark((0, 1), 60.0) == 600, "it had something"


def test_partitions_that_never_gave_a_time_have_none_in_a_lull_either():
    assert ask(lulled(None, None), 60.0) is IDLE
    assert ask(lulled(None, 100), 62.0) == Lull(60_100)


def test_a_second_lull_goes_on_where_the_first_had_come():
    marks = lulled(100, 100)
    assert ask(marks, 12.0) == Lull(10_100)
    marks.saw(0, 300)
    assert ask(marks, 13.0) == 300, "it is late, and the input says what it has"
    assert ask(marks, 15.0) == Lull(13_100), "partition 1 has been silent all the time"
    marks.saw(1, 300)
    assert ask(marks, 16.0, (0, 1)) == 300
    assert ask(marks, 18.0, (0, 1)) == Lull(13_100)
    assert ask(marks, 19.0, (0, 1)) == Lull(14_100)


def test_after_a_new_allocation_each_partition_has_to_be_silent_again():
    marks = lulled(100, 200)
    assert ask(marks, 12.0) == Lull(10_200)
    marks.ask_anew()
    assert marks.mark((0, 1), 3_600.0) == 100, "an hour later nobody has asked yet"
    assert ask(marks, 3_600.0) == 100
    assert ask(marks, 3_603.0) == Lull(11_200)


def test_what_event_time_had_come_to_elsewhere_counts_only_in_a_lull():
    marks = PartitionMarks(0, 2.0, follows_clock=True)
    marks.had_come_to(0, 5_000)
    assert marks.mark((0,), 0.0) is SILENT
    marks.saw(0, 1_000)
    assert marks.mark((0,), 0.0) == 1_000, "older segments are read again"
    marks.saw_nothing(0, 0.0)
    assert ask(marks, 3.0, (0,)) == Lull(6_000)


def test_exhausted_partitions_follow_no_clock():
    assert lulled(100).mark((), 60.0) is IDLE


def test_the_clock_does_not_leave_64_bits():
    assert ask(lulled(TIME_MS_MAX - 5, 0), 60.0) == Lull(TIME_MS_MAX)
