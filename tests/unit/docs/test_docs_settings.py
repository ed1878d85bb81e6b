"""The table of settings in the guide to operations says what `onyx.settings` says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import onyx.settings
from onyx.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "operations.md"


def field_docs() -> dict[tuple[str, str], str]:
    """The docstring below each field, by class and field."""
    docs = {}
    for node in ast.parse(Path(onyx.settings.__file__).read_text()).body:
        if isinstance(node, ast.ClassDef):
            for field, doc in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
                    assert isinstance(field.target, ast.Name)
                    assert isinstance(doc.value, ast.Constant)
                    docs[node.name, field.target.id] = " ".join(str(doc.value.value).split())
    return docs


DOCS = field_docs()


def rows(value: Any, prefix: str) -> Iterator[str]:
    for each in fields(value):
        default, variable = getattr(value, each.name), f"{prefix}_{each.name.upper()}"
        if is_dataclass(default):
            yield from rows(default, variable)
        else:
            doc = DOCS[type(value).__name__, each.name]
            yield f"| `{variable}` | {shown(default)} | {doc} |"


def shown(default: Any) -> str:
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default not in ((), "", None) else ""


def test_the_page_has_every_setting_with_its_default_and_nothing_else() -> None:
    expected = list(rows(Settings(), "ONYX"))
    actual = [line for line in PAGE.read_text().splitlines() if line.startswith("| `ONYX_")]

    assert actual == expected, "write these lines:\n" + "\n".join(expected)
