"""Parts of several workers make one."""

import msgspec
import pytest

from onyx.reports.measures import (
    PARTITIONS_SHOWN_MAX,
    Durations,
    EdgeMeasures,
    InputMeasures,
    JobMeasures,
    Measures,
    PartitionMeasures,
    StateMeasures,
    TaskMeasures,
    WorkerMeasures,
    done_in_words,
    furthest,
    in_words,
    of_inputs,
    of_jobs,
)

BOUNDS = (0.1, 1.0)


def worker(name, *tasks, edges=()):
    return WorkerMeasures(name, 0, tasks, edges)


def test_durations_add_up_and_say_where_most_of_them_are():
    both = Durations(BOUNDS, (90, 9, 1), 12.0) + Durations(BOUNDS, (0, 0, 0), 0.0)
    assert both.count == 100
    assert both.mean_s == pytest.approx(0.12)
    assert [both.quantile_s(part) for part in (0.5, 0.9, 0.95, 1.0)] == [0.1, 0.1, 1.0, 1.0]
    assert both.since(Durations(BOUNDS, (90, 0, 0), 9.0)) == Durations(BOUNDS, (0, 9, 1), 3.0)


@pytest.mark.parametrize("found", [Durations(), Durations(BOUNDS, (0, 0, 0))])
def test_without_any_duration_nothing_is_said(found):
    assert (found.mean_s, found.quantile_s(0.5)) == (None, None)
    known = Durations(BOUNDS, (1, 0, 0), 0.05)
    assert found + known == known + found == known


def test_a_task_of_two_workers_is_the_sum_and_the_oldest():
    mine = InputMeasures(1, 5, None, 2.0, 7.0, in_flight=3, oldest_open_s=4.0, event_time_ms=9)
    its = InputMeasures(2, 6, None, 3.0, 8.0, in_flight=1, oldest_open_s=1.0, event_time_ms=8)
    found = Measures(
        (
            worker("a", TaskMeasures("j", "read", 1, {"read": 1}, 10.0, busiest=0.5, input=mine)),
            worker("b", TaskMeasures("j", "read", 2, {"read": 2}, 20.0, busiest=0.9, input=its)),
        )
    )
    (task,) = found.tasks
    assert (task.peers, task.phase, task.in_per_s, task.busiest) == (3, {"read": 3}, 30.0, 0.9)
    assert task.input == InputMeasures(
        3, 11, None, 3.0, 15.0, in_flight=4, oldest_open_s=4.0, event_time_ms=8
    )


def test_a_peer_without_partitions_hides_nothing_of_what_comes_into_the_others():
    reads, idle = InputMeasures(1, 5, arriving_per_s=7.0), InputMeasures(0, 0)
    assert (reads + idle).arriving_per_s == (idle + reads).arriving_per_s == 7.0
    assert (reads + InputMeasures(1, 5)).arriving_per_s is None


@pytest.mark.parametrize(
    ("mine", "its", "both"),
    [(None, 0.0, None), (0.0, 0.0, 0.0), (5.0, 0.0, 5.0), (5.0, None, 5.0), (None, None, None)],
)
def test_a_peer_that_has_read_all_hides_no_other_whose_age_nobody_knows(mine, its, both):
    parts = InputMeasures(1, 5, seconds_behind=mine), InputMeasures(0, 0, seconds_behind=its)
    assert (parts[0] + parts[1]).seconds_behind == (parts[1] + parts[0]).seconds_behind == both


def test_numbers_of_inputs_are_told_without_partitions_and_words():
    read = InputMeasures(
        1, 5, event_time_ms=9, slowest=(PartitionMeasures("secret", 3),), unknown="secret"
    )
    tasks = (
        TaskMeasures("j", "read", 1, {"secret": 1}, 10.0, input=read),
        TaskMeasures("j", "secret", 1),
    )
    whole = worker("g", *tasks, edges=(EdgeMeasures("j", "read", "secret"),))
    (told,) = of_inputs(whole).tasks
    assert (told.in_per_s, told.input) == (10.0, InputMeasures(1, 5))
    assert b"secret" not in msgspec.json.encode(of_inputs(whole))


def test_what_one_part_does_not_know_is_not_known_of_the_whole():
    found = InputMeasures(1, 5, 100) + InputMeasures(1, None, 100, unknown="no broker answers")
    assert (found.segments_behind, found.bytes_behind) == (None, 200)
    assert found.unknown == "no broker answers"


def test_only_those_partitions_are_named_that_are_furthest_behind():
    many = [PartitionMeasures(str(n), 0, segments_behind=n) for n in range(1000)]
    found = furthest(many)
    assert len(found) == PARTITIONS_SHOWN_MAX
    assert found[0].segments_behind == 999


def test_states_add_up():
    found = TaskMeasures("j", "t", state=StateMeasures(10, 1))
    found += TaskMeasures("j", "t", state=StateMeasures(5, None, 2, 77, {"left": 4}))
    assert found.state == StateMeasures(15, 1, 2, 77, {"left": 4})


def test_a_job_in_a_line_is_over_its_inputs_and_names_who_holds_back():
    tasks = [
        TaskMeasures("j", "one", in_per_s=5.0, input=InputMeasures(1, 3)),
        TaskMeasures("j", "two", in_per_s=6.0, input=InputMeasures(1, 4)),
        TaskMeasures("other", "one", in_per_s=9.0, input=InputMeasures(1, 9)),
        TaskMeasures("none", "work"),
    ]
    edges = [EdgeMeasures("j", "one", "slow", held=1.0), EdgeMeasures("j", "one", "x")]
    found = of_jobs(tasks, edges)
    assert list(found) == ["j", "other"]
    assert (found["j"].per_s, found["j"].segments_behind) == (11.0, 7)
    assert found["j"].backpressured == ("slow",)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (
            [InputMeasures(1, done=30, left=70, completed_per_s=1.0)],
            "30 % done, about 0:01:10 left",
        ),
        (
            [
                InputMeasures(1, done=30, left=70, completed_per_s=1.0),
                InputMeasures(1, done=800, left=100, completed_per_s=100.0),
            ],
            "83 % done, about 0:01:10 left",
        ),
        ([InputMeasures(1, done=30, left=70)], "30 % done"),
        (
            [InputMeasures(1, done=199, left=1, completed_per_s=1.0)],
            "99 % done, about 0:00:01 left",
        ),
        ([InputMeasures(0, done=100, left=0)], "its inputs are done"),
        ([InputMeasures(1, done=30, left=70, completed_per_s=1.0), InputMeasures(1, 5)], ""),
        ([InputMeasures(1, 5, completed_per_s=1.0)], ""),
    ],
)
def test_how_much_is_done_and_left_is_said_where_all_inputs_have_an_end(inputs, words):
    tasks = [TaskMeasures("j", str(n), input=each) for n, each in enumerate(inputs)]
    assert done_in_words(of_jobs(tasks)["j"]) == words


def test_a_job_is_said_in_words():
    complete = Durations(BOUNDS, (9, 1, 0), 1.0)
    job = JobMeasures(1234.4, 5678, None, 3.21, 100.0, complete, silent={"g": "no answer: 2 s"})
    assert in_words(job) == (
        "1,234 segments a second, 5,678 segments behind (3.2 s), complete within 0.1 s (half), "
        "1 s (99 %), the oldest was read 100 s ago, group g did not answer: no answer: 2 s"
    )
    assert in_words(JobMeasures(0.0, 0, seconds_behind=0.0)) == (
        "0 segments a second, 0 segments behind"
    )
    assert in_words(JobMeasures(2.0)) == "2 segments a second"
