"""The parts that a stage reads, wherever they are."""

from __future__ import annotations

import msgspec

from onyx.ids import JobId
from onyx.plugins.parts.stores import published
from onyx.spark.child.request import StageRequest
from onyx.spark.result_names import SUFFIX
from onyx.spark.stage import versions
from onyx.spark.stage.frames import folder_of
from onyx.storage.interface import Location


def with_parts(request: StageRequest, location: Location, job: JobId) -> StageRequest:
    """The request, each of its frames with its parts."""
    frames = tuple(
        msgspec.structs.replace(frame, parts=_parts(location, frame.name, job))
        for frame in request.frames
    )
    return msgspec.structs.replace(request, frames=frames)


def _parts(location: Location, frame: str | None, job: JobId) -> tuple[str, ...]:
    """The parts of a frame, those of earlier versions of the job first."""
    notes = versions.Notes(folder_of(location, frame))
    folders = [notes.where(each) for each in versions.whose(notes, job)]
    return tuple(each.path_of(name) for each in folders for name in published(each, SUFFIX))
