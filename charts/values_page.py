"""The page of the chart's values, from the comments in `values.yaml`.

A comment that begins with `# --` describes the key below it, as helm-docs has it. That program is
written in Go; the part of it that we use is a table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

_HEAD = """\
# The chart's values

Generated from `values.yaml` by `python -m charts.generate`. How to install:
[docs/operations/install.md](../../docs/operations/install.md).

"""
_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z0-9]+):")
_DOC = re.compile(r"^ *# (-- )?(?P<text>.*)$")
DEFAULT_CHARACTERS_MAX = 60


def page(text: str) -> str:
    """The whole page."""
    values = yaml.safe_load(text)
    sections: dict[str, list[str]] = {}
    for path, doc in documented(text).items():
        section = path.partition(".")[0] if "." in path else ""
        row = f"| `{path}` | {_default(values, path)} | {doc} |"
        sections.setdefault(section, []).append(row)
    return _HEAD + "\n".join(
        line for section, rows in sections.items() for line in (*_heading(section, text), *rows, "")
    )


def documented(text: str) -> dict[str, str]:
    """What the comment above each key says, by the path of the key, in their order."""
    return {path: doc for path, doc in _keys(text) if doc is not None}


def _keys(text: str) -> Iterator[tuple[str, str | None]]:
    """Every key that stands in the text with its path, and its description if it has one."""
    parents: list[str] = []
    doc: list[str] | None = None
    for line in text.splitlines():
        if found := _KEY.match(line):
            depth = len(found["indent"]) // 2
            parents = [*parents[:depth], found["key"]]
            yield ".".join(parents), None if doc is None else " ".join(doc)
            doc = None
        elif comment := _DOC.match(line):
            if comment[1]:
                doc = [comment["text"]]
            elif doc is not None:
                doc.append(comment["text"])
        else:
            doc = None


def _heading(section: str, text: str) -> list[str]:
    about = _about(section, text) if section else ""
    return [
        f"## {section or 'General'}",
        "",
        *([about, ""] if about else []),
        "| value | default | |",
        "|---|---|---|",
    ]


def _about(section: str, text: str) -> str:
    """The plain comment above a section."""
    found = re.search(rf"((?:^# .*\n)+){section}:", text, re.MULTILINE)
    return " ".join(line[2:] for line in found[1].splitlines()) if found else ""


def _default(values: Any, path: str) -> str:
    for key in path.split("."):
        values = values[key]
    shown = json.dumps(values)
    return "see there" if len(shown) > DEFAULT_CHARACTERS_MAX else f"`{shown}`"
