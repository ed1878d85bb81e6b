"""The user's functions of workloads b and c: splitting lines, and files of which nobody knows
whether more will come.
"""

from __future__ import annotations

from typing import Any

from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.options import read_options


def growing_files(context: Any) -> FilesInput:
    return FilesInput(context, read_options(context, FilesInputOptions))


def split(segment: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"word": word} for word in segment["line"].split()]
