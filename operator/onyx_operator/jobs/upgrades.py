"""Whether a job can come in the place of another one, asked of the log: the same answers as
`onyx submit --resume --dry-run` gives."""

from __future__ import annotations

from onyx.errors import UserError
from onyx.ids import JobId
from onyx.log.interface import LogReader
from onyx.model.job import Job
from onyx.replica.state import Replica
from onyx.submission import upgrades
from onyx.upgrade.plan import Plan, in_place_of
from onyx_operator.jobs.seen import Upgrade
from onyx_operator.jobs.spec import told

TAKEOVER_WAIT_S = 1.0
"""Between two looks whether a job has taken over: nobody tells."""


def upgrade(log: LogReader, replica: Replica, job: Job, former: JobId) -> Upgrade:
    """Blocks.

    Raises:
        Unavailable: the log cannot be reached.
    """
    resumes = upgrades.holder(log, replica, former)
    if resumes != former and replica.allocations.get(former):
        waits = f"job {former} is about to go on where job {resumes} stopped; then the new one"
        return Upgrade(resumes, waits=f"{waits} takes its place", again_in_s=TAKEOVER_WAIT_S)
    point = in_place_of(job, resumes).resume_point
    assert point is not None
    try:
        found = upgrades.plan(log, replica, job, point, instead_of=former)
    except UserError as error:
        anew = "another restartNonce runs the new one from its beginning"
        return Upgrade(resumes, refusal=f"{error}; {anew}")
    if found.problems:
        return Upgrade(resumes, refusal=told(found.problems))
    return Upgrade(resumes, remarks=_remarks(found))


def _remarks(found: Plan) -> str:
    """What does not go on: dropped or initialized."""
    steps = [each for each in found.steps if each.fate in ("dropped", "initialized")]
    return ", ".join(f"{each.part} {each.name} is {each.fate}" for each in steps)
