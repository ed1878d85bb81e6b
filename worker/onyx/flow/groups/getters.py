"""Reading the group key of segments, as the task that is grouped declares it.

Over columns a key is found for each different one of a batch (`codes`). A `groupByFn` takes one
segment, so columns become dicts for it; functions over a record batch were rejected, because what
they return would need rules for nulls and types that `groupByKey` already has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec.structs import replace

from onyx.errors import UserError, describe
from onyx.flow.batch import Segment
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.flow.groups.codes import KeyCodes, KeyList
from onyx.flow.predicates import Resolve
from onyx.flow.segment import Refusal
from onyx.model.job import CatalogEntry

GROUP_BY_KEY = "groupByKey"


class KeyGetter(Protocol):
    """How a task's group key is read."""

    def of_dicts(self, segments: Sequence[Segment]) -> KeyList:
        """The key of each segment.

        Raises:
            Refusal: a segment has none.
        """
        ...

    def of_columns(self, columns: Columns) -> KeyCodes:
        """The keys for columns: what a dict has None for is a null."""
        ...


def key_getter(entry: CatalogEntry, resolve: Resolve, parent: str = "") -> KeyGetter | None:
    """How a task's group key is read from segments; None when the task is not grouped.

    Args:
        parent: whose segments these are. Those of each side of a join have keys of their own.

    One key gives its value, a list of keys the part of the segment that has them, a function
    whatever it returns. A segment that lacks a key is refused, because one group of all that lack
    it is hardly what anybody means; with `onMissingKey: group` it is what it says: None, or without
    that key. An exception of a function is raised with its name, and that of the task: it is called
    where segments come from.
    """
    if entry.type == "join":
        return _side_getter(entry, parent)
    if entry.group_by_fn is not None:
        where = f"groupByFn {entry.group_by_fn} of task {entry.name}"
        return ByFunction(resolve(entry.group_by_fn), where)
    by = entry.group_by_key
    if by is None:
        return None
    optional = entry.on_missing_key == "group"
    if isinstance(by, tuple):
        return ByKeys(by, entry.name, optional)
    return ByKey(by, entry.name, optional)


def _side_getter(entry: CatalogEntry, parent: str) -> KeyGetter:
    """Keys of both sides that are equal are the same group, whatever their names are."""
    keys = next(side.keys for side in entry.sides if side.task == parent)
    if len(keys) == 1:
        return ByKey(keys[0], entry.name, optional=False, word="key")
    return ByKeys(keys, entry.name, False, "key", _part_names(len(keys)))


def group_of_parts(parts: Sequence[Any]) -> Any:
    """The group of a join, of the values of its key."""
    if len(parts) == 1:
        return parts[0]
    return dict(zip(_part_names(len(parts)), parts, strict=True))


def _part_names(parts: int) -> tuple[str, ...]:
    return tuple(map(str, range(parts)))


@contextmanager
def naming(entry: CatalogEntry) -> Iterator[None]:
    """Raise the refusal of a key with the entry of the job that it comes from: often that is not
    the task that fails, but the one downstream."""
    try:
        yield
    except Refusal:
        raise
    except UserError as error:
        by = entry.group_by_fn
        what = f"groupByFn {by}" if by is not None else f"groupByKey {entry.group_by_key}"
        what = "key" if entry.type == "join" else what
        raise Refusal(f"{what} of task {entry.name}: {error}") from error


class ByFunction:
    """What the user's function returns."""

    def __init__(self, function: Callable[[Segment], Any], where: str) -> None:
        """`where` begins messages."""
        self._function = function
        self._where = where

    def of_dicts(self, segments: Sequence[Segment]) -> KeyList:
        """The key of each segment."""
        try:
            return KeyList(list(map(self._function, segments)))
        except BaseException as error:
            raise Refusal(f"{self._where} raised {describe(error)}") from error

    def of_columns(self, columns: Columns) -> KeyCodes:
        """The groups of the rows of columns."""
        return KeyCodes.of_values(self.of_dicts(to_dicts(columns)).raws)


class ByKey:
    """The value of one key of a segment."""

    def __init__(self, key: str, task: str, optional: bool, word: str = GROUP_BY_KEY) -> None:
        """
        Args:
            optional: segments without the key are the group None.
            word: what the key is in the manifest.
        """
        self._key = key
        self._task = task
        self._optional = optional
        self._word = word

    def of_dicts(self, segments: Sequence[Segment]) -> KeyList:
        """The key of each segment."""
        key = self._key
        if self._optional:
            return KeyList([segment.get(key) for segment in segments])
        try:
            return KeyList([segment[key] for segment in segments])
        except KeyError:
            raise missing(self._task, key, self._word) from None

    def of_columns(self, columns: Columns) -> KeyCodes:
        """The groups of the rows of columns."""
        if columns.has(self._key):
            return KeyCodes.of_column(columns, self._key)
        if self._optional:
            return KeyCodes.of_values([None] * len(columns))
        raise missing(self._task, self._key, self._word)


class ByKeys:
    """The part of a segment that has several keys."""

    def __init__(
        self,
        keys: tuple[str, ...],
        task: str,
        optional: bool,
        word: str = GROUP_BY_KEY,
        names: tuple[str, ...] | None = None,
    ) -> None:
        """
        Args:
            optional: segments may lack some.
            word: what the keys are in the manifest.
            names: what they are called in the group; None: as in the segment.
        """
        self._keys = keys
        self._task = task
        self._optional = optional
        self._word = word
        self._names = names

    def of_dicts(self, segments: Sequence[Segment]) -> KeyList:
        """The key of each segment."""
        keys = self._keys
        if self._optional:
            return KeyList([{key: each[key] for key in keys if key in each} for each in segments])
        try:
            columns = [[each[key] for each in segments] for key in keys]
            return KeyList(list(zip(*columns, strict=True)), self._names or keys)
        except KeyError as error:
            raise missing(self._task, error.args[0], self._word) from None

    def of_columns(self, columns: Columns) -> KeyCodes:
        """The groups of the rows of columns."""
        present = [key for key in self._keys if columns.has(key)]
        if not self._optional and len(present) < len(self._keys):
            lacking = next(key for key in self._keys if key not in present)
            raise missing(self._task, lacking, self._word)
        found = KeyCodes.of_parts(columns, present)
        return found if self._names is None else replace(found, names=self._names)


def missing(task: str, key: str, word: str = GROUP_BY_KEY) -> Refusal:
    """Why a segment without the key is refused."""
    otherwise = ", or give the task onMissingKey: group" if word == GROUP_BY_KEY else ""
    return Refusal(
        f"{word} of task {task}: a segment has no key {key!r}, which is the {word}; drop such "
        f"segments in the function before or with a flow condition{otherwise}"
    )
