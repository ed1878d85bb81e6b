"""Suspending, resuming and draining a job: what the replica makes of it."""

import pytest
from immutables import Map
from tests.support.replica_log import ReplicaLog

from onyx.replica import canonical, machine


def partitions(log, *, count=2):
    return log.tell("register-partitions", job="j", task="read", count=count, digest="d")


def running():
    """A job on three of three peers, half of its input exhausted."""
    log = ReplicaLog().join("g", peers=3).submit().ready()
    partitions(log)
    log.tell("exhaust-input", job="j", task="read", partitions=[0])
    return log


def said(log):
    return machine.diff(log.entry, log.old, log.new)


def test_a_suspended_job_keeps_what_it_has_done_and_gives_its_peers_away():
    log = running()
    log.submit("other")
    assert "other" not in log.new.allocations
    before = log.new
    log.tell("suspend-job", job="j")
    assert log.new.jobs == ("j", "other")
    assert set(log.new.allocations) == {"other"}
    assert log.new.partitions == before.partitions
    assert log.new.exhausted_partitions == before.exhausted_partitions
    assert set(log.new.peer_state.values()) == {"idle"}
    assert log.new.ready == Map()


def test_a_job_that_is_resumed_has_its_place_again():
    log = ReplicaLog("greedy").join("g", peers=3).submit("first").submit("second")
    log.tell("suspend-job", job="first")
    assert set(log.new.allocations) == {"second"}
    log.tell("resume-job", job="first")
    assert set(log.new.allocations) == {"first"}


def test_a_job_that_is_suspended_while_it_is_sealed_is_sealed_later():
    log = running()
    log.tell("exhaust-input", job="j", task="read")
    assert set(log.new.sealers["j"]) == {"write"}
    log.tell("suspend-job", job="j")
    assert log.new.sealers == Map()
    log.tell("add-virtual-peer", id="more", group_id="g")
    log.tell("resume-job", job="j")
    assert set(log.new.sealers["j"]) == {"write"}
    log.tell("seal-output", job="j", task="write")
    assert log.new.completed_jobs == ("j",)


def test_a_draining_job_goes_on_with_its_peers_until_its_input_is_exhausted():
    log = running()
    before = log.new
    log.tell("drain-job", job="j")
    assert log.new.allocations == before.allocations
    assert log.effects("g") == ()
    log.tell("exhaust-input", job="j", task="read", partitions=[1])
    log.tell("seal-output", job="j", task="write")
    assert (log.new.completed_jobs, log.new.draining_jobs) == (("j",), Map())


def test_draining_a_suspended_job_does_not_resume_it():
    log = running()
    log.tell("suspend-job", job="j")
    log.tell("drain-job", job="j")
    assert log.new.allocations == Map()
    assert set(log.new.suspended_jobs) == set(log.new.draining_jobs) == {"j"}
    log.tell("resume-job", job="j")
    assert set(log.new.allocations) == set(log.new.draining_jobs) == {"j"}


def test_a_job_that_has_never_had_peers_is_drained_at_once():
    log = ReplicaLog().join("g", peers=2).submit()
    log.tell("drain-job", job="j")
    assert said(log) == {"job": "j", "job-completed?": True}
    assert log.new.completed_jobs == ("j",)


def test_a_job_that_has_read_and_waits_for_peers_drains_when_it_has_some():
    log = running()
    log.tell("leave-cluster", id="g-0")
    log.tell("drain-job", job="j")
    assert log.new.jobs == ("j",)
    log.tell("add-virtual-peer", id="more", group_id="g")
    assert "j" in log.new.allocations


@pytest.mark.parametrize("verb", ["suspend-job", "resume-job", "drain-job"])
def test_repeats_change_nothing_and_ask_for_nothing(verb):
    log = running()
    if verb == "resume-job":
        log.tell("suspend-job", job="j")
    log.tell(verb, job="j")
    assert said(log) is not None
    before = canonical.to_plain(log.new)
    assert canonical.to_plain(log.tell(verb, job="j")) == before | {"version": log.new.version}
    assert (said(log), log.effects("g")) == (None, ())


@pytest.mark.parametrize("verb", ["suspend-job", "resume-job", "drain-job"])
@pytest.mark.parametrize("end", ["complete-job", "kill-job", "never-submitted"])
def test_they_change_nothing_about_jobs_that_do_not_run(verb, end):
    log = ReplicaLog().join("g", peers=3)
    if end != "never-submitted":
        log.submit().tell(end, job="j", job_id="j")
    before = canonical.to_plain(log.new)
    assert canonical.to_plain(log.tell(verb, job="j")) == before | {"version": log.new.version}
    assert said(log) is None


@pytest.mark.parametrize("end", ["complete-job", "kill-job"])
def test_the_end_of_a_suspended_job_leaves_nothing_behind(end):
    log = running()
    log.tell("suspend-job", job="j")
    log.tell("drain-job", job="j")
    log.tell(end, job="j", job_id="j")
    assert (log.new.suspended_jobs, log.new.draining_jobs) == (Map(), Map())


def test_a_job_in_the_place_of_another_begins_in_the_moment_in_which_that_is_killed():
    log = running()
    log.submit("next", resumes="j")
    assert (log.new.jobs, log.new.killed_jobs) == (("next",), ("j",))
    assert log.new.resumed_jobs == Map({"next": "j"})
    assert set(log.new.allocations) == {"next"}
    assert log.new.partitions["j"]["read"].count == 2


def test_a_job_that_goes_on_where_a_killed_one_stopped_finds_its_partitions():
    log = running()
    before = log.new.partitions
    log.tell("kill-job", job="j")
    log.submit("next", resumes="j")
    assert log.new.partitions == before
    assert set(log.new.allocations) == {"next"}


def test_a_job_that_completes_leaves_no_partitions():
    log = running()
    log.tell("exhaust-input", job="j", task="read", partitions=[1])
    log.tell("seal-output", job="j", task="write")
    assert log.new.completed_jobs == ("j",)
    assert log.new.partitions == Map()


def test_a_job_whose_beginning_is_forgotten_before_it_has_taken_over_is_killed():
    log = running()
    log.submit("next", resumes="j").submit("other")
    log.tell("gc", id="c", jobs=["j"])
    assert (log.new.jobs, log.new.killed_jobs) == (("other",), ("next",))
    log.tell("gc", id="c", jobs=["next"])
    assert log.new.resumed_jobs == Map()


def test_a_job_that_has_taken_over_needs_the_other_no_more():
    log = running()
    log.submit("next", resumes="j")
    log.tell("gc", id="c", jobs=["j"], taken_over=["next"])
    assert (log.new.jobs, log.new.killed_jobs) == (("next",), ())
    assert "j" not in log.new.partitions
