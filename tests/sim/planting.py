"""Bugs that are planted to see whether a simulation finds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any
from unittest import mock

Plants = Mapping[str, tuple[Any, str, Any]]
"""By the name of a bug: the class or module, the name in it, and what stands there instead."""
FoundBy = Mapping[str, AbstractSet[str]]
"""By the name of a bug: the invariants by which it may be found. Another one would mean that the
bug is not understood."""


@contextmanager
def planted_of(plants: Plants, bug: str | None) -> Iterator[None]:
    """One of the bugs, or nothing."""
    if bug is None:
        yield
        return
    where, name, wrong = plants[bug]
    with mock.patch.object(where, name, wrong):
        yield
