"""Of all that workers report of a job the cause is shown, and not its messengers."""

import pytest

from onyx.reports.stalls import Reason, Stall, cause, sentence, status_sentence

ORDER = ("read", "parse", "write")


def stall(task, reason, since_ms=0, peer="p1", **more):
    return Stall("job-1", task, peer, reason, f"{task} is {reason}", since_ms, **more)


@pytest.mark.parametrize(
    ("stalls", "root"),
    [
        ([], None),
        (
            [
                stall("read", Reason.COMPLETIONS, is_input=True),
                stall("parse", Reason.DOWNSTREAM),
                stall("write", Reason.UNAVAILABLE),
            ],
            "write",
        ),
        ([stall("read", Reason.DOWNSTREAM), stall("parse", Reason.FUNCTION)], "parse"),
        ([stall("write", Reason.THREAD), stall("read", Reason.PLUGIN)], "read"),
        ([stall("write", Reason.NOT_DURABLE), stall("parse", Reason.FUNCTION)], "parse"),
        ([stall("write", Reason.NOT_DURABLE), stall("read", Reason.COMPLETIONS)], "write"),
        ([stall("read", Reason.UNAVAILABLE), stall("write", Reason.UNAVAILABLE)], "write"),
        ([stall("read", Reason.PEERS), stall("parse", Reason.START_TASK)], "parse"),
        ([stall("gone", Reason.UNAVAILABLE), stall("read", Reason.UNAVAILABLE)], "read"),
        ([stall("parse", Reason.FUNCTION)], None),
        ([stall("parse", Reason.LIFECYCLE, alone=True)], "parse"),
        ([stall("write", Reason.SPARK, alone=True)], "write"),
        ([stall("read", Reason.RETRY), stall("write", Reason.NOT_DURABLE)], "write"),
        ([stall("parse", Reason.SUSPECTS), stall("read", Reason.RETRY)], "read"),
        ([stall("write", Reason.NOT_DURABLE, in_time=True)], None),
        ([stall("parse", Reason.SPARK, in_time=True)], None),
        (
            [
                stall("read", Reason.COMPLETIONS, is_input=True),
                stall("parse", Reason.SPARK, in_time=True),
            ],
            "parse",
        ),
        (
            [
                stall("read", Reason.COMPLETIONS, in_time=True),
                stall("write", Reason.NOT_DURABLE, in_time=True),
                stall("parse", Reason.FUNCTION),
            ],
            "parse",
        ),
    ],
)
def test_the_most_downstream_task_that_waits_for_no_other_is_the_cause(stalls, root):
    for order in (stalls, stalls[::-1]):
        found = cause(order, ORDER)
        assert (found and found.task) == root


def test_the_longest_of_equals_is_named_and_the_others_are_counted():
    stalls = [
        stall("write", Reason.UNAVAILABLE, 5_000, "peer-aaaa-1"),
        stall("write", Reason.UNAVAILABLE, 2_000, "peer-bbbb-2"),
        stall("read", Reason.COMPLETIONS, 2_000, segments=70, oldest_ms=1_000, is_input=True),
        stall("read", Reason.COMPLETIONS, 3_000, "p2", segments=5, oldest_ms=4_000, is_input=True),
    ]
    found = cause(stalls, ORDER)
    assert sentence(found, stalls, 42_000) == (
        "does not advance: task write (peer peer-bbb and 1 more), for 40 s: write is unavailable; "
        "75 segments are in flight, the oldest for 41 s"
    )
    assert status_sentence(found, stalls) == (
        "task write (peer peer-bbb and 1 more), since 1970-01-01T00:00:02Z: write is unavailable"
    )
    assert "for 0 s" in sentence(found, stalls, 1_000), "clocks may differ"


def test_what_is_in_flight_for_longer_than_its_pending_timeout_names_the_key():
    late = {"segments": 40, "oldest_ms": 1_000, "is_input": True, "overdue_ms": 60_000}
    stalls = [stall("parse", Reason.FUNCTION, 2_000), stall("read", Reason.COMPLETIONS, **late)]
    found = cause(stalls, ORDER)
    assert found.task == "parse"
    named = "longer than pendingTimeout (60,000 ms): what a worker still works on is not read again"
    assert sentence(found, stalls, 91_000).endswith(
        f"; 40 segments are in flight, the oldest for 90 s, {named}"
    )
    assert status_sentence(found, stalls).endswith(f"; segments are in flight, {named}")
