"""Values of the case files as Python's: instants, ratios, infinities, sets, maps with any key."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any


def value(encoded: Any) -> Any:
    """A value as our segments and states have it; a set is a list, in the order of the file."""
    if isinstance(encoded, list):
        return [value(each) for each in encoded]
    if not isinstance(encoded, dict):
        return encoded
    match encoded:
        case {"$inst": text}:
            return datetime.fromisoformat(text)
        case {"$ratio": [numerator, denominator]}:
            return numerator / denominator
        case {"$num": text}:
            return float(text.replace("Infinity", "inf"))
        case {"$set": items}:
            return [value(each) for each in items]
        case {"$map": pairs}:
            return {_key(key): value(each) for key, each in pairs}
    return {key: value(each) for key, each in encoded.items()}


def same(one: Any, other: Any, unordered: bool = False) -> bool:
    """Whether two values are equal; `unordered`: lists are sets."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same(one[key], other[key], unordered) for key in one
        )
    if unordered and isinstance(one, list) and isinstance(other, list):
        return all(each in other for each in one) and all(each in one for each in other)
    return bool(one == other)


def _key(key: Any) -> Any:
    decoded = value(key)
    return repr(sorted(decoded.items())) if isinstance(decoded, dict) else decoded


def encoded(decoded: Any) -> Any:
    """The other way: what `value` gives back, as far as JSON has a form for it."""
    if isinstance(decoded, list | tuple):
        return [encoded(each) for each in decoded]
    if isinstance(decoded, datetime):
        return {"$inst": decoded.isoformat()}
    if isinstance(decoded, float) and math.isinf(decoded):
        return {"$num": "Infinity" if decoded > 0 else "-Infinity"}
    if isinstance(decoded, dict):
        return {"$map": [[encoded(key), encoded(each)] for key, each in decoded.items()]}
    return decoded
