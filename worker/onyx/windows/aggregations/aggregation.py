"""What is computed over an extent: the aggregations that come with Onyx, and the user's own.

An aggregation has a state of its own form, kept for each extent and group, and a *view* of it that
users see. What a segment does to a state is an *update*: `create` makes it, `apply` carries it out.
Aggregations are of two kinds, by what is stored about a change:

* *closed*: the state is small and does not grow (count, sum, min, max, average). It is stored as
  it is, once for however many segments have changed it.
* *open*: the state may be of any size (conj, the collecting ones, the user's own). Its updates are
  stored and applied again, in order.

`fold` takes a whole batch for one extent; it does what `create` and `apply` do one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from operator import itemgetter
from typing import Any

from onyx.errors import UserError
from onyx.flow.batch import Segment
from onyx.model.job import Window
from onyx.windows.buckets import Bucket, Form
from onyx.windows.user_functions import Call


class Aggregation:
    """What all have in common; `closed` says how changes are stored."""

    closed = True
    mergeable = True

    def init(self) -> Any:
        """The first state."""
        raise NotImplementedError

    def extract(self, segments: Sequence[Segment]) -> Sequence[Any]:
        """What `create` looks at, for each segment: found once, however many extents have it.

        Raises:
            UserError: a segment has nothing that can be computed with, whatever the state.
        """
        return segments

    def create(self, state: Any, extracted: Any) -> Any:
        """The update that a segment makes."""
        return extracted

    def apply(self, state: Any, update: Any) -> Any:
        """The state after an update; the one before is not used any more."""
        raise NotImplementedError

    def fold(self, bucket: Bucket, keys: Sequence[Any], extracted: Sequence[Any]) -> None:
        """Apply what the segments of a batch do, in order."""
        create, apply = self.create, self.apply
        for key, each in zip(keys, extracted, strict=True):
            state = bucket[key]
            bucket[key] = apply(state, create(state, each))

    def merge(self, one: Any, other: Any) -> Any:
        """The state of an extent made of two; neither is used any more."""
        raise NotImplementedError

    def view(self, state: Any) -> Any:
        """What users see: a value of its own."""
        return state

    def from_view(self, view: Any) -> Any:
        """The state behind what a user's refinement has made of a view."""
        return view

    def dump(self, state: Any) -> Any:
        """The state as plain data, a value of its own."""
        return state

    def dump_all(self, states: list[Any]) -> list[Any]:
        """The same for many, in a list of its own."""
        if type(self).dump is Aggregation.dump:
            return states
        return [self.dump(state) for state in states]

    def load(self, data: Any) -> Any:
        """The state from what `dump` gave."""
        return data

    def form(self) -> Form:
        """Of a bucket of states."""
        load = self.load
        return Form(self.init, self.dump, lambda key, data: load(data))

    def refuse(self, extracted: Sequence[Any], error: TypeError) -> Exception:
        """What to raise when values cannot be computed with."""
        return error


class Count(Aggregation):
    """How many segments."""

    def init(self) -> int:
        return 0

    def create(self, state: int, extracted: Any) -> None:
        return None

    def apply(self, state: int, update: Any) -> int:
        return state + 1

    def fold(self, bucket: Bucket, keys: Sequence[Any], extracted: Sequence[Any]) -> None:
        self.add(bucket, Counter(keys))

    def add(self, bucket: Bucket, counts: Mapping[Any, int]) -> dict[Any, int]:
        """Apply so many segments of each group; gives their states."""
        states = {key: bucket[key] + many for key, many in counts.items()}
        bucket.update(states)
        return states

    def merge(self, one: int, other: int) -> int:
        return one + other


_NUMBERS = frozenset({int, float})


