"""The reference page of OnyxCluster: one page, with a part for each section of the table."""

from __future__ import annotations

from collections.abc import Iterator

from onyx.model.information import API_VERSION
from onyx.model.information_cluster import CLUSTER, KIND
from onyx.model.keys.section import Entries, Entry, Key, Section
from onyx.model.reference.job import shown_default

FILE = "cluster.md"
_HEAD = f"""# Cluster

Generated from `worker/onyx/model/information_cluster.py` by `python -m onyx.model.generate`.

A cluster is a pool of workers that run jobs, kept by the operator. It is an object with
`apiVersion: {API_VERSION}`, `kind: {KIND}`, a name (lower case letters, digits and
`-`, at most 45, first a letter), and under `spec` the keys of this page.
[How to use it](../operations/clusters.md)
"""


def page() -> str:
    """The text of the whole page."""
    parts = [_HEAD, *_section("spec", CLUSTER)]
    for path, section in _sections("spec", CLUSTER):
        parts += _section(path, section)
    return "".join(parts)


def _sections(path: str, section: Section) -> Iterator[tuple[str, Section]]:
    for key in section.keys:
        if isinstance(key.kind, Entry | Entries):
            item = "[]" if isinstance(key.kind, Entries) else ""
            inner = f"{path}.{key.yaml}{item}"
            yield inner, key.kind.section
            yield from _sections(inner, key.kind.section)


def _section(path: str, section: Section) -> list[str]:
    head = (
        f"\n## {path}\n\n{section.doc}\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
    )
    return [head, *(_row(path, key) for key in section.keys)]


def _row(path: str, key: Key) -> str:
    meaning = f"{key.doc} {key.restriction}".strip()
    default = "required" if key.required else shown_default(key.default)
    return f"| `{key.yaml}` | {_value(path, key)} | {default} | {meaning} |\n"


def _value(path: str, key: Key) -> str:
    if not isinstance(key.kind, Entry | Entries):
        return key.kind.told()
    listed = isinstance(key.kind, Entries)
    anchor = f"{path}{key.yaml}".replace(".", "").replace("[]", "").lower()
    name = f"[{key.kind.section.name}](#{anchor})"
    return f"a list: {name}" if listed else name
