"""Whether this worker could start the tasks of a job: all is looked up, and nothing started.

The same lookups as in `start`, for every task, with all that is wrong instead of the first thing.
User's code runs as far as it does when a peer joins a task that others work on: `calls` of
lifecycles, and plugins are made and closed again. A lookup that fails by a mistake of Onyx says so:
the job may be right, and whoever upgrades it must not look for what is wrong with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from onyx.errors import InvariantViolated, OnyxError, describe
from onyx.flow.apply import resolve_params
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.operators.building import lookups_of
from onyx.program.exceptions import frames
from onyx.program.lifecycles import compile_lifecycles
from onyx.task.plugin_context import context_in_process
from onyx.task.services import Services

CHECK = JobId("check")
"""In the place of the id of a job that has none yet."""
logger = logging.getLogger("onyx.task")


def problems(job: Job, group: GroupId, services: Services) -> list[str]:
    """Why the tasks could not be started, each once; empty if nothing is known against it."""
    found: dict[str, None] = {}
    for entry in job.catalog:
        for look_up in _lookups(job, entry, group, services):
            try:
                look_up()
            except BaseException as error:
                found.setdefault(f"task {entry.name}: {explained(error)}")
    return list(found)


def explained(error: BaseException) -> str:
    """Why a check has failed: what is wrong with the job, or that Onyx is wrong."""
    if not _is_bug(error):
        return describe(error)
    logger.error("a bug in Onyx: please report it", exc_info=error)
    return (
        f"a bug in Onyx, not in the job: {describe(error)}; please report it, with the traceback "
        "in the log of the worker"
    )


def _is_bug(error: BaseException) -> bool:
    """Whether nobody's code but that of Onyx has run where an error comes from."""
    if isinstance(error, OnyxError | OSError | TypeError):
        # A TypeError may be of a function of the user's that does not take what it is called with.
        return isinstance(error, InvariantViolated)
    return not frames(error)


def _lookups(
    job: Job, entry: CatalogEntry, group: GroupId, services: Services
) -> Iterator[Callable[[], Any]]:
    resolve, task = services.resolve, entry.name
    if entry.type == "table":
        yield lambda: _made(job, entry, group, services)
        return
    names = (entry.spark_stage, entry.assign_watermark_fn)
    yield from (partial(resolve, name) for name in names if name is not None)
    yield lambda: resolve_params({task: services.fn_params(task)}, entry)
    yield lambda: compile_lifecycles(job, task, resolve)
    yield from lookups_of(job, entry, resolve).values()
    if entry.plugin is not None:
        yield lambda: _made(job, entry, group, services)


def _made(job: Job, entry: CatalogEntry, group: GroupId, services: Services) -> None:
    """Make the plugin, which looks at its options, and close it."""
    assert entry.plugin is not None
    peer = PeerId(f"{group}-check")
    context = replace(
        context_in_process(services, job, entry, CHECK, peer, group),
        permitted=lambda: False,
        wanted=lambda: False,
    )
    build = services.build_output if entry.type == "output" else services.build_input
    build(entry.plugin, context).close()
