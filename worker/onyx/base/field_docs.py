"""Docstrings below the fields of a class: one text that says what a field means.

Python keeps no docstring of a field, so that it is read from the source of the class, and only
where pages and schemas are generated: a process that runs jobs never does. Keys of manifests,
settings and options of plugins are all described like this. Rejected: descriptions as arguments
(`Meta(description=...)`), which editors do not show at a use of the field.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache


def field_docs(cls: type) -> Mapping[str, str]:
    """The docstring of each field of a class and of its bases, each as one line, by field."""
    docs: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each.__module__ in sys.modules and each is not object:
            docs |= _docs_of_module(each.__module__).get(each.__qualname__, {})
    return docs


@cache
def _docs_of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError):  # a module without source, such as an interpreter's own
        return {}
    return {node.name: _docs_of_class(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _docs_of_class(node: ast.ClassDef) -> dict[str, str]:
    docs = {}
    for field, doc in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(doc, ast.Expr)
            and isinstance(doc.value, ast.Constant)
            and isinstance(doc.value.value, str)
        ):
            docs[field.target.id] = " ".join(doc.value.value.split())
    return docs
