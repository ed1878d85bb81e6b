"""The old job, as plugins hear of it that go on with its files or in its journals."""

from __future__ import annotations

from typing import Literal

from onyx.log import job_documents
from onyx.model.plugins import keeps_journal
from onyx.plugins.other_jobs import OldJournal, UpgradedJob
from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.old_job import planned
from onyx.task.source.frontier import stored_cursors


def upgraded_job(runtime: Runtime, part: Literal["input", "output"]) -> UpgradedJob | None:
    """The old job, if this one goes on with what this input or output has made there. Blocks."""
    if runtime.services.replica().upgrades(runtime.job_id) is None:
        return None
    old = planned(runtime.assignment, runtime.program.job)
    if not old.plan.carries(part, runtime.task):
        return None
    began = bool(runtime.services.log.list_documents(job_documents.frontiers(old.id)))
    return UpgradedJob(old.id, began)


def initialized_journal(runtime: Runtime) -> OldJournal | None:
    """The journal of this input in the old job, if this job does not carry it over. Blocks."""
    if runtime.services.replica().upgrades(runtime.job_id) is None:
        return None
    old = planned(runtime.assignment, runtime.program.job)
    entry = next((each for each in old.job.catalog if each.name == runtime.task), None)
    if entry is None or old.plan.carries("input", runtime.task):
        return None
    if not keeps_journal(entry.type, entry.plugin, entry.options):
        return None
    cursors = stored_cursors(runtime.services, old.id, runtime.task)
    if not cursors:
        return None
    positions, states = zip(*((each.position, each.state) for each in cursors), strict=True)
    return OldJournal(old.id, positions, states)
