"""A task joins the tables that it looks up: they are there before it is ready, so before anything
is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from onyx.joins.table import Table
from onyx.model.job import CatalogEntry, Job
from onyx.model.tables import looked_up
from onyx.tables.loading import load_table
from onyx.task.parts.assignment import Assignment
from onyx.task.parts.tables import TaskTables
from onyx.task.plugin_context import context_in_process


def tables_of(assignment: Assignment, job: Job, entry: CatalogEntry) -> TaskTables:
    """The tables that a task names, of which the process may have some already."""
    shared, job_id = assignment.services.tables, assignment.job_id
    found = {}
    for name in looked_up(entry):
        table = job.entry(name)
        load = partial(_load, assignment, job, table)
        refresh_s = None if table.refresh is None else table.refresh / 1000
        found[name] = shared.join(job_id, name, load, refresh_s)
    return TaskTables(job_id, shared, found)


def _load(
    assignment: Assignment, job: Job, table: CatalogEntry, wanted: Callable[[], bool]
) -> Table:
    services, peer = assignment.services, assignment.peer
    incarnation = services.replica().groups_reverse_index[peer]
    context = context_in_process(services, job, table, assignment.job_id, peer, incarnation)
    context = replace(context, batch_format="arrow", wanted=wanted)
    assert table.plugin is not None, "validated: a table names a plugin"
    plugin = services.build_input(table.plugin, context)
    return load_table(table, plugin, services.settings.task.table_bytes_max, wanted)
