"""Suspending, pausing, resuming and draining a job: what the replica makes of it."""

import pytest
from immutables import Map
from tests.support.log.replica_log import ReplicaLog
from tests.support.log.runs import by_job

from onyx.ids import NO_POSITION
from onyx.replica import canonical
from onyx.replica.commands import (
    AddVirtualPeer,
    DrainJob,
    ExhaustInput,
    Gc,
    KillJob,
    LeaveCluster,
    PauseJob,
    RegisterPartitions,
    ResumeJob,
    SealOutput,
    SignalFailing,
    SignalRest,
    SuspendJob,
)
from onyx.replica.jobs import restless


def partitions(log, *, count=2):
    return log.tell(RegisterPartitions(job="j", task="read", count=count, digest="d"))


def running():
    """A job on three of three peers, half of its input exhausted."""
    log = ReplicaLog().join("g", peers=3).submit().ready()
    partitions(log)
    log.tell(ExhaustInput(job="j", task="read", partitions=(0,)))
    return log


def ended(log, end):
    if end == "killed":
        log.tell(KillJob(job="j"))
    else:
        log.complete("j")


def test_a_suspended_job_keeps_what_it_has_done_and_gives_its_peers_away():
    log = running()
    log.submit("other")
    assert not log.new.run("other").allocation
    before = log.new
    log.tell(SuspendJob(job="j"))
    assert log.new.jobs == ("j", "other")
    assert set(by_job(log.new, "allocation")) == {"other"}
    assert log.new.partitions("j") == before.partitions("j")
    assert log.new.run("j").exhausted_partitions == before.run("j").exhausted_partitions
    assert set(log.new.peer_state.values()) == {"idle"}
    assert log.new.run("j").ready == Map()


@pytest.mark.parametrize("end", ["killed", "suspended"])
def test_the_version_in_which_a_job_was_ready_last_is_known_until_it_is_collected(end):
    log = ReplicaLog().join("g", peers=3).submit()
    assert log.new.ready_version("j") == NO_POSITION
    log.ready()
    version = log.new.run("j").allocation_version
    log.tell(LeaveCluster(id="g-0"))
    assert log.new.run("j").allocation_version > version
    log.tell(KillJob(job="j") if end == "killed" else SuspendJob(job="j"))
    assert log.new.ready_version("j") == version
    assert log.new.ready_version("other") == NO_POSITION


def test_the_last_parts_of_an_output_are_known_until_its_job_is_collected():
    log = running()
    log.tell(ExhaustInput(job="j", task="read", partitions=(1,)))
    log.tell(SealOutput(job="j", task="write", parts=("part-a", "part-b")))
    assert log.new.completed_jobs == ("j",)
    assert log.new.records["j"].parts == Map({"write": ("part-a", "part-b")})
    assert canonical.from_plain(canonical.to_plain(log.new)) == log.new


def test_a_job_that_is_resumed_has_its_place_again():
    log = ReplicaLog("greedy").join("g", peers=3).submit("first").submit("second")
    log.tell(SuspendJob(job="first"))
    assert set(by_job(log.new, "allocation")) == {"second"}
    log.tell(ResumeJob(job="first"))
    assert set(by_job(log.new, "allocation")) == {"first"}


def test_a_job_that_is_suspended_while_it_is_sealed_is_sealed_later():
    log = running()
    log.tell(ExhaustInput(job="j", task="read"))
    assert set(log.new.run("j").sealers) == {"write"}
    log.tell(SuspendJob(job="j"))
    assert not log.new.run("j").sealers
    log.tell(AddVirtualPeer(id="more", group_id="g"))
    log.tell(ResumeJob(job="j"))
    assert set(log.new.run("j").sealers) == {"write"}
    log.tell(SealOutput(job="j", task="write"))
    assert log.new.completed_jobs == ("j",)


def test_a_draining_job_goes_on_with_its_peers_until_its_input_is_exhausted():
    log = running()
    before = log.new
    log.tell(DrainJob(job="j"))
    assert log.new.run("j").allocation == before.run("j").allocation
    assert log.effects("g") == ()
    log.tell(ExhaustInput(job="j", task="read", partitions=(1,)))
    log.tell(SealOutput(job="j", task="write"))
    assert (log.new.completed_jobs, log.new.records["j"].run) == (("j",), None)


def test_draining_a_suspended_job_does_not_resume_it():
    log = running()
    log.tell(SuspendJob(job="j"))
    log.tell(DrainJob(job="j"))
    assert not log.new.run("j").allocation
    assert set(by_job(log.new, "suspended")) == set(by_job(log.new, "draining")) == {"j"}
    log.tell(ResumeJob(job="j"))
    assert set(by_job(log.new, "allocation")) == set(by_job(log.new, "draining")) == {"j"}


def test_a_job_that_has_never_had_peers_is_drained_at_once():
    log = ReplicaLog().join("g", peers=2).submit()
    log.tell(DrainJob(job="j"))
    assert log.new.completed_jobs == ("j",)


def test_a_job_that_goes_on_for_another_one_drains_when_it_has_peers():
    """What that one had read, and what its clients were told is in its journals, is processed."""
    log = running()
    log.tell(LeaveCluster(id="g-0"))
    log.submit("new", upgrades="j")
    log.tell(DrainJob(job="new"))
    assert log.new.jobs == ("new",)
    log.tell(AddVirtualPeer(id="more", group_id="g"))
    assert log.new.run("new").allocation


def test_a_job_that_has_read_and_waits_for_peers_drains_when_it_has_some():
    log = running()
    log.tell(LeaveCluster(id="g-0"))
    log.tell(DrainJob(job="j"))
    assert log.new.jobs == ("j",)
    log.tell(AddVirtualPeer(id="more", group_id="g"))
    assert log.new.run("j").allocation


