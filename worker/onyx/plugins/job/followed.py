"""What is said of a job that is followed, whatever is followed of it."""

from __future__ import annotations

from collections.abc import Collection

from onyx.errors import UserError
from onyx.plugins.job.options import JobOptions
from onyx.plugins.other_jobs import State
from onyx.plugins.protocol import PluginContext


def check_another(context: PluginContext, options: JobOptions, jobs: Collection[str]) -> None:
    """Raises UserError: the job follows itself."""
    if context.job in jobs:
        raise UserError(
            f"{context.where}: a job cannot follow itself: job {options.job} is this one"
        )


def no_more(context: PluginContext, options: JobOptions, state: State) -> str:
    """Why nothing more comes of a job of which all is read; empty if something may."""
    if state in ("runs", "completed"):
        return ""
    how = "was killed" if state == "killed" else "is known no more (`onyx gc`)"
    return (
        f"{context.where}: all is read that job {options.job} has published, and it {how}: submit "
        "a job that upgrades it, or drain this one"
    )
