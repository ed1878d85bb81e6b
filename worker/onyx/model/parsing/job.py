"""From a manifest to a job: all problems at once, or a frozen value.

Three steps, each a module: text to plain values (`text`, `plain`), values to drafts by the table of
keys (`mapping`), and rules between keys (`rules`). Only when nothing was found is the job made,
so a `Job` is valid by construction. No user code is imported: names are checked for their syntax,
and resolved by the worker that runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import PurePath
from typing import Any

from onyx.model.canonical import job_hash, to_mapping
from onyx.model.declaration import Declaration
from onyx.model.job import Job
from onyx.model.keys.section import Draft
from onyx.model.manifest import DECLARATION
from onyx.model.names import as_job_name
from onyx.model.parsing.drafts import draft_of
from onyx.model.parsing.mapping import draft_of_manifest, draft_of_object, job_of, parse_mapping
from onyx.model.parsing.text_drafts import draft_of_text

_SUFFIXES = (".yaml", ".yml", ".json")
"""Ends of file names that are names of jobs."""

__all__ = [
    "job_hash",
    "parse_declared",
    "parse_file",
    "parse_manifest",
    "parse_mapping",
    "to_mapping",
]


def parse_manifest(text: str | bytes, source: str = "manifest", name: str = "") -> Job:
    """The job in the text of a manifest, YAML or JSON; see `parse_file`."""
    return parse_file(text, source, name=name)[0]


def parse_file(
    text: str | bytes,
    source: str,
    upgrades: str | None = None,
    engine: str | None = None,
    name: str = "",
) -> tuple[Job, Declaration]:
    """The job in the text of a manifest, YAML or JSON, and how Kubernetes is to run it.

    Args:
        text: the whole file, at most 1 MiB.
        source: what to call it in messages, usually its path.
        upgrades: id of the old job that it upgrades; the manifest may name the same one.
        engine: what is to run it, whatever the manifest says.
        name: of a job that has none; by default that of the file, if `source` is one.

    Raises:
        ManifestError: with every problem, each with its path, file and line.
    """
    if not name and source.endswith(_SUFFIXES):
        name = as_job_name(PurePath(source).stem)
    read = partial(draft_of_manifest, upgrades=upgrades, engine=engine, default_name=name)
    draft = draft_of_text(text, source, read)
    return job_of(draft), _declaration(draft)


def parse_declared(mapping: Mapping[str, Any]) -> tuple[Declaration, Job | None]:
    """An OnyxJob: how it is to be run, and its job, or None where it refers to one by `jobRef`.

    Raises:
        ManifestError: with every problem, each with its path.
    """
    draft = draft_of(mapping, partial(draft_of_object, by_reference=True))
    declaration = _declaration(draft)
    return declaration, job_of(draft) if declaration.job_ref is None else None


def _declaration(draft: Draft) -> Declaration:
    declaration = DECLARATION.build(draft["spec"])
    assert isinstance(declaration, Declaration)
    return declaration
