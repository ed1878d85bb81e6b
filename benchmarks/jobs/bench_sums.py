"""The user's functions of workloads b and c: splitting lines, what windows emit, and files of which
nobody knows whether more will come.
"""

from __future__ import annotations

from typing import Any

from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import InputOptions
from onyx.plugins.options import read_options


def growing_files(context: Any) -> FilesInput:
    return FilesInput(context, read_options(context, InputOptions))


def split(segment: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"word": word} for word in segment["line"].split()]


def emit_group(
    event: Any, window: Any, trigger: Any, state_event: dict[str, Any], state: Any
) -> dict[str, Any]:
    """The state of a group whose window has no bounds."""
    return {"key": state_event["group_key"], "lower": 0, "value": state}


def emit_extent(
    event: Any, window: Any, trigger: Any, state_event: dict[str, Any], state: Any
) -> dict[str, Any]:
    return {
        "key": state_event["group_key"],
        "lower": state_event["lower_bound"],
        "value": state,
    }
