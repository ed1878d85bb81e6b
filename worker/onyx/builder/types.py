"""Types of what a caller gives to the builder, beside text and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

Fn = str | Callable[..., Any]
"""A function of a module, or its name `package.module:name`; where Onyx has words, also these."""
Amount = str | tuple[int, str] | timedelta
"""`"5 minutes"`, `(5, "minutes")` or a `timedelta`; of segments `"100 elements"`."""
Time = int | Amount
"""A time, or a number of milliseconds."""
Predicate = Fn | Sequence[Any]
"""A function, `(function, "param", ...)`, a comparison as `(">", "age", 100)`, or
`("and" | "or" | "not", predicate, ...)`."""
Aggregation = Fn | Sequence[Any]
"""The name of an aggregation, `("sum", "amount")`, or a function of your own."""


@dataclass(frozen=True, slots=True)
class _Plugin:
    plugin: str
    options: Mapping[str, Any]


class Source(_Plugin):
    """What a job reads: a plugin with its options."""

    __slots__ = ()


class Sink(_Plugin):
    """What a job writes to: a plugin with its options."""

    __slots__ = ()


class Medium(Source, Sink):
    """A plugin with options that fit reading as well as writing."""

    __slots__ = ()
