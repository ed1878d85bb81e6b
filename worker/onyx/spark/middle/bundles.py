"""What lies in the folder of a stage in the middle of a job: parts, bundles of them, results.

    <path>/<job>.<task>/parts/       Parquet parts that the peers of the task have published; the
                                     name of a part begins with the upstream task
    <path>/<job>.<task>/bundles/     a file for each bundle, 1, 2, ...: which parts it has, and
                                     whether it is the last one
    <path>/<job>.<task>/results/     a folder for each bundle: what the stage made of it, until all
                                     its rows are complete

Each bundle and each result appears in one step, and the first one that does is final: whoever makes
another one under the same number finds it there and takes it. So it does not matter that two
workers make the same bundle, or run the stage over it, as one may that was declared dead. Bundles
are made in order, and none after the last. A part is in one bundle, and is removed when the result
of that stands.

Rejected: a list of bundles in the log. Its entries are read by every worker, and a bundle a second
is much for it, while the folder must be shared anyway.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow.parquet as pq

from onyx.errors import UserError, UserFunctionError
from onyx.plugins.parts.directory import DirectoryParts
from onyx.plugins.protocol import PluginContext
from onyx.spark.child.request import StageRequest
from onyx.storage.durable import make_durable_directory, sync_directory
from onyx.structs import prepared

T = TypeVar("T")
SUFFIX = ".parquet"
MANIFEST = "_onyx.json"
POLL_S = 0.2
"""How soon parts, and results of others, are noticed."""
_DIGITS = 8


@prepared
class Bundle(msgspec.Struct, frozen=True):
    """Which parts the stage gets at once."""

    number: int
    parts: tuple[str, ...] = ()
    """Names, sorted."""
    last: bool = False
    """No other follows."""


@prepared
class Result(msgspec.Struct, frozen=True):
    """What the stage has made of a bundle."""

    files: tuple[tuple[str, int], ...]
    """Names of Parquet files in the folder of the result, sorted, each with its rows."""
    last: bool = False
    """It is that of the last bundle."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is in no bundle yet."""

    number: int
    """The number of the next bundle; of the last one if no other follows."""
    parts: tuple[str, ...]
    ended: bool = False
    """The last bundle stands."""


