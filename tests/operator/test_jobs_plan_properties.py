"""Whatever there is, carrying out plans leads to a state in which nothing is left to do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.operator.job_world import JOB, UID, World

from onyx.ids import JobId
from onyx.model.declaration import Declaration, FailurePolicy
from onyx.replica.commands import DrainJob, KillJob
from onyx_operator.jobs.observed import ids_of_interest
from onyx_operator.jobs.plan import ControlJob, Remember, Submit, plan
from onyx_operator.jobs.record import SubmissionRecord, job_id
from onyx_operator.jobs.spec import Spec
from onyx_operator.logs.state import LogJob, Trouble

DIGESTS = ("digest-a", "digest-b")
FINGERPRINTS = ("defaults", "options-a")


def _record(
    digest: str,
    nonce: int,
    attempt: int,
    submitted: bool,
    finished: bool,
    old: SubmissionRecord | None,
) -> SubmissionRecord:
    at = "2001-09-09T01:46:00Z"
    return SubmissionRecord(
        job_id(UID, digest, nonce, attempt),
        digest,
        nonce,
        attempt,
        attempt if old is not None else 0,
        at if submitted else "",
        at if finished and submitted else "",
        upgraded_from=old,
    )


formers = st.builds(
    lambda digest: SubmissionRecord(job_id(UID, digest, 0, 0), digest), st.sampled_from(DIGESTS)
)
records = st.one_of(
    st.just(SubmissionRecord()),
    st.builds(
        _record,
        st.sampled_from(DIGESTS),
        st.integers(0, 1),
        st.integers(1, 2),
        st.booleans(),
        st.booleans(),
        formers | st.none(),
    ),
    st.builds(
        _record,
        st.sampled_from(DIGESTS),
        st.integers(0, 1),
        st.just(0),
        st.booleans(),
        st.booleans(),
        st.none(),
    ),
)
log_jobs = st.one_of(
    st.builds(
        LogJob,
        st.just("live"),
        st.booleans(),
        st.booleans(),
        options=st.sampled_from(FINGERPRINTS),
    ),
    st.just(LogJob("completed")),
    st.builds(LogJob, st.just("killed"), failure=st.sampled_from(("", "task read: boom"))),
)
specs = st.builds(
    Spec,
    st.just("default"),
    st.just("job"),
    st.just(UID),
    st.just(1),
    st.builds(
        Declaration,
        desired_state=st.sampled_from(("Running", "Suspended", "Stopped")),
        restart_nonce=st.integers(0, 1),
        upgrade_policy=st.sampled_from(("Drain", "KeepState")),
        ttl_seconds_after_finished=st.sampled_from((None, 0, 60)),
        failure_policy=st.builds(FailurePolicy, st.integers(0, 2), st.sampled_from((0, 10))),
    ),
    st.just(JOB),
    st.sampled_from(DIGESTS),
    st.sampled_from(FINGERPRINTS),
    deleted_at=st.sampled_from(("", "2001-09-09T01:46:39Z")),
)
invalid = st.booleans()


@st.composite
def worlds(draw: st.DrawFn) -> World:
    spec, record = draw(specs), draw(records)
    if draw(invalid):
        spec = replace(spec, job=None, digest="", problem="is wrong", problem_reason="InvalidSpec")
    ids = ids_of_interest(spec, record)
    known = {each: draw(log_jobs) for each in ids if draw(st.booleans())}
    return World(spec, record, known)


@given(worlds())
def test_plans_lead_to_a_state_where_nothing_is_left_to_do(world: World) -> None:
    world.settle()


@given(worlds())
def test_no_job_is_submitted_twice_and_none_beside_another(world: World) -> None:
    live = sum(each.stage == "live" for each in world.jobs.values())
    world.settle()
    assert len(world.accepted) == len(set(world.accepted))
    assert world.live_at_once <= max(1, live)


@given(worlds())
def test_a_deleted_object_that_is_held_by_others_has_its_job_killed(world: World) -> None:
    world.spec = replace(world.spec, deleted_at="2001-09-09T01:46:39Z")
    interest = ids_of_interest(world.spec, world.record)
    world.settle()
    assert not world.accepted
    assert not any(world.jobs[each].stage == "live" for each in interest if each in world.jobs)
    if world.record.job_id and not world.record.submitted_at:
        assert world.jobs[world.record.job_id].ended, "a submission under way comes too late"


@given(worlds())
def test_a_job_that_shall_run_runs_or_has_ended(world: World) -> None:
    forever = Declaration(failure_policy=FailurePolicy(2, 0))
    world.spec = replace(world.spec, declaration=forever, deleted_at="")
    world.settle()
    world.time_passes()
    world.settle()
    if world.spec.job is None or world.record.finished:
        return
    job = world.jobs.get(world.record.job_id or JobId(""), LogJob())
    forgotten = job.stage == "unknown" and world.record.submitted_at
    assert forgotten or job.ended or (job.stage == "live" and not job.suspended)


@given(worlds())
def test_an_invalid_spec_changes_nothing(world: World) -> None:
    world.spec = replace(world.spec, job=None, digest="", problem="is wrong", deleted_at="")
    assert plan(world.seen()).actions == ()


@given(worlds())
def test_a_job_that_its_cluster_cannot_run_is_not_submitted_and_stops_nothing(
    world: World,
) -> None:
    world.spec = replace(world.spec, declaration=Declaration(), deleted_at="")
    seen = replace(world.seen(), unfit="spec.catalog[1].options.path: is nowhere")
    recorded = world.record.job_id
    for each in plan(seen).actions:
        assert not isinstance(each, Submit) or each.job == recorded, "it was recorded before"
        if isinstance(each, ControlJob) and isinstance(each.command, KillJob | DrainJob):
            assert each.command.job == seen.versions.abandoned, "no job is stopped that runs"


@given(worlds())
def test_who_had_the_name_before_has_ended_before_anything_is_submitted(world: World) -> None:
    old = JobId("of-another-uid")
    world.jobs[old], world.orphans = LogJob("live"), (old,)
    world.spec = replace(world.spec, deleted_at="")
    actions = plan(world.seen()).actions
    if world.spec.job is not None:
        assert actions[0] == ControlJob(KillJob(job=old))


@given(worlds())
def test_nothing_is_done_to_a_log_that_cannot_be_reached(world: World) -> None:
    world.trouble = Trouble("LogUnreachable", "no ZooKeeper answers")
    world.spec = replace(world.spec, deleted_at="")
    actions = plan(world.seen()).actions
    assert not any(isinstance(each, Submit | ControlJob | Remember) for each in actions)


@given(worlds())
def test_a_job_that_runs_works_with_the_values_of_its_spec(world: World) -> None:
    world.spec = replace(world.spec, deleted_at="")
    world.settle()
    job = world.jobs.get(world.record.job_id or JobId(""), LogJob())
    is_its_own = world.spec.job is not None and world.record.version == world.spec.version
    if job.stage == "live" and is_its_own:
        assert job.options == world.spec.options
