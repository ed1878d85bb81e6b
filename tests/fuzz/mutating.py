"""What strangers make of what is right: bytes and values, changed by chance."""

from __future__ import annotations

from random import Random
from typing import Any

CHANGES_MAX = 6
INSERTED_MAX = 64
NUMBERS = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64)
"""At the ends of what a field of some size holds."""
VALUES = (None, True, False, 0, -1, 2**63, 1e308, "", "\x00", "x" * 5_000, [], {}, [[]], {"": {}})
KEYS = ("", "name", "type", "options", "sparkConf", "n", "spec", "\ud800", "x" * 300)


def mutated(random: Random, data: bytes) -> bytes:
    """Bytes that differ in a few places."""
    found = bytearray(data)
    for _ in range(random.randint(1, CHANGES_MAX)):
        random.choice(_OF_BYTES)(random, found)
    return bytes(found)


def mutated_value(random: Random, value: Any) -> Any:
    """A value of JSON that differs in one place, somewhere in it."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        changed = dict(value)
        if random.random() < 0.1:
            changed[random.choice(KEYS)] = changed.pop(key)
        else:
            changed[key] = mutated_value(random, value[key])
        return changed
    if isinstance(value, list) and value and random.random() < 0.9:
        at = random.randrange(len(value))
        changed_list = list(value)
        if random.random() < 0.2:
            return changed_list * random.choice((2, 3, 300))
        changed_list[at] = mutated_value(random, value[at])
        return changed_list
    if random.random() < 0.1:
        return _nested(random.choice((10, 40, 400)))
    return random.choice(VALUES)


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _at(random: Random, data: bytearray) -> int:
    return random.randint(0, len(data))


def _flip(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] = random.randrange(256)


def _insert(random: Random, data: bytearray) -> None:
    at = _at(random, data)
    data[at:at] = random.randbytes(random.randint(1, INSERTED_MAX))


def _cut(random: Random, data: bytearray) -> None:
    at = _at(random, data)
    del data[at : at + random.randint(1, INSERTED_MAX)]


def _end(random: Random, data: bytearray) -> None:
    del data[_at(random, data) :]


def _repeat(random: Random, data: bytearray) -> None:
    at = _at(random, data)
    data[at:at] = data[at : at + INSERTED_MAX] * random.choice((1, 2, 50))


def _number(random: Random, data: bytearray) -> None:
    """A number where one may be, in either order of bytes."""
    size, at = random.choice((1, 2, 4, 8)), _at(random, data)
    number = random.choice(NUMBERS) % 256**size
    data[at : at + size] = number.to_bytes(size, random.choice(("big", "little")))


def _digits(random: Random, data: bytearray) -> None:
    at = _at(random, data)
    data[at:at] = str(random.choice(NUMBERS)).encode()


_OF_BYTES = (_flip, _set, _insert, _cut, _end, _repeat, _number, _digits)
