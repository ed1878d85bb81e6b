"""The tables of settings say what the settings' classes say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import onyx.settings
import onyx_operator.settings
from onyx.settings import Settings
from onyx_operator.settings import OperatorSettings

DOCS_FOLDER = Path(__file__).parents[3] / "docs"


def field_docs(file: str) -> dict[tuple[str, str], str]:
    """The docstring below each field, by class and field."""
    docs = {}
    for node in ast.parse(Path(file).read_text()).body:
        if isinstance(node, ast.ClassDef):
            for field, doc in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
                    assert isinstance(field.target, ast.Name)
                    assert isinstance(doc.value, ast.Constant)
                    docs[node.name, field.target.id] = " ".join(str(doc.value.value).split())
    return docs


DOCS = field_docs(onyx.settings.__file__) | field_docs(onyx_operator.settings.__file__)


def rows(value: Any, prefix: str) -> Iterator[str]:
    for each in fields(value):
        default, variable = getattr(value, each.name), f"{prefix}_{each.name.upper()}"
        if isinstance(default, Settings):
            continue  # the engine's own variables
        if is_dataclass(default):
            yield from rows(default, variable)
        else:
            kinds = (kind.__name__ for kind in type(value).__mro__)
            doc = next(DOCS[kind, each.name] for kind in kinds if (kind, each.name) in DOCS)
            yield f"| `{variable}` | {shown(default)} | {doc} |"


def shown(default: Any) -> str:
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default not in ((), "", None) else ""


@pytest.mark.parametrize(
    ("page", "settings", "prefix"),
    [
        ("guide/operations.md", Settings(), "ONYX"),
        ("operations/operator.md", OperatorSettings(), "ONYX_OPERATOR"),
    ],
)
def test_the_page_has_every_setting_with_its_default_and_nothing_else(
    page: str, settings: Any, prefix: str
) -> None:
    expected = list(rows(settings, prefix))
    lines = (DOCS_FOLDER / page).read_text().splitlines()
    actual = [line for line in lines if line.startswith("| `ONYX_")]

    assert actual == expected, "write these lines:\n" + "\n".join(expected)
