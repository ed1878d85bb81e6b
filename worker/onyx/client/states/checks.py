"""What several kinds of states refuse."""

from __future__ import annotations

from collections.abc import Sequence

from onyx.errors import UserError
from onyx.keystate.extents import ALL
from onyx.keystate.selection import Selection
from onyx.model.job import Job
from onyx.model.workflow import is_unbounded


def require_peers(job: Job) -> None:
    """Raises UserError when no peer has tables of the job."""
    if job.engine == "spark":
        raise UserError(
            f"job {job.name} runs on Spark, where no peer has tables: emit what you want to see"
        )


def require_states(job: Job) -> None:
    """Raises UserError when Spark runs the job and keeps nothing."""
    if job.engine == "spark" and not is_unbounded(job):
        raise UserError(
            f"job {job.name} is one query of Spark, because all its inputs have an end, and such a "
            "query keeps no state: emit what you want to see"
        )


def require_log(job: Job, durable: bool) -> None:
    """Raises UserError when only what is durable is wanted, and nothing is."""
    # What Spark has committed is durable, whatever the guarantee.
    if durable and job.guarantee == "at-most-once" and job.engine != "spark":
        raise UserError(
            f"job {job.name} is at most once and keeps its state in the memory of workers: "
            "nothing of it is durable"
        )


def require_parts(select: Selection, names: Sequence[str], what: str) -> None:
    """Raises UserError when a key is asked for that has not all parts; `what` has keys of these."""
    key = select.key
    if key is ALL or len(names) == 1:
        return
    if type(key) is not dict or set(key) != set(names):
        raise UserError(f"a key of {what} is an object with {', '.join(names)}")


def require_no_times(select: Selection, what: str) -> None:
    """Raises UserError when times are asked for; `what` has none."""
    if (select.time_from, select.time_to) != (None, None):
        raise UserError(f"{what} has no times: leave them out")
