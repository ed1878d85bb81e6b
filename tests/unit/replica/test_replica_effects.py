from tests.support.log.replica_log import ReplicaLog

from onyx.replica.commands import (
    AbortJoinCluster,
    AddVirtualPeer,
    CheckJob,
    ExhaustInput,
    Gc,
    GroupLeaveCluster,
    KillJob,
    LeaveCluster,
    PrepareJoinCluster,
    RegisterPartitions,
    ResumeJob,
    SuspendJob,
    VouchJob,
)
from onyx.replica.commands.signal_ready import signal
from onyx.replica.effects import (
    AnswerCheck,
    BackOff,
    JobReady,
    ProbePulse,
    RestartGroup,
    RewireTask,
    SealTask,
    StartTask,
    StopTask,
)


def of_kind(effects, *kinds):
    return [each for each in effects if isinstance(each, kinds)]


def test_each_group_starts_its_own_peers_only():
    log = ReplicaLog().join("g1", peers=2).join("g2", peers=1).submit()
    started = {group: of_kind(log.effects(group), StartTask) for group in ("g1", "g2", "g3")}
    assert {group: sorted(each.peer for each in found) for group, found in started.items()} == {
        "g1": ["g1-0", "g1-1"],
        "g2": ["g2-0"],
        "g3": [],
    }
    assert {each.version for found in started.values() for each in found} == {log.new.version}


def test_who_stays_is_rewired_when_another_comes():
    log = ReplicaLog().join("g1", peers=3).submit()
    before = dict(log.new.run("j").slots)
    log.join("g2").tell(AddVirtualPeer(id="more", group_id="g2"))
    rewired = log.effects("g1")
    assert [type(each) for each in rewired] == [RewireTask] * 3
    assert all(before[each.task][each.peer] == each.slot for each in rewired)
    assert [type(each) for each in log.effects("g2")] == [StartTask]


def test_stops_come_before_starts_and_say_why():
    log = ReplicaLog().join("g", peers=3).submit("j1").submit("j2")
    log.tell(KillJob(job="j1"))
    kinds = [type(each) for each in log.effects("g")]
    assert kinds == [StopTask] * 3 + [StartTask] * 3
    assert {each.reason for each in of_kind(log.effects("g"), StopTask)} == {"job-killed"}
    log.complete("j2")
    assert {each.reason for each in of_kind(log.effects("g"), StopTask)} == {"job-completed"}


def test_peers_of_a_suspended_job_stop_and_say_why():
    log = ReplicaLog().join("g", peers=3).submit()
    log.tell(SuspendJob(job="j"))
    assert [type(each) for each in log.effects("g")] == [StopTask] * 3
    assert {each.reason for each in log.effects("g")} == {"job-suspended"}
    log.tell(ResumeJob(job="j"))
    assert [type(each) for each in log.effects("g")] == [StartTask] * 3


def test_a_peer_that_left_stops():
    log = ReplicaLog().join("g", peers=3).submit()
    log.tell(LeaveCluster(id="g-1"))
    stopped = {each.peer: each.reason for each in of_kind(log.effects("g"), StopTask)}
    assert stopped.pop("g-1") == "peer-left"
    assert set(stopped.values()) == {"peer-reallocated"}


def test_a_job_is_ready_once_with_its_last_peer():
    log = ReplicaLog().join("g1", peers=2).join("g2", peers=1).submit()
    version = log.new.run("j").allocation_version
    said = []
    for peer in ("g1-0", "g1-1", "g2-0", "g2-0"):
        log.tell(signal("j", version, peer))
        said.append((log.effects("g1"), log.effects("g2")))
    ready = (JobReady("j", version),)
    assert said == [((), ()), ((), ()), (ready, ready), ((), ())]


def test_the_sealer_is_told_once_and_again_after_a_rewiring():
    log = ReplicaLog().join("g", peers=3).submit().ready()
    log.tell(ExhaustInput(job="j", task="read"))
    (reported,) = log.effects("g")
    assert isinstance(reported, SealTask)
    assert reported.task == "write"
    log.tell(ExhaustInput(job="j", task="read"))
    assert log.effects("g") == ()
    log.tell(AddVirtualPeer(id="more", group_id="g"))
    assert of_kind(log.effects("g"), SealTask) == []
    log.ready()
    assert of_kind(log.effects("g"), SealTask) == [
        SealTask(log.new.run("j").sealers["write"], "j", "write")
    ]


def test_an_aborted_joiner_backs_off_and_looks_whether_anybody_lives():
    log = ReplicaLog().join("g1")
    log.tell(PrepareJoinCluster(joiner="g2"))
    log.tell(PrepareJoinCluster(joiner="g3"))
    assert log.effects("g3") == (ProbePulse("g1"),)
    assert log.effects("g1") == ()
    log.tell(AbortJoinCluster(id="g3"))
    assert log.effects("g3") == (BackOff(),)


def test_a_group_that_is_declared_dead_starts_again():
    log = ReplicaLog().join("g1", "g2")
    log.tell(GroupLeaveCluster(id="g2"))
    assert of_kind(log.effects("g2"), RestartGroup) == [RestartGroup()]
    assert of_kind(log.effects("g1"), RestartGroup) == []


def test_a_check_of_a_job_is_for_every_member_that_reads_it():
    log = ReplicaLog().join("g1", "g2")
    log.tell(CheckJob(id="c", digest="d"))
    assert log.effects("g1") == log.effects("g2") == (AnswerCheck("c", "d"),)
    assert log.effects("stranger") == ()


def test_entries_that_move_nobody_ask_nothing():
    log = ReplicaLog().join("g", peers=3).submit().ready()
    for command in [
        RegisterPartitions(job="j", task="read", count=1, digest="d"),
        KillJob(job="other"),
        Gc(id="client"),
        VouchJob(id="c", group="g"),
    ]:
        log.tell(command)
        assert log.effects("g") == ()
