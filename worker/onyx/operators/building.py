"""A program gets the functions that its job names for the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from onyx.base.on_demand import OnDemand
from onyx.flow.columns.schemas import arrow_schema
from onyx.flow.conditions import (
    Conditions,
    children_of,
    compile_conditions,
    everything_to,
    set_apart,
)
from onyx.flow.groups.getters import key_getter
from onyx.flow.groups.grouping import Grouping
from onyx.flow.leaves import resolve_params
from onyx.flow.predicates import Resolve
from onyx.model.job import EMPTY, CatalogEntry, Job
from onyx.model.workflow import children, loop_of, read_of, receivers
from onyx.operators.table import definition_of
from onyx.program.program import Program, Routes

if TYPE_CHECKING:
    from onyx.joins.enrichment import Enrichment
    from onyx.joins.kept import ForeignState, Reading
    from onyx.joins.table import Lookup, Table
    from onyx.sql.batches import Query

_QUERY: OnDemand[type[Query]] = OnDemand("onyx.sql.batches:Query")
_ENRICHMENT: OnDemand[type[Enrichment]] = OnDemand("onyx.joins.enrichment:Enrichment")
_FOREIGN_STATE: OnDemand[type[ForeignState]] = OnDemand("onyx.joins.kept:ForeignState")
_READING: OnDemand[type[Reading]] = OnDemand("onyx.joins.kept:Reading")
_LOOKUP: OnDemand[type[Lookup]] = OnDemand("onyx.joins.table:Lookup")
Tables = Mapping[str, Callable[[], "Table"]]
"""Tables by name, each as it is now."""


def with_functions(
    program: Program, resolve: Resolve, fn_params: Sequence[Any], tables: Tables = EMPTY
) -> Program:
    """The program with all functions that the job names for the task.

    Args:
        fn_params: leading arguments of the task's function that the worker was started with.
        tables: those that the task looks up.

    Raises:
        UserError: a function is not registered or not of the right kind, or a table lacks what
            the task wants of it.
    """
    job, entry = program.job, program.entry
    found = {name: find() for name, find in lookups_of(job, entry, resolve).items()}
    params = [*resolve_params({entry.name: fn_params}, entry)]
    params += [_LOOKUP.load()(tables[name]) for name in entry.tables]
    program.event.update(params=params, fn=found["fn"])
    kept = _kept(job, entry)
    return replace(
        program, join=_join(entry, tables, kept), kept=kept, takes=_takes(program), **found
    )


def lookups_of(job: Job, entry: CatalogEntry, resolve: Resolve) -> Mapping[str, Callable[[], Any]]:
    """What the program of a task gets of its job alone: by the names of its fields, what finds
    each. A task that starts calls all of them, and so does a check whether it could start, so that
    neither knows a kind of task that the other does not."""
    name = entry.name
    return {
        "fn": lambda: function_of(entry, resolve),
        "schema": lambda: arrow_schema(entry),
        "routes": lambda: _routes(job, entry, resolve),
        "operator": lambda: definition_of(job, name, resolve),
    }


def function_of(entry: CatalogEntry, resolve: Resolve) -> Callable[..., Any] | None:
    """What makes the segments of a task: its function or its SQL; None if it has neither.

    Raises:
        UserError: the function is not registered, or the SQL cannot be run.
    """
    if entry.sql is not None:
        query, given_ms = _QUERY.load(), entry.sql_timeout
        return query(entry.sql) if given_ms is None else query(entry.sql, given_ms / 1_000)
    return resolve(entry.fn) if entry.fn is not None else None


def _join(
    entry: CatalogEntry, tables: Tables, kept: ForeignState | None
) -> Enrichment | Reading | None:
    join = entry.join
    if join is None:
        return None
    inner = join.how == "inner"
    if kept is not None:
        return _READING.load()(kept, inner)
    assert join.table is not None, "validated: a join names a table or a state"
    made = _ENRICHMENT.load()(
        tables[join.table], join.keys, inner, join.columns, join.under, join.at, join.default
    )
    made.check(made.table())
    return made


def _kept(job: Job, entry: CatalogEntry) -> ForeignState | None:
    """What the task looks up of another one, before it has a batch."""
    read, join = read_of(job, entry), entry.join
    if read is None or join is None:
        return None
    assert join.under is not None, "validated: the value of a state has a name"
    by = read.task.group_by_key
    names = by if isinstance(by, tuple) else None
    return _FOREIGN_STATE.load()(
        read.state, join.keys, join.under, names, join.default.get(join.under)
    )


def _takes(program: Program) -> Literal["dicts", "arrow"] | None:
    """What the functions and hooks of a task get."""
    entry = program.entry
    looks = any(map(program.lifecycles.has, ("after_read_batch", "after_apply_fn", "after_batch")))
    own = entry.maker is not None or looks
    return entry.batch_format if own or entry.batch_format == "arrow" else None


def _routes(job: Job, entry: CatalogEntry, resolve: Resolve) -> Routes:
    below, apart = children_of(job, entry.name), set_apart(job, entry.name)
    conditions = compile_conditions(job, entry.name, resolve)
    apart_from_trees = entry.state is not None and not loop_of(job, entry.name)
    own_conditions = _own_conditions(entry, conditions, below, apart_from_trees)
    exceptional = own_conditions is not None and bool(own_conditions.exceptional)
    return Routes(
        conditions=conditions,
        own_conditions=own_conditions,
        groupings=_groupings(job, entry.name, resolve),
        # Of a reduce task they get what its triggers emit.
        sends_to=tuple(each for each in children(job.workflow)[entry.name] if each not in apart),
        children=below,
        handles_failures=exceptional or entry.dead_letter is not None,
    )


def _own_conditions(
    entry: CatalogEntry, conditions: Conditions | None, below: tuple[str, ...], keeps: bool
) -> Conditions | None:
    """The conditions of a task whose segments go nowhere (outputs, stages of Spark, reduce tasks,
    processors and, unless they are in a loop, functions with state): exceptions only."""
    sends = entry.type in ("input", "function")
    goes_on = sends and not (entry.stage or keeps or entry.processor)
    return conditions if goes_on else (conditions or everything_to(below)).of_exceptions()


def _groupings(job: Job, task: str, resolve: Resolve) -> dict[str, Grouping]:
    entries = [job.entry(child) for child in receivers(job, task)]
    getters = [(entry, key_getter(entry, resolve, task)) for entry in entries]
    return {entry.name: Grouping(get, entry) for entry, get in getters if get is not None}
