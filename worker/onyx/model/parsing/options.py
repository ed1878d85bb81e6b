"""Values of keys that change while a job runs, as people write them: `maxPending=500`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from onyx.errors import ManifestError, Problem
from onyx.model.canonical import to_mapping
from onyx.model.changing import KEYS
from onyx.model.job import CatalogEntry, Job
from onyx.model.keys.fields import section_of
from onyx.model.parsing.mapping import parse_mapping
from onyx.model.report import listed, nearest

DEFAULT = "default"
"""Word for a key that is to be as if the manifest did not give it."""
DIGITS_MAX = 18


def value_of(text: str) -> int | str:
    """A value as somebody types it: a number, or text such as `50ms`."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX else text


def read_options(job: Job, task: str, given: Mapping[str, Any]) -> dict[str, int]:
    """Values for a task, checked as those of a manifest are; 0 for the default.

    Raises:
        ManifestError: with everything that is wrong.
    """
    if problems := [*_of_the_job(job, task, given), *map(_of_key, given.keys() - KEYS.keys())]:
        raise ManifestError(problems)
    mapping = to_mapping(job)
    index = [entry.name for entry in job.catalog].index(task)
    entry = mapping["spec"]["catalog"][index]
    entry |= {key: value for key, value in given.items() if value != DEFAULT}
    for key in given:
        if given[key] == DEFAULT:
            entry.pop(key, None)
    try:
        read = parse_mapping(mapping).entry(task)
    except ManifestError as error:
        raise ManifestError(_by_key(error, f"spec.catalog[{index}].")) from None
    return {key: 0 if given[key] == DEFAULT else getattr(read, KEYS[key]) for key in given}


def _of_the_job(job: Job, task: str, given: Mapping[str, Any]) -> Iterable[Problem]:
    known = [entry.name for entry in job.catalog]
    if job.engine == "spark":
        hint = "submit it again with other values"
        yield Problem("engine", "is spark: nothing of such a job changes while it runs", hint)
    elif task not in known:
        hint = nearest(task, known) or f"it has {', '.join(known)}"
        yield Problem(task, "is no task of the job", hint)
    elif not given:
        yield Problem(task, "gets no value", f"give key=value; keys are {listed(KEYS)}")


def _by_key(error: ManifestError, entry: str) -> list[Problem]:
    """The problems as who gave keys of one entry understands them."""
    return [replace(each, path=each.path.removeprefix(entry)) for each in error.problems]


def _of_key(key: str) -> Problem:
    can = f"these can: {listed(KEYS)}"
    if key in section_of(CatalogEntry).by_yaml:
        why = "cannot change while the job runs"
        return Problem(key, why, f"{can}; `onyx submit --upgrade` changes others")
    return Problem(key, "is not a key of a catalog entry", nearest(key, KEYS) or can)
