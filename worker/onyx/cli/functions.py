"""The functions that a job names, looked up beside its file: by `onyx run` and `onyx validate`."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from onyx.cli.job_file import refuse
from onyx.errors import Problem
from onyx.model.functions import function_names
from onyx.model.job import Job
from onyx.processes.surroundings import settings
from onyx.settings import Settings
from onyx.submission.function_checks import wrong_functions


def named_modules(job: Job) -> list[str]:
    """Modules of the functions that a job names, those that only look like names left out."""
    named = {path: name.partition(":")[0] for path, name in function_names(job)}
    return sorted({m for path, m in named.items() if not in_options(path) or exists(m)})


def wrong_here(job: Job, found: Settings, absent: Sequence[Problem] = ()) -> list[Problem]:
    """Functions of a job that are not in the modules of these settings, or cannot be called as Onyx
    calls them.

    Args:
        job: that names them.
        found: settings with the modules.
        absent: what `missing` says, and is not said again.

    Raises:
        SettingsError: a module that the job does not name cannot be imported.
    """
    paths = {each.path for each in absent}

    def skipped(path: str) -> bool:
        return in_options(path) or path in paths

    return wrong_functions(job, found.modules, found.fn_params, skipped)


def check_functions(job: Job, file: Path, found: Settings, absent: Sequence[Problem] = ()) -> None:
    """Look up the functions of a job; arguments as of `wrong_here`.

    Raises:
        ManifestError: some are wrong; with task, file and line of each.
        SettingsError: as `wrong_here`.
    """
    refuse(wrong_here(job, found, absent), file)


def check_those_here(job: Job, file: Path, modules: list[str] | None) -> list[Problem]:
    """Look up the functions of a job in these modules, or in those that it names and that are on
    this machine; warnings about the others.

    Raises:
        ManifestError: as `check_functions`.
    """
    if modules:
        check_functions(job, file, settings(modules=modules))
        return []
    absent = missing(job, settings().modules)
    check_functions(job, file, settings(modules=modules_here(job)), absent)
    return absent


def modules_here(job: Job) -> list[str]:
    """Modules of the functions that a job names, as far as they are on this machine."""
    return [each for each in named_modules(job) if exists(each)]


def missing(job: Job, modules: Sequence[str]) -> list[Problem]:
    """Names of functions whose modules are not on this machine, and are none of `modules`."""
    return [
        Problem(path, f"module {module} is not here, so {name} was not looked up")
        for path, name in function_names(job)
        for module in [name.partition(":")[0]]
        if module not in modules and not in_options(path) and not exists(module)
    ]


def in_options(path: str) -> bool:
    """Text there may look like a function's name and be something else; its plugin knows."""
    return ".options." in path


def exists(module: str) -> bool:
    """Whether there is such a module; one whose package cannot be imported is there."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
    except BaseException:
        return True
