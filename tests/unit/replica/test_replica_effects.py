from tests.support.replica_log import ReplicaLog

from onyx.replica.effects import (
    BackOff,
    CheckJob,
    JobReady,
    ProbePulse,
    RestartGroup,
    RewireTask,
    SealOutput,
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
    before = dict(log.new.task_slot_ids["j"])
    log.join("g2").tell("add-virtual-peer", id="more", group_id="g2")
    rewired = log.effects("g1")
    assert [type(each) for each in rewired] == [RewireTask] * 3
    assert all(before[each.task][each.peer] == each.slot for each in rewired)
    assert [type(each) for each in log.effects("g2")] == [StartTask]


def test_stops_come_before_starts_and_say_why():
    log = ReplicaLog().join("g", peers=3).submit("j1").submit("j2")
    log.tell("kill-job", job="j1")
    kinds = [type(each) for each in log.effects("g")]
    assert kinds == [StopTask] * 3 + [StartTask] * 3
    assert {each.reason for each in of_kind(log.effects("g"), StopTask)} == {"job-killed"}
    log.tell("complete-job", job_id="j2")
    assert {each.reason for each in of_kind(log.effects("g"), StopTask)} == {"job-completed"}


def test_peers_of_a_suspended_job_stop_and_say_why():
    log = ReplicaLog().join("g", peers=3).submit()
    log.tell("suspend-job", job="j")
    assert [type(each) for each in log.effects("g")] == [StopTask] * 3
    assert {each.reason for each in log.effects("g")} == {"job-suspended"}
    log.tell("resume-job", job="j")
    assert [type(each) for each in log.effects("g")] == [StartTask] * 3


def test_a_peer_that_left_stops():
    log = ReplicaLog().join("g", peers=3).submit()
    log.tell("leave-cluster", id="g-1")
    stopped = {each.peer: each.reason for each in of_kind(log.effects("g"), StopTask)}
    assert stopped.pop("g-1") == "peer-left"
    assert set(stopped.values()) == {"peer-reallocated"}


def test_a_job_is_ready_once_with_its_last_peer():
    log = ReplicaLog().join("g1", peers=2).join("g2", peers=1).submit()
    version = log.new.allocation_version["j"]
    said = []
    for peer in ("g1-0", "g1-1", "g2-0", "g2-0"):
        log.tell("signal-ready", id=peer, version=version)
        said.append((log.effects("g1"), log.effects("g2")))
    ready = (JobReady("j", version),)
    assert said == [((), ()), ((), ()), (ready, ready), ((), ())]


def test_the_sealer_is_told_once_and_again_after_a_rewiring():
    log = ReplicaLog().join("g", peers=3).submit().ready()
    log.tell("exhaust-input", job="j", task="read")
    (told,) = log.effects("g")
    assert isinstance(told, SealOutput)
    assert told.task == "write"
    log.tell("exhaust-input", job="j", task="read")
    assert log.effects("g") == ()
    log.tell("add-virtual-peer", id="more", group_id="g")
    assert of_kind(log.effects("g"), SealOutput) == []
    log.ready()
    assert of_kind(log.effects("g"), SealOutput) == [
        SealOutput(log.new.sealers["j"]["write"], "j", "write")
    ]


def test_an_aborted_joiner_backs_off_and_looks_whether_anybody_lives():
    log = ReplicaLog().join("g1")
    log.tell("prepare-join-cluster", joiner="g2")
    log.tell("prepare-join-cluster", joiner="g3")
    assert log.effects("g3") == (ProbePulse("g1"),)
    assert log.effects("g1") == ()
    log.tell("abort-join-cluster", id="g3")
    assert log.effects("g3") == (BackOff(),)


def test_a_group_that_is_declared_dead_starts_again():
    log = ReplicaLog().join("g1", "g2")
    log.tell("group-leave-cluster", id="g2")
    assert of_kind(log.effects("g2"), RestartGroup) == [RestartGroup()]
    assert of_kind(log.effects("g1"), RestartGroup) == []


def test_a_check_of_a_job_is_for_every_member_that_reads_it():
    log = ReplicaLog().join("g1", "g2")
    log.tell("check-job", id="c", digest="d")
    assert log.effects("g1") == log.effects("g2") == (CheckJob("c", "d"),)
    assert log.effects("stranger") == ()


def test_entries_that_move_nobody_ask_nothing():
    log = ReplicaLog().join("g", peers=3).submit().ready()
    for fn, args in [
        ("register-partitions", {"job": "j", "task": "read", "count": 1, "digest": "d"}),
        ("kill-job", {"job": "other"}),
        ("gc", {"id": "client"}),
        ("vouch-job", {"id": "c", "group": "g"}),
    ]:
        log.tell(fn, **args)
        assert log.effects("g") == ()
