"""What entries of the log mean for jobs, in words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.log.replica_log import ReplicaLog

from onyx.ids import JobId, Position
from onyx.model.locations import HIDDEN
from onyx.replica import story
from onyx.replica.command import Command, Entry
from onyx.replica.commands import (
    AddVirtualPeer,
    DrainJob,
    ExhaustInput,
    Gc,
    GroupLeaveCluster,
    KillJob,
    LeaveCluster,
    PauseJob,
    RegisterPartitions,
    ReportLoss,
    RestartTask,
    ResumeJob,
    SetOptions,
    SignalRest,
    SuspendJob,
)
from onyx.replica.commands.set_options import TaskOptions
from onyx.replica.commands.signal_ready import signal
from onyx.replica.job_events import (
    FROM_A_WORKER,
    FROM_THE_LOG,
    KILLED,
    NAMED_MAX,
    WAITS,
    JobEvent,
    beginnings,
    local_event,
)


def lines(log: ReplicaLog) -> list[str]:
    """What the last entry was told as: job, name and words."""
    assert log.entry is not None
    found = story.events_of(log.old, log.entry, log.new)
    return [f"{each.job or '-'} {each.kind.name}: {each.text}" for each in found]


def running(peers: int = 3) -> ReplicaLog:
    return ReplicaLog().join("g", peers=peers).submit().ready()


def two_workers() -> ReplicaLog:
    return ReplicaLog().join("g", "h", peers=2).submit().ready()


# What there is before, what is written, by which worker, and what it is told as.
ENTRIES: list[tuple[ReplicaLog, Command, str, list[str]]] = [
    (running(), SuspendJob(job="j"), "", ["j job-suspended: suspended"]),
    (running(), PauseJob(job="j"), "", ["j job-paused: paused: its inputs read nothing new"]),
    (running(), DrainJob(job="j"), "",
        ["j job-drains: drains: its inputs read nothing new any more"]),
    (running(), KillJob(job="j"), "", ["j job-killed: killed"]),
    (
        running(), KillJob("j", "task parse failed in apply-fn with ValueError"), "g",
        ["j job-failed: failed: task parse failed in apply-fn with ValueError"],
    ),
    (running(), ResumeJob(job="j"), "", ["j no-change: resume-job changes nothing"]),
    (running(), KillJob(job="other"), "", ["other job-killed: killed"]),
    (running(), RestartTask("j", "parse"), "g",
        ["j task-restarted: task parse begins anew on a new peer, 1 times in a row"]),
    (running(), ReportLoss("j", "parse", "x"), "g",
        ["j process-lost: a process died while task parse was in user code"]),
    (running(), SetOptions("j", {"read": TaskOptions(batch_size=9)}), "",
        ["j options-set: set: read.batchSize=9"]),
    (running(), RegisterPartitions("j", "read", 2, "d"), "g",
        ["j partitions-found: task read has 2 partitions"]),
    (running(), ExhaustInput("j", "read"), "g",
        ["j source-ended: task read has ended, and all it gave is complete"]),
    (
        two_workers(), GroupLeaveCluster(id="h"), "g",
        ["- worker-lost: worker h is declared dead by worker g",
         "j job-waits: waits: needs 3 peers (read 1, parse 1, write 1); "
         "the cluster has 2, 2 of them free"],
    ),
    (
        ReplicaLog().join("g", peers=2).join("h", peers=1).submit().join("i", peers=1).ready(),
        GroupLeaveCluster(id="h"), "h",
        ["- worker-left: worker h has left",
         "j job-reallocated: allocated anew, because worker h left: "
         "3 peers on 2 workers: read 1 (1 gone), parse 1 (1 new, 1 gone), write 1"],
    ),
    (
        running(peers=4), LeaveCluster("g-0", "g", restart=True, restarted_id="g-9"), "g",
        ["j job-reallocated: allocated anew, because a peer of worker g begins anew: "
         "3 peers on 1 worker: read 1 (1 gone), parse 1, write 1"],
    ),
    (running().complete(), Gc(id="x"), "g",
        ["j job-forgotten: forgotten, with all that was beside the log"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("log", "command", "writer", "expected"), ENTRIES, ids=[each[1].NAME for each in ENTRIES]
)
def test_an_entry_is_told_in_words(
    log: ReplicaLog, command: Command, writer: str, expected: list[str]
) -> None:
    log.tell(command, writer=writer)
    assert lines(log) == expected


def test_a_job_is_told_from_its_submission_to_its_end() -> None:
    log, told = ReplicaLog(), []

    def tell(*commands: Command) -> None:
        for command in commands:
            log.tell(command, writer="g")
            told.extend(lines(log))

    log.submit()
    told += lines(log)
    log.join("g", peers=3)
    told += lines(log)
    version = log.new.run("j").allocation_version
    tell(signal("j", version, "g-0"), signal("j", version, "g-1", "g-2"))
    tell(RegisterPartitions("j", "read", 1, "d"), ExhaustInput("j", "read"))
    log.complete()
    told += lines(log)
    assert [each.split(":")[0].removeprefix("j ") for each in told] == [
        "job-submitted", "job-waits", "job-taken", "worker-ready", "worker-ready", "job-runs",
        "partitions-found", "source-ended", "output-sealed", "job-completed",
    ]  # fmt: skip
    assert "worker g is ready: 2 peers" in told[4]


def test_a_job_that_upgrades_another_is_local_event_both() -> None:
    log = running().submit("new", upgrades="j")
    assert lines(log) == [
        "j job-upgraded: ended: job new takes its place",
        "new job-upgrades: submitted, with 3 tasks, in the place of job j",
        "new job-taken: taken: 3 peers on 1 worker: read 1, parse 1, write 1",
    ]


def test_a_job_that_loses_a_peer_of_a_task_that_must_not_says_so() -> None:
    log = ReplicaLog().join("g", "h", peers=2).submit(flux_policies={"parse": "kill"}).ready()
    holds = log.new.groups_reverse_index[log.new.run("j").allocation["parse"][0]]
    log.tell(GroupLeaveCluster(id=holds))
    assert lines(log)[1:] == [
        "j job-killed: killed: it lost a peer of a task with fluxPolicy kill (parse)"
    ]


def test_what_another_job_does_is_told_as_the_reason() -> None:
    log = ReplicaLog().join("g", peers=3).submit(priority=1).ready().submit("late")
    log.tell(SuspendJob(job="j"))
    assert lines(log)[1] == "late job-taken: taken: 3 peers on 1 worker: read 1, parse 1, write 1"
    log.tell(ResumeJob(job="j"))
    told = lines(log)
    assert [each.split(":")[0] for each in told] == [
        "j job-resumed", "j job-taken", "late job-waits",
    ]  # fmt: skip


def test_a_paused_job_says_when_it_has_come_to_rest() -> None:
    log = running()
    log.tell(PauseJob(job="j"))
    run = log.new.run("j")
    log.tell(SignalRest("j", "read", run.allocation_version, run.paused, run.allocation["read"]))
    assert lines(log) == ["j job-rested: at rest: nothing of it is in flight"]


def test_why_a_job_waits_is_told_when_the_words_change_and_not_the_numbers() -> None:
    log, told = ReplicaLog().join("g", peers=1).submit(tasks=" ".join("abcdefgh")), []
    for number in range(1, 7):
        log.join(f"g{number}", peers=1)
        told += [each for each in lines(log) if WAITS.name in each]
    assert told == []
    log.tell(GroupLeaveCluster(id="g"))
    for number in range(1, 7):
        log.tell(GroupLeaveCluster(id=f"g{number}"))
        told += [each for each in lines(log) if WAITS.name in each]
    assert len(told) == 1
    assert told[0].endswith("the cluster has none")


def test_jobs_that_nobody_asks_for_are_not_told() -> None:
    log = running().submit("new", upgrades="j")
    assert log.entry is not None
    found = story.events_of(log.old, log.entry, log.new, of="new".__eq__)
    assert {each.job for each in found} == {"new"}


def test_who_did_it_and_when_are_of_the_entry() -> None:
    log = running()
    by_person = Entry(Position(90), KillJob(job=JobId("j")), by="kubernetes:alice", at_ms=5)
    by_worker = Entry(Position(91), KillJob(job=JobId("j")), writer="g", sequence=1)
    after = log.tell(KillJob(job="j"))
    said = [story.events_of(log.old, each, after)[0] for each in (by_person, by_worker)]
    assert [(each.by, each.at_ms, each.position) for each in said] == [
        ("kubernetes:alice", 5, 90), ("worker:g", 0, 91),
    ]  # fmt: skip


def test_a_worker_that_is_lost_is_named_with_its_address() -> None:
    log = ReplicaLog().join("g", "h")
    log.tell(AddVirtualPeer(id="p", group_id="h", peer_site={"address": "10.0.0.7:4000"}))
    log.tell(GroupLeaveCluster(id="h"), writer="g")
    assert lines(log) == ["- worker-lost: worker h at 10.0.0.7:4000 is declared dead by worker g"]


def test_what_the_dead_have_written_means_nothing() -> None:
    log = two_workers()
    log.tell(GroupLeaveCluster(id="h"), writer="g")
    log.tell(KillJob(job="j"), writer="h", sequence=9)
    assert lines(log) == []


@pytest.mark.parametrize("hostile", ["\x1b[2J", "a\nb", "x" * 100_000, "\u202e", "\ud800", "{0}"])
def test_a_value_cannot_end_its_line_or_fill_a_screen(hostile: str) -> None:
    event = local_event(KILLED, "j", why=hostile)
    assert event.text.isprintable()
    assert len(event.text) < 700
    assert event.text.encode()


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ([("a.csv", 0, False)], "a.csv at 0"),
        ([("a.csv", 7, False), ("b.csv", 9, True)], "a.csv at 7, b.csv has ended"),
        ([("/data/" + "x" * 100 + "/a.csv", 1, False)], "..." + "x" * 42 + "/a.csv at 1"),
        ([("https://me:secret@host/a", 1, False)], f"https://{HIDDEN}@host/a at 1"),
        ([("p", 0, False)] * (NAMED_MAX + 3), ", ".join(["p at 0"] * NAMED_MAX) + " and 3 more"),
    ],
)  # fmt: skip
def test_partitions_are_named_with_their_positions(
    partitions: list[tuple[str, int, bool]], expected: str
) -> None:
    assert beginnings(partitions) == expected


def test_an_event_has_the_values_of_its_kind_and_no_others() -> None:
    with pytest.raises(AssertionError, match="job-killed"):
        JobEvent(KILLED, {"who": "me"})


def test_every_kind_has_a_name_of_its_own() -> None:
    names: list[Any] = [each.name for each in (*FROM_THE_LOG, *FROM_A_WORKER)]
    assert len(names) == len(set(names))
