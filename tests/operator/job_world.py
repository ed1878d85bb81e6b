"""A world for plans: an object, and the log of its cluster, in which actions have the effect that
the real ones have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from onyx.ids import JobId
from onyx.model.job import CatalogEntry, Job
from onyx.replica.commands import SetOptions
from onyx_operator.jobs.observed import JobObservation, ids_of_interest, observed
from onyx_operator.jobs.plan import Action, ControlJob, DeleteObject, Remember, Submit, plan
from onyx_operator.jobs.record import SubmissionRecord
from onyx_operator.jobs.spec import Spec
from onyx_operator.logs.state import Log, LogJob, Trouble, UpgradeVerdict

UID = "6f8b3cf0-0000-4000-8000-000000000001"
NOW_S = 1_000_000_000.0
STEPS_MAX = 16
JOB = Job("job", (("read", "write"),), (CatalogEntry("read", "input", 10),))


@dataclass
class World:
    """See the module. Whatever changes what is wanted is assigned to `spec`."""

    spec: Spec
    record: SubmissionRecord
    jobs: dict[JobId, LogJob]
    trouble: Trouble | None = None
    gone: bool = False
    orphans: tuple[JobId, ...] = ()
    """Jobs of an object that had the name before."""
    live_at_once: int = 0
    accepted: list[JobId] = field(default_factory=list)
    resumed: dict[JobId, JobId] = field(default_factory=dict)
    """In whose place jobs have come."""
    begun: set[JobId] = field(default_factory=set)
    """Those of them that have taken over."""
    busy: bool = False
    """An old job is to come to rest before another one may upgrade it."""
    refusal: str = ""
    """Why no job can upgrade another one."""

    def seen(self) -> JobObservation:
        ids = ids_of_interest(
            self.spec, self.record, lambda job: self.jobs.get(job, LogJob()).stage
        )
        alive = tuple(each for each in self.orphans if self.jobs[each].stage == "live")
        log = Log(7, {each: self.jobs[each] for each in ids if each in self.jobs}, alive)
        seen = observed(self.spec, NOW_S, self.record, self.trouble or log)
        old = seen.versions.upgrades
        if old is None or old.job_id is None:
            return seen
        return replace(seen, upgrade=self.upgrade(old.job_id))

    def upgrade(self, old: JobId) -> UpgradeVerdict:
        """As the operator asks the log."""
        state, job = self.holder(old), self.jobs.get(old, LogJob())
        if state != old and job.peers:
            return UpgradeVerdict(state, waits="it carries over state", again_in_s=1.0)
        gone = "" if state in self.jobs else f"there is no job {state}"
        return UpgradeVerdict(state, pauses=self.busy, refusal=self.refusal or gone)

    def holder(self, job: JobId) -> JobId:
        while job in self.resumed and job not in self.begun:
            job = self.resumed[job]
        return job

    def do(self, action: Action) -> None:
        match action:
            case Remember(record):
                self.record = record
            case Submit(job, upgrades):
                assert self.record.job_id == job, "intent before action"
                if job not in self.jobs:
                    self.accepted.append(job)
                    self.jobs[job] = LogJob("live", options=self.spec.options)
                    if upgrades is not None:
                        self.resumed[job] = upgrades
                        self.control("kill-job", upgrades)
                self.record = replace(self.record, submitted_at="2001-09-09T01:46:40Z")
            case ControlJob(command):
                self.control(command.NAME, command.job)
                if isinstance(command, SetOptions) and self.jobs[command.job].stage == "live":
                    known = self.jobs[command.job]
                    self.jobs[command.job] = replace(known, options=command.declares)
            case DeleteObject():
                self.gone = True
        live = [each for each in self.jobs.values() if each.stage == "live"]
        self.live_at_once = max(self.live_at_once, len(live))

    def control(self, fn: str, job: JobId) -> None:
        known = self.jobs.get(job, LogJob())
        if fn == "kill-job" and not known.ended:
            self.jobs[job] = LogJob("killed" if known.submitted else "fenced")
        elif known.stage != "live":
            return
        elif fn == "suspend-job":
            self.jobs[job] = replace(known, suspended=True)
        elif fn == "resume-job":
            self.jobs[job] = replace(known, suspended=False, paused="")
        elif fn == "pause-job":
            self.jobs[job] = replace(known, paused="its inputs are paused")
        elif fn == "drain-job":
            self.jobs[job] = replace(known, draining=True)

    def time_passes(self) -> None:
        """What peers do in the end: a drained job with peers completes."""
        for job, known in self.jobs.items():
            if known.stage == "live" and known.draining and not known.suspended:
                self.jobs[job] = LogJob("completed")

    def carry_out(self, actions: Sequence[Action]) -> Sequence[Action]:
        for action in actions:
            self.do(action)
        return actions

    def settle(self) -> list[Action]:
        """Carry out plans until there is nothing to do; all actions in order."""
        done: list[Action] = []
        for _ in range(STEPS_MAX):
            actions = plan(self.seen()).actions
            if not actions or self.gone:
                return done
            done += self.carry_out(actions)
            self.time_passes()
        raise AssertionError(f"still acting after {STEPS_MAX} plans: {done[-4:]}")
