"""A state of the group that a function works on, as the function sees it.

What a view gives out is a copy where it could be changed, because only what is put into a view is
recorded. What one call has changed is taken back if the call fails (`CallChanges`).
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    MutableMapping,
    MutableSequence,
    ValuesView,
)
from typing import Any, overload

from onyx.errors import UserFunctionError, describe_type
from onyx.keystate.copies import copied
from onyx.keystate.entries import in_order
from onyx.operators.keyed.checks import Check
from onyx.operators.keyed.states import ABSENT, Lists, Maps, Values


class ValueView:
    """One value; None: there is none."""

    __slots__ = ("_changes", "_check", "_copied", "_values", "group")

    def __init__(self, values: Values, check: Check, changes: CallChanges, is_plain: bool) -> None:
        """`is_plain`: whether nobody can change a value."""
        self._values = values
        self._check = check
        self._changes = changes
        self._copied = None if is_plain else copied
        self.group: Any = None

    def read(self) -> Any:
        """What the function gets."""
        found = self._values.get(self.group)
        return found if self._copied is None else self._copied(found)

    def write(self, value: Any) -> None:
        """What the function sets."""
        if value is None:
            self.clear()
            return
        kept = self._check(value)
        if self._copied is not None:
            kept = self._copied(kept)
        self._put(kept)

    def clear(self) -> None:
        """The group has no such value any more."""
        if self.group in self._values:
            self._put(ABSENT)

    def attribute(self) -> property:
        """The state as an attribute of what functions get. Of plain values it does by itself what
        `read` and `write` do: it is used several times a segment."""
        if self._copied is not None:
            return _attribute(self)
        view, get, swap = self, self._values.get, self._values.swap
        check, changed = self._check, self._changes.add

        def read(_: object) -> Any:
            return get(view.group)

        def write(_: object, value: Any) -> None:
            if value is None:
                view.clear()
            else:
                kept, group = check(value), view.group
                changed(swap, group, swap(group, kept))

        return property(read, write, lambda _: view.clear())

    def _put(self, kept: Any) -> None:
        values, group = self._values, self.group
        self._changes.add(values.swap, group, values.swap(group, kept))


class ListView(MutableSequence[Any]):
    """A list."""

    __slots__ = ("_changes", "_check", "_lists", "group")

    def __init__(self, lists: Lists, check: Check, changes: CallChanges) -> None:
        self._lists = lists
        self._check = check
        self._changes = changes
        self.group: Any = None

    def read(self) -> ListView:
        """What the function gets."""
        return self

    def write(self, items: Any) -> None:
        """What the function sets."""
        if items is self:  # what `+=` ends with
            return
        if not isinstance(items, Iterable) or isinstance(items, str | bytes | MutableMapping):
            raise UserFunctionError(f"a state that is a list is set to {describe_type(items)}")
        self._put(self._checked(items))

    def clear(self) -> None:
        """The group has an empty list."""
        if len(self):
            self._put([])

    def attribute(self) -> property:
        """The state as an attribute of what functions get."""
        return _attribute(self)

    def __len__(self) -> int:
        return len(self._lists.get(self.group))

    def __iter__(self) -> Iterator[Any]:
        return map(copied, list(self._lists.get(self.group)))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return copied(self._lists.get(self.group)[index])

    def __setitem__(self, index: int | slice, value: Any) -> None:
        items = list(self._lists.get(self.group))
        if isinstance(index, slice):
            items[index] = self._checked(value)
        else:
            items[index] = copied(self._check(value))
        self._put(items)

    def __delitem__(self, index: int | slice) -> None:
        items = list(self._lists.get(self.group))
        del items[index]
        self._put(items)

    def insert(self, index: int, value: Any) -> None:
        """Insert an item before an index."""
        items = list(self._lists.get(self.group))
        items.insert(index, copied(self._check(value)))
        self._put(items)

    def append(self, value: Any) -> None:
        """Append an item; only that is recorded."""
        self._extend([copied(self._check(value))])

    def extend(self, values: Iterable[Any]) -> None:
        """Append items; only these are recorded."""
        self._extend(self._checked(values))

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, list | tuple | ListView)
        return list(self) == list(other) if same else NotImplemented  # type: ignore[call-overload]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def _checked(self, items: Iterable[Any]) -> list[Any]:
        return [copied(self._check(item)) for item in items]

    def _extend(self, items: list[Any]) -> None:
        if items:
            self._changes.add(self._lists.cut, self.group, len(self))
            self._lists.extend(self.group, items)

    def _put(self, items: list[Any]) -> None:
        self._changes.add(self._lists.put, self.group, list(self._lists.get(self.group)))
        self._lists.put(self.group, items)


class MapView(MutableMapping[Any, Any]):
    """A map."""

    __slots__ = ("_changes", "_check", "_check_key", "_maps", "group")

    def __init__(self, maps: Maps, check: Check, check_key: Check, changes: CallChanges) -> None:
        self._maps = maps
        self._check = check
        self._check_key = check_key
        self._changes = changes
        self.group: Any = None

    def read(self) -> MapView:
        """What the function gets."""
        return self

    def write(self, items: Any) -> None:
        """What the function sets."""
        if items is self:  # what `|=` ends with
            return
        if not isinstance(items, dict | MapView):
            raise UserFunctionError(f"a state that is a map is set to {describe_type(items)}")
        self._put(
            {self._check_key(key): copied(self._check(value)) for key, value in items.items()}
        )

    def clear(self) -> None:
        """The group has an empty map."""
        if len(self):
            self._put({})

    def attribute(self) -> property:
        """The state as an attribute of what functions get."""
        return _attribute(self)

    def __len__(self) -> int:
        return len(self._maps.get(self.group))

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.pairs())

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values in the order of keys, as they are now; values are not copies."""
        return in_order(self._maps.get(self.group))

    def items(self) -> ItemsView[Any, Any]:
        """Keys and values, as they are when going through them begins."""
        return _MapItems(self)

    def values(self) -> ValuesView[Any]:
        """Values, as they are when going through them begins."""
        return _MapValues(self)

    def __contains__(self, key: object) -> bool:
        return key in self._maps.get(self.group)

    def __getitem__(self, key: Any) -> Any:
        return copied(self._maps.get(self.group)[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        key, value = self._check_key(key), copied(self._check(value))
        before = self._maps.get(self.group).get(key, ABSENT)
        if before is ABSENT:
            self._changes.add(self._maps.discard, self.group, key)
        else:
            self._changes.add(self._maps.set, self.group, key, before)
        self._maps.set(self.group, key, value)

    def __delitem__(self, key: Any) -> None:
        before = self._maps.get(self.group)[key]
        self._changes.add(self._maps.set, self.group, key, before)
        self._maps.discard(self.group, key)

    def __ior__(self, others: Any) -> MapView:
        self.update(others)
        return self

    def __repr__(self) -> str:
        return repr(dict(self))

    def _put(self, items: dict[Any, Any]) -> None:
        self._changes.add(self._maps.give_back, self.group, self._maps.take(self.group))
        for key, value in items.items():
            self._maps.set(self.group, key, value)


class _MapItems(ItemsView[Any, Any]):
    """Goes through a map once, where the one of Python looks each key up."""

    _mapping: MapView

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((key, copied(value)) for key, value in self._mapping.pairs())


class _MapValues(ValuesView[Any]):
    """Likewise."""

    _mapping: MapView

    def __iter__(self) -> Iterator[Any]:
        return (copied(value) for _, value in self._mapping.pairs())


View = ValueView | ListView | MapView


def _attribute(view: View) -> property:
    def read(_: object) -> Any:
        return view.read()

    def write(_: object, value: Any) -> None:
        view.write(value)

    def clear(_: object) -> None:
        view.clear()

    return property(read, write, clear)


class CallChanges:
    """How to take back the changes of one call, in order."""

    __slots__ = ("backs",)

    def __init__(self) -> None:
        self.backs: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def add(self, back: Callable[..., object], *arguments: Any) -> None:
        """A change was made that this call takes back."""
        self.backs.append((back, arguments))

    def keep(self) -> bool:
        """The changes stay; whether there are some."""
        if not self.backs:
            return False
        self.backs.clear()
        return True

    def take_back(self) -> None:
        """All is as it was."""
        while self.backs:
            back, arguments = self.backs.pop()
            back(*arguments)
