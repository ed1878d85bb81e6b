"""Classes that msgspec reads: what it must know of one is gathered at once, by one thread.

By itself msgspec gathers it when it reads the first value of a class, and lets other threads use it
while it is incomplete: two threads that read their first values at the same time end the process by
a segmentation fault (0.22; structs and dataclasses alike). Decoders made while a module is imported
are safe, as is a class with the decorator of this module.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def prepared(kind: type[T]) -> type[T]:
    """Class decorator, the outermost one: the class may be read by several threads at once."""
    msgspec.json.Decoder(kind)
    return kind
