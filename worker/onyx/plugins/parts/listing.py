"""The published parts in a folder or a bucket.

Staged parts lie in folders below and have other names, so a listing never has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from onyx.errors import UserError
from onyx.plugins.parts.names import PART
from onyx.plugins.parts.offsets import Part
from onyx.storage.opening import location_of

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")


class NotThere(UserError):
    """A folder does not exist, where this process runs."""


def parts_in(folder: str, wanted: Callable[[str], bool], name: str) -> Iterator[Part]:
    """The parts of a folder, in no order.

    Args:
        folder: absolute, or a URL.
        wanted: whether the parts of a task and a job are (`names.whose`).
        name: of the output, for messages.

    Raises:
        NotThere: the folder does not exist here.
        UserError: it cannot be listed.
        Unavailable: the object store does not answer.
    """
    for file, path, size_bytes in files_in(folder, name):
        found = PART.fullmatch(file)
        if found and found["suffix"] in SUFFIXES and wanted(found["whose"]):
            yield _part(found, path, size_bytes)


def part_of(folder: str, file: str) -> Part:
    """The part of a name in a folder, whether it is there or not."""
    found = PART.fullmatch(file)
    assert found, file
    return _part(found, f"{location_of(folder)}/{file}", 0)


def _part(found: re.Match[str], path: str, size_bytes: int) -> Part:
    return Part(path, found["writer"], int(found["number"]), size_bytes)


def files_in(folder: str, name: str) -> Iterator[tuple[str, str, int]]:
    """Name, path and size of what is in a folder; folders have a slash at the end. Raises like
    `parts_in`."""
    at = location_of(folder)
    entries = at.entries()
    if entries is None:
        raise NotThere(
            f"{name}: {folder} is not there: nothing has been written yet, or this machine "
            "does not see the volume of the workers"
        )
    for each in entries:
        file = f"{each.name}/" if each.is_folder else each.name
        yield file, f"{at}/{each.name}", each.size_bytes
