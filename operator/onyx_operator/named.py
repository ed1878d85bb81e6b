"""An object of an API server as logs name it: its kind, a mark of the server, and its name. Pure.

The mark keeps two Kubernetes clusters apart that share a log. Parts are joined by `/`, which is in
none of them.
"""

from __future__ import annotations

from typing import ClassVar, Self

import msgspec
from msgspec.structs import astuple


class Named(msgspec.Struct, frozen=True):
    """One object."""

    KIND: ClassVar[str]
    server: str
    """Mark of the API server that has it."""
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join((self.KIND, *astuple(self)))

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The object that a log names; None when it is none of this kind."""
        kind, *parts = text.split("/")
        if kind != cls.KIND or len(parts) != len(cls.__struct_fields__):
            return None
        return cls(*parts)
