"""What lies in the folder of a stage in the middle of a job: parts, bundles of them, results.

    <path>/<job>.<task>/parts/              Parquet parts that the peers of the task have published;
                                            the name of a part begins with the upstream task
    <path>/<job>.<task>/types/<upstream>/   what the types of its keys are (`agreed`)
    <path>/<job>.<task>/bundles/<number>    which parts a bundle has, and whether it is the last
    <path>/<job>.<task>/results/<number>/   what runs of the stage have made of a bundle, a folder
                                            each; `_onyx.json` names the files of the result

Bundles are numbered 1, 2, and so on. Each bundle and each result is created on the condition that
there is none, so the first one that appears is final: whoever makes another one under the same
number finds it there and takes it. So it does not matter that two workers make the same bundle, or
run the stage over it, as one may that was declared dead. Bundles are made in order, and none after
the last. A part is in one bundle, and is removed when the result of that stands.

Rejected: a list of bundles in the log. Its entries are read by every worker, and a bundle a second
is much for it, while the location must be shared anyway. And a result that appears by the rename of
its folder, which no object store has.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from onyx.base.seams import Clock
from onyx.base.structs import prepared, stored
from onyx.plugins.parts.folders import parts_at
from onyx.plugins.protocol import PluginContext
from onyx.spark.result_files import MANIFEST
from onyx.spark.target import Target, is_data, rows_of, target_in
from onyx.storage.interface import Location
from onyx.storage.staging.interface import PartStore

T = TypeVar("T")
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
    """Names of Parquet files below the folder of the bundle, in the order of the rows, each with
    its rows."""
    last: bool = False
    """It is that of the last bundle."""


class WaitingParts(msgspec.Struct, frozen=True):
    """What is in no bundle yet."""

    number: int
    """The number of the next bundle; of the last one if no other follows."""
    parts: tuple[str, ...]
    ended: bool = False
    """The last bundle stands."""


class _Absent(msgspec.Struct, frozen=True):
    """A result that was not there."""

    number: int
    at_s: float


class Bundles:
    """The bundles of one task of one job. Any method may raise UserError, Unavailable."""

    def __init__(self, location: Location, clock: Clock) -> None:
        """`location`: of this task alone."""
        self.location = location
        self.poll_s = location.poll_s
        """How often to look for what others have made."""
        self._parts = location / "parts"
        self._bundles = location / "bundles"
        self._results = location / "results"
        self._clock = clock
        self._seen: dict[int, Bundle] = {}
        self._absent: _Absent | None = None
        """Many readers wait for the same result."""
        self._kept = 1
        """Results before that have no rows any more."""

    def store(self, context: PluginContext) -> PartStore:
        """Where a peer writes parts."""
        return parts_at(self._parts, context)

    # --- bundles ----------------------------------------------------------------------------------

    def bundle(self, number: int) -> Bundle | None:
        """A bundle; None while it is not made. Raises UserError if it is damaged."""
        found = self._seen.get(number)
        name = f"{number_name(number)}.json"
        if found is None and (data := self._bundles.read(name)) is not None:
            found = self._seen[number] = _decoded(data, Bundle, self._bundles, name)
        return found

    def waiting(self, first: int = 1) -> WaitingParts:
        """What the next bundle would have. Bundles before `first` have results, and their parts are
        gone."""
        number, taken = first, set[str]()
        while (bundle := self.bundle(number)) is not None:
            if bundle.last:
                return WaitingParts(number, (), ended=True)
            taken.update(bundle.parts)
            number += 1
        found = (each.name for each in self._parts.list("") if is_data(each.name))
        return WaitingParts(number, tuple(each for each in found if each not in taken))

    def make(self, bundle: Bundle) -> Bundle:
        """Make a bundle, unless there is one of this number; the one that stands then. All before
        it stand, and none of them is the last."""
        if bundle.parts:
            self._parts.sync()  # a writer may be about to do so
        self._bundles.create(f"{number_name(bundle.number)}.json", msgspec.json.encode(bundle))
        stands = self.bundle(bundle.number)
        assert stands is not None, "it was made, here or by another worker"
        return stands

    def frames(self, bundle: Bundle, upstream: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """Paths or URLs of the parts of a bundle by the task that they come from."""
        return {
            task: tuple(self._parts.path_of(name) for name in bundle.parts if task_of(name) == task)
            for task in upstream
        }

    def rows_in(self, part: str) -> int:
        """Rows of a part."""
        return rows_of(self._parts, part)

    def tidy(self, bundle: Bundle) -> None:
        """Remove the parts of a bundle whose result stands, and what other runs have left: they can
        publish nothing any more."""
        for name in bundle.parts:
            self._parts.delete(name)
        self._seen.pop(bundle.number, None)
        result = self.result(bundle.number)
        self._remove_all_but({name for name, _ in result.files} if result else set(), bundle.number)

    # --- results ----------------------------------------------------------------------------------

    def result(self, number: int) -> Result | None:
        """What the stage made of a bundle; None while that does not stand. Raises UserError if it
        is damaged."""
        now_s, absent = self._clock.monotonic_s(), self._absent
        if absent is not None and absent.number == number and now_s < absent.at_s + self.poll_s:
            return None
        location = self._result(number)
        data = location.read(MANIFEST)
        if data is None:
            self._absent = _Absent(number, now_s)
            return None
        return _decoded(data, Result, location, MANIFEST)

    @contextlib.contextmanager
    def target(self, bundle: Bundle) -> Iterator[Target]:
        """A location for a result of the bundle, that no other run has."""
        with target_in(self._result(bundle.number), f"run-{uuid.uuid4().hex[:12]}") as target:
            yield target

    def publish(self, files: tuple[tuple[str, int], ...], bundle: Bundle) -> None:
        """Make the files of a run the result of the bundle, unless that has one."""
        mine = Result(files, bundle.last)
        self._result(bundle.number).create(MANIFEST, msgspec.json.encode(mine))
        self._absent = None

    def file(self, number: int, name: str) -> str:
        """The path or URL of a file of a result."""
        return self._result(number).path_of(name)

    def has_file(self, number: int, name: str) -> bool:
        """Whether it is still there."""
        return self._result(number).exists(name)

    def drop_results(self, before: int) -> None:
        """Remove the rows of the results of bundles before this one, which nobody reads again.
        That they stood is still known, so that no stage runs over these bundles again."""
        while self._kept < before:
            self._remove_all_but(set(), self._kept)
            self._kept += 1

    def _remove_all_but(self, kept: set[str], number: int) -> None:
        """Remove files of a result, and what is left of the runs that none of the others is of."""
        location = self._result(number)
        gone = {each.name for each in location.list("")} - kept - {MANIFEST}
        runs = set(map(_run_of, gone)) - set(map(_run_of, kept))
        for run in runs:
            location.remove_tree(run)
        for name in gone:
            if _run_of(name) not in runs:
                location.delete(name)

    def _result(self, number: int) -> Location:
        return self._results / number_name(number)


def task_of(part: str) -> str:
    """The upstream task from which the segments of a part come."""
    return part.partition(".")[0]


def number_name(number: int) -> str:
    """How a bundle is called, in the order of their numbers."""
    return f"{number:0{_DIGITS}d}"


def _run_of(name: str) -> str:
    """The folder of the run that has written a file of a result."""
    return name.partition("/")[0]


def _decoded(data: bytes, kind: type[T], location: Location, name: str) -> T:
    found: T = stored(data, kind, location.path_of(name))
    return found
