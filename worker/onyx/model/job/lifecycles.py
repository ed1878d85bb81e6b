"""Lifecycles of a job: functions that are called around the work of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import field

from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Function, PartName


class Lifecycle(msgspec.Struct, frozen=True):
    """Functions that are called around the work of a task."""

    task: Annotated[str, PartName("task", words=("all",)), Key(origin="lifecycle/task")]
    """Task whose work the functions are called around, or `all`."""
    calls: Annotated[str, Function(), Key(origin="lifecycle/calls")]
    """Function that returns a mapping from the names of hooks to functions."""
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Values for these functions, by keys of your own."""
    doc: Annotated[str, Key(origin="lifecycle/doc")] = ""
    """Free text."""
