"""Whatever there is, carrying out plans leads to a state in which nothing is left to do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from onyx.ids import JobId
from onyx.model.declaration import Declaration, FailurePolicy
from onyx.model.job import CatalogEntry, Job
from onyx_operator.jobs.actions import (
    Action,
    AddFinalizer,
    DeleteObject,
    ReleaseFinalizer,
    Remember,
    Submit,
    Tell,
)
from onyx_operator.jobs.plan import ids_of_interest, plan
from onyx_operator.jobs.seen import Log, LogJob, Record, Seen, Trouble, job_id
from onyx_operator.jobs.spec import Spec

UID = "6f8b3cf0-0000-4000-8000-000000000001"
NOW_S = 1_000_000_000.0
STEPS_MAX = 12
JOB = Job("job", (("read", "write"),), (CatalogEntry("read", "input", 10),))
DIGESTS = ("digest-a", "digest-b")


@dataclass
class World:
    """An object, and the log of its cluster; actions have the effect that the real ones have."""

    spec: Spec
    record: Record
    finalizer: bool
    jobs: dict[JobId, LogJob]
    trouble: Trouble | None = None
    gone: bool = False
    live_at_once: int = 0
    accepted: list[JobId] = field(default_factory=list)

    def seen(self) -> Seen:
        ids = ids_of_interest(self.spec, self.record)
        known = {each: self.jobs[each] for each in ids if each in self.jobs}
        return Seen(NOW_S, self.finalizer, self.record, self.trouble or Log(7, known))

    def do(self, action: Action) -> None:
        match action:
            case AddFinalizer():
                assert not self.spec.deleted_at, "the API server refuses this"
                self.finalizer = True
            case ReleaseFinalizer():
                self.finalizer, self.gone = False, bool(self.spec.deleted_at)
            case Remember(record):
                self.record = record
            case Submit(job):
                assert self.finalizer, "a job that nothing would kill"
                assert self.record.job_id == job, "intent before action"
                if job not in self.jobs:
                    self.accepted.append(job)
                    self.jobs[job] = LogJob("live")
                self.record = replace(self.record, submitted_at="2001-09-09T01:46:40Z")
            case Tell(fn, job):
                self.tell(fn, job)
            case DeleteObject():
                self.spec = replace(self.spec, deleted_at="2001-09-09T01:46:40Z")
        live = [each for each in self.jobs.values() if each.stage == "live"]
        self.live_at_once = max(self.live_at_once, len(live))

    def tell(self, fn: str, job: JobId) -> None:
        known = self.jobs.get(job, LogJob())
        if fn == "kill-job" and not known.ended:
            self.jobs[job] = LogJob("killed")
        elif known.stage != "live":
            return
        elif fn == "suspend-job":
            self.jobs[job] = replace(known, suspended=True)
        elif fn == "resume-job":
            self.jobs[job] = replace(known, suspended=False)
        elif fn == "drain-job":
            self.jobs[job] = replace(known, draining=True)

    def time_passes(self) -> None:
        """What peers do in the end: a drained job with peers completes."""
        for job, known in self.jobs.items():
            if known.stage == "live" and known.draining and not known.suspended:
                self.jobs[job] = LogJob("completed")

    def settle(self) -> list[Action]:
        """Carry out plans until there is nothing to do; all actions in order."""
        done: list[Action] = []
        for _ in range(STEPS_MAX):
            actions = plan(self.spec, self.seen()).actions
            if not actions or self.gone:
                return done
            for action in actions:
                self.do(action)
                done.append(action)
            self.time_passes()
        raise AssertionError(f"still acting after {STEPS_MAX} plans: {done[-4:]}")


def _record(digest: str, nonce: int, attempt: int, submitted: bool, finished: bool) -> Record:
    at = "2001-09-09T01:46:00Z"
    return Record(
        job_id(UID, digest, nonce, attempt),
        digest,
        nonce,
        attempt,
        at if submitted else "",
        at if finished and submitted else "",
    )


records = st.one_of(
    st.just(Record()),
    st.builds(
        _record,
        st.sampled_from(DIGESTS),
        st.integers(0, 1),
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
    ),
)
log_jobs = st.one_of(
    st.builds(LogJob, st.just("live"), st.booleans(), st.booleans()),
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
        ttl_seconds_after_finished=st.sampled_from((None, 0, 60)),
        failure_policy=st.builds(FailurePolicy, st.integers(0, 2), st.sampled_from((0, 10))),
    ),
    st.just(JOB),
    st.sampled_from(DIGESTS),
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
    return World(spec, record, draw(st.booleans()), known)


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
def test_a_deleted_object_goes_and_its_job_with_it(world: World) -> None:
    world.spec = replace(world.spec, deleted_at="2001-09-09T01:46:39Z")
    interest = ids_of_interest(world.spec, world.record)
    world.finalizer = True
    world.settle()
    assert world.gone
    assert not world.accepted
    assert not any(world.jobs[each].stage == "live" for each in interest if each in world.jobs)
    if world.record.job_id and not world.record.submitted_at:
        assert world.jobs[world.record.job_id].ended, "a submission under way comes too late"


@given(worlds())
def test_a_job_that_shall_run_runs_or_has_ended(world: World) -> None:
    forever = Declaration(failure_policy=FailurePolicy(2, 0))
    world.spec = replace(world.spec, declaration=forever, deleted_at="")
    world.settle()
    if world.spec.job is None or world.record.finished:
        return
    job = world.jobs.get(world.record.job_id or JobId(""), LogJob())
    forgotten = job.stage == "unknown" and world.record.submitted_at
    assert forgotten or job.ended or (job.stage == "live" and not job.suspended)


@given(worlds())
def test_an_invalid_spec_changes_nothing(world: World) -> None:
    world.spec = replace(world.spec, job=None, digest="", problem="is wrong", deleted_at="")
    assert plan(world.spec, world.seen()).actions == ()


@given(worlds(), st.integers(0, 120))
def test_a_log_that_cannot_be_reached_holds_a_deleted_object_for_a_limited_time(
    world: World, waited_s: int
) -> None:
    world.trouble = Trouble("LogUnreachable", "no ZooKeeper answers")
    world.finalizer = True
    world.spec = replace(world.spec, deleted_at="2001-09-09T01:46:40Z")
    seen = replace(world.seen(), now_s=NOW_S + waited_s)
    found = plan(world.spec, seen, release_timeout_s=60.0)
    assert not any(isinstance(each, Submit | Tell) for each in found.actions)
    if waited_s >= 60:
        assert found.actions == (ReleaseFinalizer(),)
    else:
        assert found.actions or found.again_in_s == 60 - waited_s


@given(worlds())
def test_nothing_is_done_to_a_log_that_cannot_be_reached(world: World) -> None:
    world.trouble = Trouble("LogUnreachable", "no ZooKeeper answers")
    world.spec = replace(world.spec, deleted_at="")
    actions = plan(world.spec, world.seen()).actions
    assert not any(isinstance(each, Submit | Tell | Remember) for each in actions)