class Keyed(Aggregation):
    """Those that look at one key of a segment."""

    def __init__(self, where: str, key: str) -> None:
        self._where = where
        self._key = key
        self._get = itemgetter(key)

    def extract(self, segments: Sequence[Segment]) -> list[Any]:
        try:
            values = list(map(self._get, segments))
        except KeyError:
            raise UserError(
                f"{self._where}: a segment has no key {self._key!r}; drop such segments before, "
                "or set the key in the task's function"
            ) from None
        if not _NUMBERS.issuperset(map(type, values)):
            self._try(values)
        return values

    def _try(self, values: list[Any]) -> None:
        """Whether each can be computed with at all, that is with the first state."""
        for value in values:
            try:
                self.apply(self.init(), self.create(self.init(), value))
            except TypeError as error:
                raise self.refuse([value], error) from error

    def refuse(self, extracted: Sequence[Any], error: TypeError) -> UserError:
        kinds = sorted({type(each).__name__ for each in extracted})
        return UserError(
            f"{self._where}: cannot compute with the values of key {self._key!r}, which are of "
            f"type {', '.join(kinds)}"
        )


class Sum(Keyed):
    """The values of a key added up."""

    def init(self) -> int:
        return 0

    def apply(self, state: Any, update: Any) -> Any:
        return state + update

    def fold(self, bucket: Bucket, keys: Sequence[Any], extracted: Sequence[Any]) -> None:
        for key, each in zip(keys, extracted, strict=True):
            bucket[key] += each

    def merge(self, one: Any, other: Any) -> Any:
        return one + other


class Extreme(Keyed):
    """The smallest or largest value of a key, or the initial value where that is smaller."""

    def __init__(self, where: str, key: str, initial: Any, choose: Callable[..., Any]) -> None:
        super().__init__(where, key)
        self._initial = initial
        self._choose = choose

    def init(self) -> Any:
        return self._initial

    def apply(self, state: Any, update: Any) -> Any:
        return self._choose(state, update)

    def fold(self, bucket: Bucket, keys: Sequence[Any], extracted: Sequence[Any]) -> None:
        choose = self._choose
        for key, each in zip(keys, extracted, strict=True):
            bucket[key] = choose(bucket[key], each)

    def merge(self, one: Any, other: Any) -> Any:
        return self._choose(one, other)


class Average(Keyed):
    """Number, sum and mean of the values of a key; the mean comes with the first value."""

    def init(self) -> tuple[int, Any]:
        return (0, 0)

    def apply(self, state: tuple[int, Any], update: Any) -> tuple[int, Any]:
        return (state[0] + 1, state[1] + update)

    def merge(self, one: tuple[int, Any], other: tuple[int, Any]) -> tuple[int, Any]:
        return (one[0] + other[0], one[1] + other[1])

    def view(self, state: tuple[int, Any]) -> dict[str, Any]:
        number, total = state
        mean = {"average": total / number} if number else {}
        return {"n": number, "sum": total, **mean}

    def from_view(self, view: Mapping[str, Any]) -> tuple[int, Any]:
        return (view["n"], view["sum"])

    def dump(self, state: tuple[int, Any]) -> list[Any]:
        return list(state)

    def load(self, data: Sequence[Any]) -> tuple[int, Any]:
        return (data[0], data[1])


class Conj(Aggregation):
    """All segments, in order of arrival.

    They are copied when they come and when they are shown: the next task, and the user's functions,
    may change theirs.
    """

    closed = False

    def init(self) -> list[Segment]:
        return []

    def create(self, state: Any, extracted: Segment) -> Segment:
        return dict(extracted)

    def apply(self, state: list[Any], update: Any) -> list[Any]:
        state.append(update)
        return state

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        return one + other

    def view(self, state: list[Any]) -> list[Any]:
        return [segment.copy() for segment in state]

    def from_view(self, view: Sequence[Any]) -> list[Any]:
        return list(view)

    def dump(self, state: list[Any]) -> list[Any]:
        return list(state)

    def load(self, data: Sequence[Any]) -> list[Any]:
        return list(data)


class CollectKeyValue(Conj):
    """The values of a key, in order of arrival; None for segments without it."""

    def __init__(self, key: str) -> None:
        self._key = key

    def create(self, state: Any, extracted: Segment) -> Any:
        return deepcopy(extracted.get(self._key))

    def view(self, state: list[Any]) -> list[Any]:
        return deepcopy(state)


