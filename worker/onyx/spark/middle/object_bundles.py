"""What lies in an object store of a stage in the middle of a job: as in a folder (`bundles`).

    <url>/<job>.<task>/parts/                    Parquet parts that the peers have published
    <url>/<job>.<task>/bundles/<number>.json     which parts a bundle has
    <url>/<job>.<task>/results/<number>/         what executors have written for a bundle, by
                                                 several runs perhaps; `_onyx.json` names the files
                                                 of the one that is the result

Bundles and results are created on the condition that there are none, so the first is final. Parts
are uploads with a fence, like those of any output. Files of results need none: their names are
random, and no other run can take their place.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onyx.errors import UserError
from onyx.plugins.options import task_error
from onyx.plugins.parts.objects import ObjectParts
from onyx.plugins.protocol import PluginContext
from onyx.spark.child.request import StageRequest
from onyx.spark.middle.bundles import (
    MANIFEST,
    SUFFIX,
    Bundle,
    Result,
    Waiting,
    decoded,
    is_part,
    number_name,
    task_of,
)
from onyx.spark.objects.fetch import opened_parquet
from onyx.spark.objects.staged import ObjectTarget, read_list
from onyx.spark.session.scratch import spark_scratch
from onyx.storage.objects.bucket import Bucket, only_if
from onyx.storage.objects.connection import ConditionFailed, ObjectMissing
from onyx.storage.objects.urls import ObjectUrl

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class _Absent:
    """A result that was not there."""

    number: int
    at_s: float


class ObjectBundles:
    """The bundles of one task of one job, in an object store. Any method may raise UserError,
    Unavailable."""

    poll_s = POLL_S

    def __init__(self, url: ObjectUrl, context: PluginContext) -> None:
        """`url`: of this task alone."""
        self.where = url
        self._context = context
        self._seen: dict[int, Bundle] = {}
        self._absent: _Absent | None = None
        """Many readers wait for the same result."""
        self._kept = 1

    def store(self, context: PluginContext) -> ObjectParts:
        """Where a peer writes parts."""
        return ObjectParts(self.where / "parts", context)

    def bundle(self, number: int) -> Bundle | None:
        """A bundle; None while it is not made."""
        place = self.where / "bundles" / f"{number_name(number)}.json"
        found = self._seen.get(number)
        if found is None and (data := self._get(place)) is not None:
            found = self._seen[number] = decoded(data, Bundle, place)
        return found

    def waiting(self, first: int = 1) -> Waiting:
        """What the next bundle would have."""
        number, taken = first, set[str]()
        while (bundle := self.bundle(number)) is not None:
            if bundle.last:
                return Waiting(number, (), ended=True)
            taken.update(bundle.parts)
            number += 1
        found = (each for each in self._names(self.where / "parts") if is_part(each))
        return Waiting(number, tuple(sorted(each for each in found if each not in taken)))

    def make(self, bundle: Bundle) -> Bundle:
        """Make a bundle, unless there is one of this number; the one that stands then."""
        place = self.where / "bundles" / f"{number_name(bundle.number)}.json"
        self._create(place, msgspec.json.encode(bundle))
        stands = self.bundle(bundle.number)
        assert stands is not None, "it was made, here or by another worker"
        return stands

    def frames(self, bundle: Bundle, upstream: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """Paths or URLs of the parts of a bundle by the task that they come from."""
        folder = self.where / "parts"
        return {
            task: tuple(str(folder / name) for name in bundle.parts if task_of(name) == task)
            for task in upstream
        }

    def rows_in(self, part: str) -> int:
        """Rows of a part."""
        with self._explained(), opened_parquet(self.where / "parts" / part) as file:
            rows: int = file.metadata.num_rows
            return rows

    def tidy(self, bundle: Bundle) -> None:
        """Remove the parts of a bundle whose result stands, and what other runs have left: they can
        publish nothing any more."""
        self._delete(self.where / "parts" / name for name in bundle.parts)
        self._seen.pop(bundle.number, None)
        result, place = self.result(bundle.number), self._result(bundle.number)
        kept = {name for name, _ in result.files} if result else set()
        self._delete(
            place / name
            for name in self._names(place)
            if name.endswith(SUFFIX) and name not in kept
        )

    @contextlib.contextmanager
    def asked(self, request: StageRequest, bundle: Bundle) -> Iterator[StageRequest]:
        """The request with a place for a result of the bundle, that no other run has."""
        target = ObjectTarget(str(self._result(bundle.number)), f"part-{uuid.uuid4().hex[:12]}")
        with spark_scratch() as scratch:
            names = str(scratch / "written.json")
            yield msgspec.structs.replace(request, target=names, objects=target)

    def take(self, asked: StageRequest, bundle: Bundle) -> None:
        """Make what a run has made the result of the bundle, unless that has one."""
        written = read_list(Path(asked.target))
        files = tuple((each.name, each.rows) for each in written)
        stands = self._decide(bundle.number, Result(files, bundle.last))
        if stands.files != files:
            self._delete(self._result(bundle.number) / name for name, _ in files)

    def take_nothing(self, bundle: Bundle) -> None:
        """Publish a result without rows."""
        self._decide(bundle.number, Result((), bundle.last))

    def result(self, number: int) -> Result | None:
        """What the stage made of a bundle; None while that does not stand."""
        now_s, absent = self._context.clock.monotonic_s(), self._absent
        if absent is not None and absent.number == number and now_s < absent.at_s + POLL_S:
            return None
        place = self._result(number) / MANIFEST
        data = self._get(place)
        if data is None:
            self._absent = _Absent(number, now_s)
            return None
        return decoded(data, Result, place)

    def file(self, number: int, name: str) -> str:
        """The path or URL of a file of a result."""
        return str(self._result(number) / name)

    def has_file(self, number: int, name: str) -> bool:
        """Whether it is still there."""
        with self._explained():
            return self._bucket.look((self._result(number) / name).key) is not None

    def drop_results(self, before: int) -> None:
        """Remove the rows of the results of bundles before this one, which nobody reads again."""
        while self._kept < before:
            place = self._result(self._kept)
            self._delete(place / each for each in self._names(place) if each.endswith(SUFFIX))
            self._kept += 1

    @property
    def _bucket(self) -> Bucket:
        return Bucket(self.where.bucket)

    def _result(self, number: int) -> ObjectUrl:
        return self.where / "results" / number_name(number)

    def _decide(self, number: int, mine: Result) -> Result:
        """The result that stands."""
        self._create(self._result(number) / MANIFEST, msgspec.json.encode(mine))
        self._absent = None
        stands = self.result(number)
        assert stands is not None, "it was made, here or by another worker"
        return stands

    def _create(self, place: ObjectUrl, data: bytes) -> None:
        """Unless there is one, which may be ours: the answer to an earlier try may be lost."""
        with self._explained(), contextlib.suppress(ConditionFailed, ObjectMissing):
            self._bucket.put(place.key, data, only_if(None))

    def _get(self, place: ObjectUrl) -> bytes | None:
        with self._explained():
            found = self._bucket.get(place.key)
        return None if found is None else found.data

    def _names(self, place: ObjectUrl) -> list[str]:
        """The names of the objects in a folder, and not of those in folders of it."""
        prefix = f"{place.key}/"
        with self._explained():
            names = [found.key.removeprefix(prefix) for found in self._bucket.list(prefix)]
        return [name for name in names if "/" not in name]

    def _delete(self, urls: Iterable[ObjectUrl]) -> None:
        with self._explained():
            for url in urls:
                self._bucket.delete(url.key)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            raise task_error(self._context, f"option 'path': {error}") from error
