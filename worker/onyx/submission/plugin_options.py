"""What is wrong with a job beyond what the information model says: the options of its plugins.

For everybody who takes jobs before any worker does: the command line, clients, the operator and its
webhook. Nothing is built and no code of a user is imported; a user's own plugin checks its options
itself, in a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from onyx.errors import Problem
from onyx.model.job import Job
from onyx.model.plugins import BY_TYPE
from onyx.model.report import at
from onyx.plugins.options import check_options, options_of, own_options
from onyx.upgrade.compatibility import ONE_RESULT, result_path


def wrong_options(job: Job) -> tuple[Problem, ...]:
    """Every wrong option of a plugin that comes with Onyx; empty when a worker takes them all."""
    return (*_found(job), *_shared_results(job))


def _found(job: Job) -> Iterator[Problem]:
    for index, entry in enumerate(job.catalog):
        plugin = BY_TYPE.get(entry.type, {}).get(entry.plugin or "")
        if plugin is None:
            continue
        path = at(at(at("spec", "catalog"), index), "options")
        _, problems = check_options(own_options(entry), options_of(plugin))
        for problem in problems:
            where = f"{path}.{problem.path}" if problem.path else path
            yield Problem(where, problem.message, problem.hint)


def _shared_results(job: Job) -> Iterator[Problem]:
    """The second of two results at one path would be taken for the first, which is there."""
    taken: dict[PurePosixPath, str] = {}
    for index, entry in enumerate(job.catalog):
        if entry.type == "output" and entry.plugin in ONE_RESULT and "path" in entry.options:
            first = taken.setdefault(result_path(entry), entry.name)
            if first != entry.name:
                path = at(at(at(at("spec", "catalog"), index), "options"), "path")
                yield Problem(path, f"is that of task {first} too", "each result needs its own")
