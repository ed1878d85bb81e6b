"""The snapshot of a DataFrame in an object store, which executors write.

    <url>/<job>.<task>/     Parquet objects, and `_onyx.json`, which names those of the snapshot

`_onyx.json` is written on the condition that there is none, so the first snapshot is final
(`snapshot`). Objects that it does not name are of an attempt that came second, and of tasks that
Spark has repeated. A job that upgrades another one names the objects of that.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from onyx.errors import UserError
from onyx.plugins.options import task_error
from onyx.plugins.parts.directory import staging_name
from onyx.plugins.protocol import PluginContext, UpgradedJob
from onyx.spark.input.snapshot import MANIFEST
from onyx.spark.objects.staged import ObjectTarget, read_list
from onyx.spark.session.scratch import spark_scratch
from onyx.storage.objects.bucket import Bucket, only_if
from onyx.storage.objects.connection import ConditionFailed, ObjectMissing
from onyx.storage.objects.urls import ObjectUrl
from onyx.structs import prepared


@prepared
class Listed(msgspec.Struct, frozen=True):
    """What is in `_onyx.json`."""

    snapshot: str
    """Name of the folder with the objects: its own, or that of the job that was upgraded."""
    files: tuple[str, ...]
    """Their names, sorted."""


class Evaluate(Protocol):
    """Has executors write the DataFrame. Raises what `child.request.StageRunner` does."""

    def __call__(
        self, target: Path, wanted: Callable[[], bool], objects: ObjectTarget | None = None
    ) -> None:
        """`target`: a file for the names of what was written to `objects`."""
        ...


@dataclass(slots=True)
class ObjectSnapshot:
    """The snapshot of one input task of one job. Any method may raise UserError, Unavailable."""

    path: ObjectUrl
    context: PluginContext

    @property
    def folder(self) -> ObjectUrl | None:
        """Where the objects are; None before there is a snapshot."""
        found = self._read(staging_name(self.context))
        return None if found is None else self.path / found.snapshot

    def files(self, evaluate: Evaluate) -> list[str]:
        """Names of the files, sorted; evaluates the DataFrame unless there is a snapshot."""
        name = staging_name(self.context)
        found = self._read(name)
        if found is None:
            found = self._create(name, self._made(name, evaluate))
        return list(found.files)

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Go on in the snapshot of the job that this one upgrades, if that has begun."""
        name = staging_name(self.context)
        upgraded = old() if self._read(name) is None else None
        if upgraded is None:
            return
        before = staging_name(replace(self.context, job=upgraded.job))
        found = self._read(before)
        if found is None and upgraded.began:
            raise UserError(
                f"{self.context.where}: the snapshot {self.path / before} of job {upgraded.job} is "
                "gone, which this job goes on reading: put it back, or say `initialize` for this "
                "task in `upgrade.tasks` to read a new one"
            )
        if found is not None:
            self._create(name, found)

    def _made(self, name: str, evaluate: Evaluate) -> Listed:
        target = ObjectTarget(str(self.path / name), f"part-{uuid.uuid4().hex[:12]}")
        with spark_scratch() as scratch:
            names = scratch / "written.json"
            evaluate(names, self.context.wanted, target)
            return Listed(name, tuple(each.name for each in read_list(names)))

    def _create(self, name: str, mine: Listed) -> Listed:
        """What stands: ours, or the one that came first."""
        place = self.path / name
        with self._explained():
            bucket = Bucket(place.bucket)
            with contextlib.suppress(ConditionFailed, ObjectMissing):
                bucket.put((place / MANIFEST).key, msgspec.json.encode(mine), only_if(None))
            stands = self._read(name)
            assert stands is not None, "it was made, here or by another worker"
            if stands.snapshot == mine.snapshot and stands.files != mine.files:
                for each in mine.files:
                    bucket.delete((self.path / mine.snapshot / each).key)
        return stands

    def _read(self, name: str) -> Listed | None:
        place = self.path / name / MANIFEST
        with self._explained():
            found = Bucket(place.bucket).get(place.key)
        try:
            return None if found is None else msgspec.json.decode(found.data, type=Listed)
        except msgspec.DecodeError as error:
            raise UserError(f"{place} is damaged: {error}") from error

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            raise task_error(self.context, f"option 'path': {error}") from error
