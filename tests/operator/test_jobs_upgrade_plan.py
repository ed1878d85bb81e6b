"""An edited job with upgradePolicy KeepState upgrades the old one, whatever happens
meanwhile: no state is lost, none is taken twice, and no two jobs run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.operator.job_world import JOB, UID, World

from onyx.ids import JobId
from onyx.model.declaration import Declaration, FailurePolicy
from onyx_operator.jobs.plan import Action, ControlJob, JobPlan, Remember, Submit, plan
from onyx_operator.jobs.record import SubmissionRecord, job_id
from onyx_operator.jobs.spec import Spec
from onyx_operator.logs.state import LogJob, Stage

A, B, C = "digest-a", "digest-b", "digest-c"
RESUME = Declaration(upgrade_policy="KeepState")
PEERS = (("read", 1), ("write", 1))


def world(**declared: Any) -> World:
    """Job A runs."""
    spec = Spec("default", "job", UID, 1, replace(RESUME, **declared), JOB, A)
    found = World(spec, SubmissionRecord(), {})
    found.settle()
    assert found.record.digest == A
    return found


def declare(of: World, **declared: Any) -> None:
    of.spec = replace(of.spec, declaration=replace(of.spec.declaration, **declared))


def edit(of: World, digest: str, **declared: Any) -> None:
    of.spec = replace(of.spec, digest=digest)
    declare(of, **declared)


def now(of: World) -> JobPlan:
    return plan(of.seen())


def job(of: World) -> JobId:
    assert of.record.job_id is not None
    return of.record.job_id


def reported(actions: list[Action]) -> list[str]:
    return [each.command.NAME for each in actions if isinstance(each, ControlJob)]


def change(of: World, **changed: Any) -> None:
    """What peers do to the job of the object."""
    of.jobs[job(of)] = replace(of.jobs[job(of)], **changed)


def fail(of: World) -> None:
    of.jobs[job(of)] = LogJob("killed", failure="task read: boom")


def test_an_edit_ends_the_former_job_by_the_submission_of_the_new_one() -> None:
    of = world()
    first = job(of)
    edit(of, B)
    remembered, submitted = now(of).actions
    assert isinstance(remembered, Remember)
    assert remembered.record.upgraded_from == SubmissionRecord(first, A)
    assert submitted == Submit(job_id(UID, B, 0, 1), first)
    assert reported(of.settle()) == []
    assert of.jobs[first].stage == "killed"
    assert of.jobs[job(of)].stage == "live"


@pytest.mark.parametrize("done", [0, 1, 2])
def test_an_operator_that_is_killed_anywhere_still_knows_in_whose_place_the_job_comes(
    done: int,
) -> None:
    of = world()
    first = job(of)
    edit(of, B)
    of.carry_out(now(of).actions[:done])
    of.settle()
    assert of.resumed == {job_id(UID, B, 0, 1): first}
    assert job(of) == job_id(UID, B, 0, 1)


@pytest.mark.parametrize("done", [0, 1, 2])
@pytest.mark.parametrize("last", [A, C])
def test_a_second_edit_comes_in_the_place_of_what_ran_last(done: int, last: str) -> None:
    of = world()
    first = job(of)
    edit(of, B)
    of.carry_out(now(of).actions[:done])
    edit(of, last)
    of.settle()
    if last == A and done < 2:
        assert job(of) == first, "it has never given way"
        assert of.jobs[first].stage == "live"
        return
    assert of.record.digest == last
    assert of.holder(job(of)) == first, "the second one had no state yet"
    of.begun.add(job(of))
    assert [each.stage for each in of.jobs.values() if each.stage == "live"] == ["live"]


def test_what_was_only_meant_can_never_run_beside_what_came_after_it() -> None:
    of = world()
    edit(of, B)
    meant, late = now(of).actions
    of.do(meant)
    edit(of, A)
    assert reported(of.settle()) == ["kill-job"]
    assert isinstance(late, Submit)
    assert of.jobs[late.job].stage == "fenced"
    edit(of, B)
    of.settle()
    assert of.record.digest == B
    assert of.jobs[job(of)].stage == "live"


def test_an_edit_that_is_taken_back_is_a_job_again_and_goes_on_from_the_last_one() -> None:
    of = world()
    first = job(of)
    edit(of, B)
    of.settle()
    second = job(of)
    of.begun.add(second)
    edit(of, A)
    of.settle()
    assert of.record.digest == A
    assert of.resumed == {second: first, job(of): second}
    assert of.jobs[job(of)].stage == "live"


def test_a_job_that_is_taking_over_is_waited_for() -> None:
    of = world()
    edit(of, B)
    of.settle()
    second = job(of)
    change(of, tasks=PEERS, starting=True)
    edit(of, C)
    waiting = now(of)
    assert (waiting.actions, waiting.again_in_s) == ((), 1.0)
    assert (waiting.phase, waiting.reason) == ("Running", "SpecChanged")
    of.begun.add(second)
    of.settle()
    assert of.resumed[job(of)] == second


def test_a_job_that_is_to_come_to_rest_is_paused_and_waited_for() -> None:
    of = world()
    first = job(of)
    edit(of, B)
    of.busy = True
    assert reported(of.settle()) == ["pause-job"]
    change(of, tasks=PEERS)
    waiting = now(of)
    assert (waiting.phase, waiting.reason, waiting.actions) == ("Running", "SpecChanged", ())
    assert waiting.message == "its inputs are paused"
    assert waiting.keeps_pause
    of.busy = False
    assert now(of).keeps_pause, "also while the new job is submitted"
    of.settle()
    assert of.resumed == {job(of): first}


@pytest.mark.parametrize("why", ["taken back", "refused", "invalid"])
def test_a_job_that_was_paused_goes_on_when_nothing_comes_of_it(why: str) -> None:
    of = world()
    first = job(of)
    edit(of, B)
    of.busy = True
    of.settle()
    if why == "taken back":
        edit(of, A)
    elif why == "refused":
        of.refusal = "tasks.a: needs an answer"
    else:
        of.spec = replace(of.spec, job=None, problem="spec.workflow: is missing")
    assert reported(of.settle()) == ["resume-job"]
    assert of.jobs[first] == LogJob("live")


def test_a_job_that_has_no_peers_to_take_over_with_is_passed_over() -> None:
    of = world()
    first = job(of)
    edit(of, B)
    of.settle()
    second = job(of)
    edit(of, C)
    assert reported(of.settle()) == ["kill-job"]
    assert of.jobs[second].stage == "killed"
    assert of.resumed[job(of)] == first


@pytest.mark.parametrize("failure", ["task read: boom", ""], ids=["failed", "killed"])
def test_a_job_that_was_killed_is_mended_by_an_edit(failure: str) -> None:
    of = world()
    first = job(of)
    of.jobs[first] = LogJob("killed", failure=failure)
    of.settle()
    edit(of, B)
    of.settle()
    assert of.resumed == {job(of): first}


def test_a_suspended_job_gives_way_when_it_shall_run_again() -> None:
    of = world()
    first = job(of)
    declare(of, desired_state="Suspended")
    of.settle()
    edit(of, B)
    assert of.settle() == []
    declare(of, desired_state="Running")
    assert reported(of.settle()) == []
    assert of.resumed == {job(of): first}
    assert of.jobs[job(of)] == LogJob("live")


@pytest.mark.parametrize("done", [0, 1])
def test_a_state_that_is_declared_in_the_same_edit_is_that_of_the_former_job(done: int) -> None:
    of = world()
    first = job(of)
    edit(of, B)
    of.carry_out(now(of).actions[:done])
    declare(of, desired_state="Suspended")
    of.settle()
    assert of.jobs[first].suspended
    declare(of, desired_state="Stopped")
    assert reported(of.settle()) == ["drain-job", "resume-job"]
    assert of.jobs[first].stage == "completed"
    assert not of.resumed


@pytest.mark.parametrize("done", [0, 1])
def test_the_policy_of_the_edit_counts(done: int) -> None:
    of = world()
    first = job(of)
    edit(of, B)
    of.carry_out(now(of).actions[:done])
    declare(of, upgrade_policy="Drain")
    of.settle()
    assert of.jobs[first].stage == "completed"
    assert not of.resumed
    edit(of, C, upgrade_policy="KeepState")
    of.settle()
    assert len(of.resumed) == 1


def test_another_restart_nonce_begins_anew() -> None:
    of = world()
    edit(of, B, restart_nonce=1)
    assert reported(of.settle()) == ["drain-job"]
    assert not of.resumed


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_job_that_has_completed_has_nothing_to_carry_on(forgotten: bool) -> None:
    of = world()
    of.jobs[job(of)] = LogJob("completed")
    of.settle()
    of.record = replace(of.record, phase="Completed", finished_at="2001-09-09T01:46:40Z")
    if forgotten:
        of.jobs.clear()
    edit(of, B)
    of.settle()
    assert of.record.digest == B
    assert of.record.upgraded_from is None
    assert not of.resumed
    assert of.jobs[job(of)].stage == "live"


def test_a_job_that_drains_already_does_so_to_its_end() -> None:
    of = world()
    first = job(of)
    change(of, draining=True)
    edit(of, B)
    assert of.settle() == []
    of.time_passes()
    of.settle()
    assert of.jobs[first].stage == "completed"
    assert not of.resumed


def test_a_job_that_ends_by_itself_before_the_new_one_is_submitted_leaves_nothing() -> None:
    of = world()
    edit(of, B)
    of.carry_out(now(of).actions[:1])
    assert of.record.upgraded_from is not None
    assert of.record.upgraded_from.job_id is not None
    of.jobs[of.record.upgraded_from.job_id] = LogJob("completed")
    of.settle()
    assert not of.resumed
    assert of.record.upgraded_from is None
    assert of.jobs[job(of)].stage == "live"


def test_a_refused_upgrade_changes_nothing_until_the_spec_is_another_one() -> None:
    of = world()
    first = job(of)
    of.refusal = "spec.upgrade.windows.a: needs an answer\nspec.upgrade.tasks.b: too"
    edit(of, B)
    found = now(of)
    assert (found.actions, found.phase, found.reason) == ((), "Waiting", "UpgradeRefused")
    assert found.again_in_s is None
    assert found.refusal == of.refusal
    assert "the job of the previous spec goes on" in found.message
    assert "windows.a: needs an answer; condition Validated lists more" in found.message
    edit(of, A)
    assert of.settle() == []
    assert job(of) == first
    edit(of, B)
    of.refusal = ""
    of.settle()
    assert of.resumed == {job(of): first}


@pytest.mark.parametrize(("failure", "phase"), [("task read: boom", "Failed"), ("", "Killed")])
def test_a_job_that_ends_while_the_new_one_is_refused_is_told_as_such(
    failure: str, phase: str
) -> None:
    of = world()
    of.refusal = "needs an answer"
    of.jobs[job(of)] = LogJob("killed", failure=failure)
    edit(of, B)
    found = now(of)
    assert (found.actions, found.phase, found.reason) == ((), phase, "UpgradeRefused")
    assert failure in found.message


def test_state_that_has_been_collected_is_not_forgotten_silently() -> None:
    of = world()
    of.record = replace(of.record, phase="Failed", finished_at="2001-09-09T01:46:40Z")
    of.jobs.clear()
    edit(of, B)
    assert now(of).reason == "UpgradeRefused"
    declare(of, restart_nonce=1)
    of.settle()
    assert of.jobs[job(of)].stage == "live"


@pytest.mark.parametrize("stage", ["completed", "killed"])
def test_a_status_stays_as_it_was_when_its_job_has_been_collected(stage: Stage) -> None:
    of = world(failure_policy=FailurePolicy(1, 0))
    of.record = replace(of.record, phase="Failed", finished_at="2001-09-09T01:46:40Z")
    of.jobs[job(of)] = LogJob(stage, collected=True)
    found = now(of)
    assert (found.actions, found.phase, found.reason) == ((), "Failed", "Finished")


@pytest.mark.parametrize(("stage", "phase"), [("completed", "Completed"), ("killed", "Killed")])
def test_a_job_that_was_collected_before_anybody_saw_its_end_does_not_run_again(
    stage: Stage, phase: str
) -> None:
    of = world(failure_policy=FailurePolicy(1, 0))
    of.jobs[job(of)] = LogJob(stage, collected=True)
    found = now(of)
    assert (found.actions, found.phase) == ((), phase)


def test_a_retry_goes_on_from_the_attempt_before_and_the_count_of_them_begins_anew() -> None:
    of = world(failure_policy=FailurePolicy(1, 0))
    first = job(of)
    fail(of)
    of.settle()
    second = job(of)
    assert of.resumed == {second: first}
    of.begun.add(second)
    fail(of)
    of.settle()
    assert job(of) == second, "no retries are left"
    edit(of, B)
    of.settle()
    third = job(of)
    of.begun.add(third)
    fail(of)
    of.settle()
    assert of.resumed == {second: first, third: second, job(of): third}
    assert (of.record.digest, of.record.retried) == (B, 1)


def test_a_wiped_status_is_found_again_after_upgrades() -> None:
    of = world()
    for digest in (B, A, B):
        edit(of, digest)
        of.settle()
        of.begun.add(job(of))
    last, jobs = job(of), dict(of.jobs)
    of.record = SubmissionRecord()
    of.settle()
    assert job(of) == last
    assert of.jobs == jobs


@pytest.mark.parametrize("done", [0, 1])
def test_a_deleted_object_takes_both_jobs_with_it(done: int) -> None:
    of = world()
    edit(of, B)
    of.carry_out(now(of).actions[:done])
    of.spec = replace(of.spec, deleted_at="2001-09-09T01:46:40Z")
    of.settle()
    assert not [each for each in of.jobs.values() if each.stage == "live"]


def test_a_wrong_edit_after_one_that_was_only_meant_leaves_the_former_job_running() -> None:
    of = world()
    edit(of, B)
    of.carry_out(now(of).actions[:1])
    of.spec = replace(of.spec, job=None, problem="is wrong", problem_reason="InvalidSpec")
    assert "the job of the previous spec goes on" in now(of).message


events = st.one_of(
    st.tuples(st.just("edit"), st.sampled_from((A, B, C))),
    st.tuples(st.just("act"), st.integers(1, 3)),
    st.tuples(st.just("begin"), st.none()),
    st.tuples(st.just("fail"), st.none()),
    st.tuples(st.just("peers"), st.booleans()),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("desire"), st.sampled_from(("Running", "Suspended"))),
)


class History:
    """What may happen to an object; the state is where it was written last."""

    def __init__(self) -> None:
        self.of = world(failure_policy=FailurePolicy(2, 0))
        self.state = job(self.of)

    def happen(self, event: str, value: Any) -> None:
        of = self.of
        live = next((each for each, known in of.jobs.items() if known.stage == "live"), None)
        match event:
            case "edit":
                edit(of, value)
            case "act":
                of.carry_out(now(of).actions[:value])
            case "desire":
                declare(of, desired_state=value)
            case "refuse":
                of.refusal = "needs an answer" if value else ""
            case "begin" if live is not None:
                of.begun.add(live)
                self.state = live
            case "fail" if live is not None:
                of.jobs[live] = LogJob("killed", failure="task read: boom")
            case "peers" if live is not None and not of.jobs[live].suspended:
                of.jobs[live] = replace(of.jobs[live], tasks=PEERS if value else ())
        self.check()

    def check(self) -> None:
        live = [each for each, known in self.of.jobs.items() if known.stage == "live"]
        assert len(live) <= 1
        for each in live:
            assert self.of.holder(each) == self.state, "it goes on from what is not the last state"


@given(st.lists(events, max_size=30))
def test_in_every_history_the_last_state_is_carried_on(happened: list[tuple[str, Any]]) -> None:
    history = History()
    for event, value in happened:
        history.happen(event, value)
    of = history.of
    of.refusal = ""
    declare(of, desired_state="Running")
    history.happen("begin", None)
    of.settle()
    history.check()
    assert of.record.digest == of.spec.digest
    known = of.jobs[job(of)]
    assert known.stage == "live" or known.failure, "every job runs or has failed by itself"
