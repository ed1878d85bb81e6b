"""A task joins the tables that it looks up: they are there before it is ready, so before anything
is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onyx.base.on_demand import OnDemand
from onyx.flow.columns.record_batch import Columns
from onyx.model.job import CatalogEntry, Job
from onyx.model.workflow import looked_up
from onyx.tables.shared import Load, TableShare, TableSource, TaskTables
from onyx.task.channels.wiring import sites_of
from onyx.task.parts import (
    Allocation,
    Assignment,
    Runtime,
    is_allocated,
)
from onyx.task.plugin_context import context_in_process

if TYPE_CHECKING:
    from onyx.joins.enrichment import Enrichment
    from onyx.joins.shares import Dealing
    from onyx.joins.table import Table

_ENRICHMENT: OnDemand[type[Enrichment]] = OnDemand("onyx.joins.enrichment:Enrichment")
_DEALING: OnDemand[type[Dealing]] = OnDemand("onyx.joins.shares:Dealing")
_LOAD_TABLE: OnDemand[Callable[..., Table]] = OnDemand("onyx.tables.loading:load_table")


def tables_of(assignment: Assignment, job: Job, entry: CatalogEntry) -> TaskTables:
    """The tables that a task names, none of which it has yet."""
    found = {}
    for name in looked_up(entry):
        table = job.entry(name)
        refresh_s = None if table.refresh is None else table.refresh / 1000
        load = partial(_loading, assignment, job, entry, table)
        found[name] = TableSource(load, refresh_s, table.partitioned)
    return TaskTables(assignment.job_id, assignment.task, assignment.services.tables, found)


def first_tables(runtime: Runtime) -> bool:
    """Have the tables, for the allocation that there is now; whether they are there.

    Raises:
        Unavailable: one cannot be read now.
        UserError: one never can.
    """
    tables, assignment = runtime.tables, runtime.assignment
    if tables is None:
        return True
    if not is_allocated(assignment):
        return False
    sites = sites_of(assignment.services.replica(), assignment.job_id, assignment.task)
    rank = next(at for at, site in enumerate(sites) if site.peer == assignment.peer)
    tables.take(rank, len(sites))
    return tables.loaded


def tables_again(runtime: Runtime, allocation: Allocation) -> bool:
    """Have the parts of tables that belong to the peer in a new allocation; whether they are there.
    Raises as `first_tables`."""
    tables, join = runtime.tables, runtime.program.join
    if tables is None:
        return True
    tables.take(allocation.wiring.rank, allocation.wiring.task_peers)
    if not tables.loaded:
        return False
    if isinstance(join, _ENRICHMENT.load()):
        join.check(join.table())
    return True


def _loading(
    assignment: Assignment,
    job: Job,
    task: CatalogEntry,
    table: CatalogEntry,
    share: TableShare | None,
) -> Load:
    keep = (
        None
        if share is None
        else partial(_DEALING.load()(table, task, share.peers).part, share.rank)
    )
    return partial(_load, assignment, job, table, keep)


def _load(
    assignment: Assignment,
    job: Job,
    table: CatalogEntry,
    keep: Callable[[Columns], Columns] | None,
    wanted: Callable[[], bool],
) -> Table:
    services, peer = assignment.services, assignment.peer
    incarnation = services.replica().groups_reverse_index[peer]
    context = context_in_process(services, job, table, assignment.job_id, peer, incarnation)
    context = replace(context, batch_format="arrow", wanted=wanted)
    assert table.plugin is not None, "validated: a table names a plugin"
    plugin = services.build_input(table.plugin, context)
    bytes_max = services.settings.task.table_bytes_max
    return _LOAD_TABLE.load()(table, plugin, bytes_max, wanted, keep)
