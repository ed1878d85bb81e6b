"""Kinds of what a task says of its states by key: their names and types."""

from __future__ import annotations

from typing import Any

from onyx.model import state_types
from onyx.model.keys.kinds import KeyKind, Schema, refuse
from onyx.model.report import INVALID, Report, listed, nearest, show


class StateName(KeyKind, frozen=True):
    """The name of a state, which functions have as an attribute."""

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, str) or not state_types.is_state_name(value):
            hint = "letters, digits and _, as a name in Python; the first is a letter"
            return refuse(self, value, path, report, hint)
        if value in state_types.RESERVED:
            report.add(path, f"{show(value)} is what functions find beside their states", "rename")
            return INVALID
        return value

    def _schema(self) -> Schema:
        return {"type": "string", "maxLength": state_types.NAME_CHARACTERS_MAX}

    def _describe(self) -> str:
        return "the name of a state"


class StateTypeName(KeyKind, frozen=True):
    """The type of a state."""

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, str):
            return refuse(self, value, path, report)
        try:
            state_types.parse_state_type(value)
        except ValueError as error:
            hint = nearest(value, state_types.SHAPES) or f"write {self.describe()}"
            report.add(path, f"is {show(value)}, which {error}", hint)
            return INVALID
        return value

    def _schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": state_types.TYPE_CHARACTERS_MAX}

    def _describe(self) -> str:
        return (
            f"{listed(state_types.SHAPES)}, with types in brackets as in value[int], "
            "map[str, list[float]] or list[struct[page: str, seconds: float]]"
        )
