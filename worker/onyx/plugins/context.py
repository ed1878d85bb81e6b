"""What the plugin of a task is given, as far as the manifest says it.

A plugin is made by several processes: by a peer, by the driver of a job on Spark, within its query,
and to check a job before it runs. All start from here: a plugin that knew less in one of them would
refuse there what a check has let pass. What only some of them know, they put in with
`msgspec.structs.replace`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.base.seams import Clock
from onyx.flow.columns.schemas import arrow_schema
from onyx.ids import GroupId, JobId, PeerId, Slot, TaskName
from onyx.model.job import CatalogEntry, Job, Spark
from onyx.model.requests import requested_tasks
from onyx.model.workflow import parents
from onyx.plugins.options import alike, own_options
from onyx.plugins.protocol import PluginContext
from onyx.replica.spec_of_job import upgraded_by


def context_of(
    job: Job,
    entry: CatalogEntry,
    job_id: JobId,
    peer: PeerId,
    incarnation: GroupId,
    clock: Clock,
    resolve: Callable[[str], Callable[..., Any]],
) -> PluginContext:
    """A context for a task of a job, in slot 0."""
    return PluginContext(
        job=job_id,
        job_name=job.name,
        task=TaskName(entry.name),
        peer=peer,
        slot=Slot(0),
        incarnation=incarnation,
        options=own_options(entry),
        batch_size=entry.batch_size,
        clock=clock,
        resolve=resolve,
        batch_format=entry.batch_format,
        schema=arrow_schema(entry),
        spark=job.spark or Spark(),
        upstream=parents(job.workflow).get(entry.name, ()),
        spark_stage=entry.stage,
        spark_sql=entry.spark_sql,
        alike=alike(job, entry),
        answers=bool(requested_tasks(job)),
        upgrades=upgraded_by(job),
    )
