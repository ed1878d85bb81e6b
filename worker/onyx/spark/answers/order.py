"""States in the order of answers (`keystate.selection`), found with columns: ints, then text, then
all others by their canonical bytes; of a group by extent, or by the beginning of a session."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from onyx.flow.groups.keys import key_bytes
from onyx.spark.answers.rows import column_of
from onyx.spark.windows.plan import EXTENT, KEY_INT, KEY_OTHER, KEY_TEXT, LOWER

_KIND, _SIZE, _BYTES = "kind", "size", "bytes"
_INT = b"i"
"""Begins the canonical bytes of an int, which is here only if it is beyond 64 bits with a sign."""


def in_order(states: pa.Table) -> pa.Table:
    """The states, sorted."""
    keys = {name: column_of(states, name) for name in (KEY_INT, KEY_TEXT, KEY_OTHER)}
    ints, texts = keys[KEY_INT].is_valid(), keys[KEY_TEXT].is_valid()
    others = pc.fill_null(keys[KEY_OTHER], key_bytes(None))
    large = pc.starts_with(others, _INT)
    kinds = pc.if_else(pc.or_(ints, large), 0, pc.if_else(texts, 1, 2))
    place = LOWER if LOWER in states.column_names else EXTENT
    by = pa.table(
        {
            _KIND: kinds,
            KEY_INT: keys[KEY_INT],
            KEY_TEXT: keys[KEY_TEXT],
            _SIZE: pc.if_else(large, pc.binary_length(others), 0),
            _BYTES: others,
            place: states[place],
        }
    )
    return states.take(pc.sort_indices(by, [(name, "ascending") for name in by.column_names]))