@pytest.mark.parametrize("verb", [SuspendJob, PauseJob, ResumeJob, DrainJob])
def test_repeats_change_nothing_and_ask_for_nothing(verb):
    log = running()
    if verb is ResumeJob:
        log.tell(SuspendJob(job="j"))
    log.tell(verb(job="j"))
    assert log.new.jobs == ("j",)
    before = canonical.to_plain(log.new)
    assert canonical.to_plain(log.tell(verb(job="j"))) == before | {"version": log.new.version}
    assert log.effects("g") == ()


@pytest.mark.parametrize("verb", [SuspendJob, PauseJob, ResumeJob, DrainJob])
@pytest.mark.parametrize("end", ["completed", "killed", "never-submitted"])
def test_they_change_nothing_about_jobs_that_do_not_run(verb, end):
    log = ReplicaLog().join("g", peers=3)
    if end != "never-submitted":
        ended(log.submit(), end)
    before = canonical.to_plain(log.new)
    assert canonical.to_plain(log.tell(verb(job="j"))) == before | {"version": log.new.version}


@pytest.mark.parametrize("end", ["completed", "killed"])
def test_the_end_of_a_suspended_job_leaves_nothing_behind(end):
    log = running()
    log.tell(SuspendJob(job="j"))
    log.tell(DrainJob(job="j"))
    ended(log, end)
    assert log.new.records["j"].run is None


def test_a_job_in_the_place_of_another_begins_in_the_moment_in_which_that_is_killed():
    log = running()
    log.submit("next", upgrades="j")
    assert (log.new.jobs, log.new.killed_jobs) == (("next",), ("j",))
    assert log.new.upgrades("next") == "j"
    assert set(by_job(log.new, "allocation")) == {"next"}
    assert log.new.partitions("j")["read"].count == 2


def test_a_job_that_goes_on_where_a_killed_one_stopped_finds_its_partitions():
    log = running()
    before = log.new.partitions("j")
    log.tell(KillJob(job="j"))
    log.submit("next", upgrades="j")
    assert log.new.partitions("j") == before
    assert set(by_job(log.new, "allocation")) == {"next"}


def test_a_job_that_completes_leaves_no_partitions():
    log = running()
    log.tell(ExhaustInput(job="j", task="read", partitions=(1,)))
    log.tell(SealOutput(job="j", task="write"))
    assert log.new.completed_jobs == ("j",)
    assert not log.new.partitions("j")


def test_a_job_stays_until_the_one_that_upgrades_it_has_taken_over_or_ended():
    log = running()
    log.submit("next", upgrades="j").submit("other")
    log.tell(Gc(id="c", jobs=("j",)))
    assert (log.new.jobs, log.new.killed_jobs) == (("next", "other"), ("j",))
    log.tell(KillJob(job="next"))
    log.tell(Gc(id="c", jobs=("j", "next")))
    assert set(log.new.records) == {"other"}


def test_a_job_that_has_taken_over_needs_the_other_no_more():
    log = running()
    log.submit("next", upgrades="j")
    log.tell(Gc(id="c", jobs=("j",), carried_over=("next",)))
    assert (log.new.jobs, log.new.killed_jobs) == (("next",), ())
    assert "j" not in log.new.records


def rests(log, *, version=None, pause=None):
    """The peers of the only source say that they are at rest."""
    run = log.new.run("j")
    peers = run.allocation["read"]
    version = run.allocation_version if version is None else version
    log.tell(SignalRest("j", "read", version, run.paused if pause is None else pause, peers))
    return restless(log.new, "j") == ()


def test_a_paused_job_keeps_its_peers_and_rests_when_all_of_its_sources_say_so():
    log = running()
    before = log.new.run("j")
    assert not rests(log)
    log.tell(PauseJob(job="j"))
    assert log.new.run("j").allocation_version == before.allocation_version
    assert log.effects("g") == ()
    assert restless(log.new, "j") == ("read",)
    assert rests(log)


@pytest.mark.parametrize("late", [{"version": 0}, {"pause": 1}])
def test_who_rested_in_another_pause_or_version_does_not_count(late):
    log = running()
    log.tell(PauseJob(job="j"))
    assert not rests(log, **late)


def test_a_job_that_is_allocated_anew_comes_to_rest_anew():
    log = running()
    log.tell(PauseJob(job="j"))
    assert rests(log)
    log.tell(LeaveCluster(id=log.new.run("j").allocation["read"][0]))
    log.tell(AddVirtualPeer(id="more", group_id="g"))
    assert log.new.run("j").is_paused
    assert restless(log.new, "j") == ("read",)
    assert rests(log)


@pytest.mark.parametrize("suspended", [False, True])
def test_a_paused_job_goes_on_when_it_is_resumed(suspended):
    log = running()
    log.tell(PauseJob(job="j"))
    rests(log)
    if suspended:
        log.tell(SuspendJob(job="j"))
    log.tell(ResumeJob(job="j"))
    run = log.new.run("j")
    assert run.allocation
    assert (run.is_paused, run.suspended, run.rested) == (False, False, Map())


def test_the_log_knows_which_peers_of_a_task_have_had_nothing_but_failures():
    log = running()
    (peer,) = log.new.run("j").allocation["read"]
    told = {"job": "j", "task": "read", "peer": peer}
    for other in ({"peer": "ghost"}, {"task": "nowhere"}, {"job": "other"}, {"over": True}):
        log.tell(SignalFailing(**told | other))
        assert not log.new.run("j").failing
    log.tell(SignalFailing(**told))
    assert set(log.new.run("j").failing["read"]) == {peer}
    log.tell(SignalFailing(**told, over=True))
    assert not log.new.run("j").failing["read"]
