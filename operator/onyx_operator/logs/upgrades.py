"""Whether the job that a spec asks for can upgrade the object's job, found out from the log and
the two manifests: the same answers as `onyx submit --upgrade --dry-run` gives."""

from __future__ import annotations

from onyx.errors import UserError
from onyx.ids import JobId
from onyx.log.interface import LogReader
from onyx.model.job import Job
from onyx.replica.state import Replica
from onyx.submission import upgrades
from onyx.upgrade.plan import Plan, upgrading
from onyx_operator.conditions import problem_lines
from onyx_operator.logs.state import Upgrade

CARRY_OVER_WAIT_S = 1.0
"""Between two looks whether a job has carried over its state, or rests: no event announces that."""


def upgrade(log: LogReader, replica: Replica, job: Job, old: JobId) -> Upgrade:
    """Whether `job` can upgrade the job `old`. Blocks.

    Raises:
        Unavailable: the log cannot be reached.
    """
    holder = upgrades.state_holder(log, replica, old)
    if holder != old and replica.run(old).allocation:
        waits = (
            f"job {old} is carrying over the state of job {holder}; the new one upgrades it then"
        )
        return Upgrade(holder, waits=waits, again_in_s=CARRY_OVER_WAIT_S)
    section = upgrading(job, holder).upgrade
    assert section is not None
    try:
        found = upgrades.plan(log, replica, job, section, instead_of=old)
    except UserError as error:
        anew = "another restartNonce runs the new one from its beginning"
        return Upgrade(holder, refusal=f"{error}; {anew}")
    if found.problems == (upgrades.IN_FLIGHT,):
        waits = f"job {holder} has segments in flight; the new one upgrades it when nothing comes"
        return Upgrade(holder, waits=waits, again_in_s=CARRY_OVER_WAIT_S)
    if found.problems:
        return Upgrade(holder, refusal=problem_lines(found.problems))
    return Upgrade(holder, remarks=_remarks(found))


def _remarks(found: Plan) -> str:
    """The tasks and windows whose state is not carried over."""
    steps = [each for each in found.steps if each.fate in ("dropped", "initialized")]
    return ", ".join(f"{each.part} {each.name} is {each.fate}" for each in steps)
