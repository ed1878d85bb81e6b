"""The job that somebody names to a command: see `onyx.replica.naming`."""

from __future__ import annotations

from functools import partial

from onyx.base.path_names import path_name
from onyx.client.manifests import absent, readable
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.log.interface import ClientLog
from onyx.model.report import listed
from onyx.replica.naming import jobs_called
from onyx.replica.state import Replica

SHOWN_MAX = 10


def named(log: ClientLog, replica: Replica, text: str) -> JobId:
    """The job that somebody names.

    Raises:
        UserError: there is none, or there are several; in a tenancy without jobs the message names
            the others.
    """
    job = JobId(path_name(text, "the id of a job"))
    found = jobs_called(replica, text, partial(_name, log, replica))
    if len(found) > 1:
        ids = listed(sorted(found)[:SHOWN_MAX])
        raise UserError(f"{text} may be any of {len(found)} jobs: give the id: {ids}")
    if not found:
        raise UserError(absent(replica, job) + _elsewhere(log, replica))
    return found[0]


def _name(log: ClientLog, replica: Replica, job: JobId) -> str:
    manifest, _ = readable(log, replica, job)
    return "" if manifest is None else manifest.name


def _elsewhere(log: ClientLog, replica: Replica) -> str:
    """The tenancies in which the job may be, when this one has never had any."""
    if replica.records or replica.completed_before or replica.killed_before:
        return ""
    others = log.other_tenancies()
    if not others:
        return ""
    shown = listed(others[:SHOWN_MAX])
    return f"; this tenancy has no jobs; others have theirs in {shown}: give --tenancy"