class CollectByKey(Aggregation):
    """All segments by the value of a key; those without it are under None."""

    closed = False

    def __init__(self, where: str, key: str) -> None:
        self._where = where
        self._key = key

    def init(self) -> dict[Any, list[Segment]]:
        return {}

    def extract(self, segments: Sequence[Segment]) -> Sequence[Any]:
        for segment in segments:
            value = segment.get(self._key)
            try:
                hash(value)
            except TypeError:
                raise UserError(
                    f"{self._where}: key {self._key!r} holds a {type(value).__name__}, by which "
                    "nothing can be collected; use text, a number or None"
                ) from None
        return segments

    def create(self, state: Any, extracted: Segment) -> Segment:
        return dict(extracted)

    def apply(self, state: dict[Any, list[Any]], update: Segment) -> dict[Any, list[Any]]:
        state.setdefault(update.get(self._key), []).append(update)
        return state

    def merge(self, one: dict[Any, list[Any]], other: dict[Any, list[Any]]) -> Any:
        for value, segments in other.items():
            one.setdefault(value, []).extend(segments)
        return one

    def view(self, state: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
        return {
            value: [segment.copy() for segment in segments] for value, segments in state.items()
        }

    def from_view(self, view: Mapping[Any, Sequence[Any]]) -> dict[Any, list[Any]]:
        return {value: list(segments) for value, segments in view.items()}

    def dump(self, state: dict[Any, list[Any]]) -> list[Any]:
        return [[value, list(segments)] for value, segments in state.items()]

    def load(self, data: Sequence[Any]) -> dict[Any, list[Any]]:
        return {value: list(segments) for value, segments in data}


class Own(Aggregation):
    """The user's functions, which may change what they are given: so each gets its own copy."""

    closed = False

    def __init__(self, window: Window, calls: Mapping[str, Call]) -> None:
        self._window = window
        self._calls = calls
        self._create = calls["create_state_update"]
        self._apply = calls["apply_state_update"]
        self.mergeable = "super_aggregation" in calls

    def init(self) -> Any:
        if "init" in self._calls:
            return self._calls["init"](self._window)
        return deepcopy(self._window.init)

    def create(self, state: Any, extracted: Segment) -> Any:
        return deepcopy(self._create(self._window, state, extracted))

    def apply(self, state: Any, update: Any) -> Any:
        return self._apply(self._window, state, deepcopy(update))

    def merge(self, one: Any, other: Any) -> Any:
        return self._calls["super_aggregation"](self._window, one, other)

    def view(self, state: Any) -> Any:
        return deepcopy(state)

    def from_view(self, view: Any) -> Any:
        return deepcopy(view)

    def dump(self, state: Any) -> Any:
        return deepcopy(state)

    def load(self, data: Any) -> Any:
        return deepcopy(data)


class OrderedLog(Aggregation):
    """Another aggregation over the segments in order of their place, computed when it is looked at.

    What is stored are the segments with their places; arrival decides between equal places.
    """

    closed = False
    mergeable = False

    def __init__(self, inner: Aggregation, place_of: Callable[[Segment], Any]) -> None:
        self._inner = inner
        self._place_of = place_of

    def init(self) -> list[list[Any]]:
        return []

    def create(self, state: Any, extracted: Segment) -> list[Any]:
        return [self._place_of(extracted), dict(extracted)]

    def apply(self, state: list[list[Any]], update: list[Any]) -> list[list[Any]]:
        state.append(update)
        return state

    def view(self, state: list[list[Any]]) -> Any:
        inner = self._inner
        total = inner.init()
        ordered = sorted(state, key=itemgetter(0))
        for each in inner.extract([segment for _, segment in ordered]):
            total = inner.apply(total, inner.create(total, each))
        return inner.view(total)

    def dump(self, state: list[list[Any]]) -> list[list[Any]]:
        return list(state)

    def load(self, data: Sequence[list[Any]]) -> list[list[Any]]:
        return list(data)