class BundleFolder:
    """The bundle folder of one task of one job (`places.Bundles`). Any method may raise OSError."""

    poll_s = POLL_S

    def __init__(self, path: Path) -> None:
        """`path`: of this task alone."""
        self.path = self.where = path
        self.parts = path / "parts"
        self._seen: dict[int, Bundle] = {}
        self._kept = 1
        """Results before that have no rows any more."""

    def store(self, context: PluginContext) -> DirectoryParts:
        """Where a peer writes parts."""
        return DirectoryParts(self.parts, context)

    # --- bundles ----------------------------------------------------------------------------------

    def bundle(self, number: int) -> Bundle | None:
        """A bundle; None while it is not made. Raises UserError if it is damaged."""
        found = self._seen.get(number)
        if found is None and (data := _read(self._bundle(number))) is not None:
            found = self._seen[number] = decoded(data, Bundle, self._bundle(number))
        return found

    def waiting(self, first: int = 1) -> Waiting:
        """What the next bundle would have. Bundles before `first` have results, and their parts are
        gone."""
        number, taken = first, set[str]()
        while (bundle := self.bundle(number)) is not None:
            if bundle.last:
                return Waiting(number, (), ended=True)
            taken.update(bundle.parts)
            number += 1
        try:
            names = os.listdir(self.parts)
        except FileNotFoundError:
            names = []
        found = sorted(each for each in names if is_part(each) and each not in taken)
        return Waiting(number, tuple(found))

    def make(self, bundle: Bundle) -> Bundle:
        """Make a bundle, unless there is one of this number; the one that stands then. All before
        it stand, and none of them is the last."""
        if bundle.parts:
            sync_directory(self.parts)  # a writer may be about to do so
        place = self._bundle(bundle.number)
        make_durable_directory(place.parent)
        unfinished = place.parent / f".{uuid.uuid4().hex}"
        try:
            with unfinished.open("xb") as file:
                file.write(msgspec.json.encode(bundle))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(unfinished, place)
        finally:
            unfinished.unlink(missing_ok=True)
        sync_directory(place.parent)
        stands = self.bundle(bundle.number)
        assert stands is not None, "it was made, here or by another worker"
        return stands

    def frames(self, bundle: Bundle, upstream: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """Paths of the parts of a bundle by the task that they come from."""
        return {
            task: tuple(
                str((self.parts / name).resolve()) for name in bundle.parts if task_of(name) == task
            )
            for task in upstream
        }

    def rows_in(self, part: str) -> int:
        """Rows of a part."""
        return rows_of(self.parts / part)

    def tidy(self, bundle: Bundle) -> None:
        """Remove the parts of a bundle whose result stands, and what other runs have staged: they
        can publish nothing any more."""
        for name in bundle.parts:
            (self.parts / name).unlink(missing_ok=True)
        self._seen.pop(bundle.number, None)
        place = self.result_folder(bundle.number)
        for path in place.parent.glob(f".{place.name}-*"):
            shutil.rmtree(path, ignore_errors=True)

    # --- results ----------------------------------------------------------------------------------

    def drop_results(self, before: int) -> None:
        """Remove the rows of the results of bundles before this one, which nobody reads again.
        That they stood is still known, so that no stage runs over these bundles again."""
        while self._kept < before:
            for path in self.result_folder(self._kept).glob(f"*{SUFFIX}"):
                path.unlink(missing_ok=True)
            self._kept += 1

    def result(self, number: int) -> Result | None:
        """What the stage made of a bundle; None while that does not stand. Raises UserError if it
        is damaged."""
        data = _read(self.result_folder(number) / MANIFEST)
        if data is None:
            return None
        return decoded(data, Result, self.result_folder(number))

    def result_folder(self, number: int) -> Path:
        """Where a result lies."""
        return self.path / "results" / number_name(number)

    def staged_result(self, number: int) -> Path:
        """Where a run of the stage may make a result: a new name in a folder that is there."""
        place = self.result_folder(number)
        make_durable_directory(place.parent)
        return place.parent / f".{place.name}-{uuid.uuid4().hex[:12]}"

    @contextlib.contextmanager
    def asked(self, request: StageRequest, bundle: Bundle) -> Iterator[StageRequest]:
        """The request with a place for a result of the bundle, that no other run has."""
        target = self.staged_result(bundle.number).resolve()
        yield msgspec.structs.replace(request, target=str(target))

    def take(self, asked: StageRequest, bundle: Bundle) -> None:
        """Make what a run has made the result of the bundle, unless that has one."""
        target = Path(asked.target)
        if not target.is_dir():
            raise UserFunctionError(
                f"Spark at {asked.master} has written the result to {target}, which this worker "
                "does not see: `path` must be on a volume that both share"
            )
        self.publish(target, bundle)

    def take_nothing(self, bundle: Bundle) -> None:
        """Publish a result without rows."""
        target = self.staged_result(bundle.number)
        target.mkdir()
        self.publish(target, bundle)

    def file(self, number: int, name: str) -> str:
        """The path of a file of a result."""
        return str(self.result_folder(number) / name)

    def has_file(self, number: int, name: str) -> bool:
        """Whether it is still there."""
        return (self.result_folder(number) / name).exists()

    def publish(self, staged: Path, bundle: Bundle) -> None:
        """Make a folder of Parquet files the result of a bundle, unless that has one."""
        _complete(staged, bundle)
        place = self.result_folder(bundle.number)
        try:
            staged.rename(place)  # a folder that is not empty is never replaced
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        sync_directory(place.parent)

    def _bundle(self, number: int) -> Path:
        return self.path / "bundles" / f"{number_name(number)}.json"


def task_of(part: str) -> str:
    """The upstream task from which the segments of a part come."""
    return part.partition(".")[0]


def rows_of(path: Path) -> int:
    """Rows of a Parquet file."""
    rows: int = pq.read_metadata(path).num_rows
    return rows


def is_part(name: str) -> bool:
    """Whether it is a Parquet file that is published, or of a result."""
    return name.endswith(SUFFIX) and not name.startswith((".", "_"))


def number_name(number: int) -> str:
    """How a bundle is called, in the order of their numbers."""
    return f"{number:0{_DIGITS}d}"


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def decoded(data: bytes, kind: type[T], path: object) -> T:
    """What is in a bundle, or says what a result is. Raises UserError: it is damaged."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is damaged: {error}") from error


def _complete(staged: Path, bundle: Bundle) -> None:
    """Write beside the files what they are, and make all durable."""
    names = sorted(path.name for path in staged.iterdir())
    files = [name for name in names if is_part(name)]
    for name in names:
        if name not in files:
            (staged / name).unlink()  # checksums and marks of Hadoop, which no other reader knows
    counted = tuple((name, rows_of(staged / name)) for name in files)
    (staged / MANIFEST).write_bytes(msgspec.json.encode(Result(counted, bundle.last)))
    for path in staged.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_directory(staged)
