"""The reference pages of the information model: one page a section."""

from __future__ import annotations

from typing import Any

from onyx.model.information import API_VERSION, KIND, SECTIONS
from onyx.model.information_declaration import DECLARATION, FAILURE_POLICY, JOB_REF
from onyx.model.information_upgrade import RESUME_POINT
from onyx.model.keys.section import Entries, Entry, Key, Section, told_default

_PAGES = {
    "spec": "job",
    "catalog": "catalog",
    "flowConditions": "flow-conditions",
    "lifecycles": "lifecycles",
    "windows": "windows",
    "triggers": "triggers",
}
_HEAD = "Generated from `worker/onyx/model/information.py` by `python -m onyx.model.generate`."
_JOB = f"""
A job is a file with `apiVersion: {API_VERSION}`, `kind: {KIND}`, the job's name under
`metadata.name` (lower case letters, digits and `-`), and under `spec` the keys of this page. On
Kubernetes the keys of its [declaration](declaration.md) say how it is to be run.
"""
_ORIGIN = """
`Onyx` names the key of the original that a key answers to, and the versions that have it.
"""


def pages() -> dict[str, str]:
    """The text of every page by its file name."""
    return {f"{_PAGES[name]}.md": _page(name, section) for name, section in SECTIONS.items()} | {
        "declaration.md": _nested_page(
            f"{DECLARATION.doc} They stand under `spec` too.", DECLARATION, FAILURE_POLICY, JOB_REF
        ),
        "resume-point.md": _nested_page(
            f"{RESUME_POINT.doc} It stands under `spec.resumePoint`; see [upgrading a job]"
            "(../guide/upgrading.md).",
            RESUME_POINT,
        ),
    }


def _page(name: str, section: Section) -> str:
    where = "" if name == "spec" else f" Entries of `spec.{name}`."
    parts = [f"# {_title(section)}\n\n{_HEAD}\n\n{section.doc}{where}\n"]
    if name == "spec":
        parts.append(_JOB)
    parts.append("\n| key | value | required | default |\n|---|---|---|---|\n")
    parts.extend(_row(key) for key in section.keys)
    parts.append(_ORIGIN)
    parts.extend(_entry(key) for key in section.keys)
    return "".join(parts)


def _nested_page(doc: str, *sections: Section) -> str:
    """A section, and those within it, each as a table."""
    parts = [f"# {_title(sections[0])}\n\n{_HEAD}\n\n{doc}\n"]
    for section in sections:
        if section is not sections[0]:
            parts.append(f"\n## {section.name}\n\n{section.doc}\n")
        parts.append("\n| key | value | default | meaning |\n|---|---|---|---|\n")
        parts.extend(_nested_row(key) for key in section.keys)
    return "".join(parts)


def _title(section: Section) -> str:
    return section.name[0].upper() + section.name[1:]


def _nested_row(key: Key) -> str:
    value = key.kind.section.name if isinstance(key.kind, Entry) else key.kind.told()
    default = "required" if key.required else shown_default(key.default)
    return f"| `{key.yaml}` | {value} | {default} | {f'{key.doc} {key.restriction}'.strip()} |\n"


def _row(key: Key) -> str:
    link = f"[`{key.yaml}`](#{key.yaml.lower()})"
    return f"| {link} | {_value(key)} | {_required(key)} | {shown_default(key.default)} |\n"


def _value(key: Key) -> str:
    if isinstance(key.kind, Entries):
        return f"a list: [{key.kind.section.name}]({_PAGES[key.yaml]}.md)"
    if isinstance(key.kind, Entry):
        return f"a mapping: [{key.kind.section.name}]({key.kind.section.name.replace(' ', '-')}.md)"
    return key.kind.told()


def _required(key: Key) -> str:
    if key.required:
        return "yes"
    return f"for type {', '.join(key.required_for)}" if key.required_for else ""


def shown_default(default: Any) -> str:
    """A default as the pages show it."""
    told = told_default(default)
    return f"`{told}`" if told else ""


def _entry(key: Key) -> str:
    lines = [f"\n## {key.yaml}\n\n{key.doc}\n"]
    if key.allowed_for:
        lines.append(f"\nOnly for type {', '.join(key.allowed_for)}.\n")
    if key.restriction:
        lines.append(f"\n{key.restriction}\n")
    if key.origin:
        era = "" if key.era == "both" else f" ({key.era})"
        lines.append(f"\nOnyx: `{key.origin}`{era}\n")
    return "".join(lines)
