"""What is known about one key of a manifest, and where it is said: on a field.

A key is a field of a frozen struct. Its type, its default and the docstring below it say most;
what they cannot say stands in the annotation, as a kind and a `Key`:

    batch_size: Annotated[int, Count(1, 100_000, "segments"), Key(origin="onyx/batch-size")] = 20
    \"\"\"Segments taken at most in one batch.\"\"\"

Rejected: a table of keys beside the classes (each key twice, and a test that compares them), and
`msgspec.Meta` or Pydantic's `Field`, which stop at the first problem of a value and know neither
words that stand in place of lists nor rules by the entry's type.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from onyx.base.field_docs import field_docs
from onyx.model.keys.kinds import Anything, KeyKind

EMPTY: Mapping[str, Any] = MappingProxyType({})
"""Default of mappings: nothing, and nobody can add to it."""
ENTRIES_MAX = 1_024

UNKNOWN = Anything()
"""Kind of a key that no class has yet."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a manifest: first what its author writes, then what the field itself says."""

    restriction: str = ""
    """What the rules check besides, in words."""
    required_for: tuple[str, ...] = ()
    """Values of the entry's `type` for which the key must be given."""
    unless: tuple[str, ...] = ()
    """Other keys of the manifest, any of which may be given instead of a required one."""
    allowed_for: tuple[str, ...] = ()
    """Values of the entry's `type` for which it may be given; empty means all."""
    filled: str = ""
    """What its value is where it is not given and parsing finds it (`parsing/filling`), in words.
    """
    origin: str = ""
    """The key of Onyx that this one corresponds to; empty if there is none."""
    era: str = "both"
    """Versions of Onyx that have it: `0.9`, `0.10+` or `both`."""
    items_max: int = ENTRIES_MAX
    """Most entries of a list of entries."""
    map_key: str = ""
    """Key that is unique in a list of entries, so that Kubernetes can merge lists by it."""
    yaml: str = ""
    """The key in a manifest; given only where Python does not allow it as the field's name."""

    field: str = ""
    """Name of the field, in snake_case."""
    kind: KeyKind = UNKNOWN
    """What a value must be."""
    required: bool = False
    """Whether every entry must have it: the field has no default."""
    default: Any = None
    owner: type[Any] = object
    """Class of the field."""

    @property
    def is_mandatory(self) -> bool:
        """Whether whoever writes an entry must give it."""
        return self.required and not self.filled

    @property
    def doc(self) -> str:
        """What the key means: the docstring below its field."""
        return field_docs(self.owner).get(self.field, "")

    def allows(self, kind: Any) -> bool:
        """Whether an entry of type `kind` may have the key; true when the type is unknown."""
        return not self.allowed_for or not isinstance(kind, str) or kind in self.allowed_for


NOT_A_KEY = Key(yaml="-")
"""Marks a field that comes from elsewhere: the name of an object stands in its metadata."""
