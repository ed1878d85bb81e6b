"""Questions about state and their answers, as bytes, and questions as text.

An answer with extents is one msgpack array with an array for each extent, so that the size is known
while the answer grows and it can stop at its limit. States have the types of `kinds`, as in the
state log. A state that is not in the log yet may hold other types, which msgspec converts to
similar ones (a set to a list); nothing is computed from an answer.

A question is one msgpack array (`_Asked`); what may be any value or be left out is an array of one
or none. As text it is options of a command line, or parameters of a URL.

Tasks that look up groups of another one ask for as many at a time as fit. Whole lists are encoded
at once, because a call for each value would take longer than all else that is done with it. What
does not fit is halved.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from onyx.base.structs import UNREADABLE
from onyx.codec.kinds import packed, unpacked
from onyx.codec.values import decode_values, encode_values
from onyx.errors import SegmentError, UserError
from onyx.keystate.extents import ALL, Extent, Number
from onyx.keystate.groups import dump_key, dump_keys, group_value, hashable_key, load_key, load_keys
from onyx.keystate.selection import Inside, Place, Selection

_ARRAY_32 = b"\xdd"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(
    list[tuple[Any, Any, Any, Any, list[Any], Any]], ext_hook=unpacked
)
_Number = int | float
_Place = tuple[Any, _Number, _Number, list[Any], Any]


_place_decoder = msgspec.msgpack.Decoder(_Place, ext_hook=unpacked)
_FAULTS = (*UNREADABLE, TypeError, OverflowError, MemoryError)


class _Asked(msgspec.Struct, array_like=True, frozen=True):
    """A selection."""

    key: list[Any]
    prefix: list[Any]
    key_from: int | str | None
    key_to: int | str | None
    time_from: _Number | None
    time_to: _Number | None
    after: _Place | None
    inside: tuple[list[Any], Any, Any, int | None]
    """The fields of `Inside`, whose keys are of several types."""


_asked_decoder = msgspec.msgpack.Decoder(_Asked, ext_hook=unpacked)


def encode_extents(extents: Sequence[Extent], bytes_max: int) -> tuple[bytes, int]:
    """The first extents, as many as `bytes_max` takes, and how many these are.

    Raises:
        SegmentError: a state cannot travel, or the first one alone is too large.
    """
    rows: list[bytes] = []
    size = 0
    for extent in extents:
        row = _row(extent)
        size += len(row)
        if size > bytes_max:
            break
        rows.append(row)
    if extents and not rows:
        raise SegmentError(
            f"the state of group {extents[0].group!r} from {extents[0].lower} takes {size} bytes, "
            f"and at most {bytes_max} are sent at once; have a trigger write it instead"
        )
    return _ARRAY_32 + len(rows).to_bytes(4, "big") + b"".join(rows), len(rows)


def decode_extents(data: bytes) -> list[Extent]:
    """The extents of `encode_extents`.

    Raises:
        SegmentError: the bytes are something else.
    """
    try:
        return [
            Extent(_value(group), lower, upper, state, _values(of_session), item)
            for group, lower, upper, state, of_session, item in _decoder.decode(data)
        ]
    except _FAULTS as error:
        raise SegmentError(f"{len(data)} bytes are not extents of a window: {error}") from error


def encode_selection(asked: Selection) -> bytes:
    """A question, which `check` has found to make sense.

    Raises:
        UserError: a group in it is of a type that no group's key has.
    """
    after = asked.after
    return _encoder.encode(
        [
            [] if asked.key is ALL else [packed(_plain(asked.key))],
            [] if asked.prefix is None else [packed(_plain(asked.prefix))],
            asked.key_from,
            asked.key_to,
            asked.time_from,
            asked.time_to,
            None if after is None else _place_row(after),
            msgspec.structs.astuple(asked.inside),
        ]
    )


def decode_selection(data: bytes) -> Selection:
    """The question of `encode_selection`.

    Raises:
        SegmentError: the bytes are something else.
        UserError: the question makes no sense.
    """
    try:
        found = _asked_decoder.decode(data)
        path, first, end, items_max = found.inside
        asked = Selection(
            _value(found.key[0]) if found.key else ALL,
            found.prefix[0] if found.prefix else None,
            found.key_from,
            found.key_to,
            found.time_from,
            found.time_to,
            None if found.after is None else _place(found.after),
            Inside(tuple(path), first, end, items_max),
        )
    except _FAULTS as error:
        raise SegmentError(f"{len(data)} bytes are no question about a state: {error}") from error
    asked.check()
    return asked


def encode_place(place: Place) -> str:
    """The place of an extent as text that a URL and a command line take as it stands."""
    return base64.urlsafe_b64encode(_encoder.encode(_place_row(place))).decode().rstrip("=")


def decode_place(text: str) -> Place:
    """The place of `encode_place`.

    Raises:
        UserError: the text is something else.
    """
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return _place(_place_decoder.decode(data))
    except (*_FAULTS, binascii.Error) as error:
        raise UserError(f"{text!r} is not where a page has ended") from error


def _place_row(place: Place) -> list[Any]:
    of_session = [packed(_plain(each)) for each in place.of_session]
    return [packed(_plain(place.group)), place.lower, place.upper, of_session, place.item]


def _place(row: _Place) -> Place:
    group, lower, upper, of_session, item = row
    if type(item) not in (int, str, bytes, type(None)):
        raise TypeError("no key of a map")
    return Place(_value(group), lower, upper, _values(of_session), item)


def _plain(key: Any) -> Any:
    """The key of a group as plain data."""
    return dump_key(hashable_key(key))


def _value(data: Any) -> Any:
    """The user's value of the key of a group."""
    return group_value(load_key(data))


def _values(data: list[Any]) -> tuple[Any, ...]:
    return tuple(map(_value, data))


def _row(extent: Extent) -> bytes:
    key = _plain(extent.group)
    try:
        of_session = list(map(_plain, extent.of_session))
        row = [key, extent.lower, extent.upper, extent.state, of_session, extent.item]
        return _encoder.encode(packed(row))
    except _FAULTS as error:
        raise SegmentError(
            f"the state of group {extent.group!r} from {extent.lower} cannot be sent: {error}"
        ) from error


def key_pieces(keys: list[Any], bytes_max: int) -> Iterator[tuple[list[Any], bytes]]:
    """All keys (`groups.hashable_key`) in pieces, each with its bytes. A single key may have more
    than `bytes_max`.

    Raises:
        SegmentError: a key has no encoding.
    """
    data = encode_values(dump_keys(keys))
    if len(data) <= bytes_max or len(keys) <= 1:
        yield keys, data
        return
    half = len(keys) // 2
    yield from key_pieces(keys[:half], bytes_max)
    yield from key_pieces(keys[half:], bytes_max)


def decode_keys(data: bytes) -> Sequence[Any]:
    """The keys of a piece. Raises SegmentError: the bytes are something else."""
    return load_keys(decode_values(data))


def encode_states(found: Sequence[Sequence[Any]], bytes_max: int) -> tuple[bytes, int]:
    """What the first keys have, and how many these are: as many as fit, and at least one.

    Args:
        found: for each key a list with its state, which is empty if it has none.

    Raises:
        SegmentError: a state has no encoding.
    """
    while True:
        missing = [index for index, each in enumerate(found) if not each]
        states = [state for each in found for state in each]
        data = encode_values([len(found), missing, states])
        if len(data) <= bytes_max or len(found) <= 1:
            return data, len(found)
        found = found[: len(found) // 2]


def decode_states(data: bytes, keys: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The keys that have a state, their states, and the keys that are still to be asked for. Raises
    SegmentError: the bytes are something else."""
    try:
        many, missing, states = decode_values(data)
        there = keys[:many]
        for index in reversed(missing):
            del there[index]
    except (TypeError, ValueError, IndexError) as error:
        raise SegmentError(f"{len(data)} bytes are no states of groups: {error}") from error
    if len(there) != len(states):
        raise SegmentError(f"{len(states)} states came for {len(there)} groups")
    return there, states, keys[many:]


def parse_key(text: str) -> Any:
    """The key of a group as text. A float is no key, so `1.5` is text, like everything that is not
    JSON.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, float) else value


def parse_bound(text: str) -> Number:
    """A coordinate of a window: a number as it stands, or a moment in ISO 8601 (UTC unless it says
    otherwise) as milliseconds since the epoch.

    Raises:
        UserError: it is neither.
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return _moment(text)
    if math.isnan(number):
        raise UserError("a window has no bound nan")
    return number


def selection(
    key: str | None = None,
    prefix: str | None = None,
    first_key: str | None = None,
    before_key: str | None = None,
    time_from: str | None = None,
    time_to: str | None = None,
    after: str | None = None,
    path: str | None = None,
    first_item: str | None = None,
    before_item: str | None = None,
    items: str | None = None,
) -> Selection:
    """What is asked for; None: not given.

    Raises:
        UserError: something cannot be read, or makes no sense.
    """
    found = Selection(
        ALL if key is None else parse_key(key),
        None if prefix is None else parse_key(prefix),
        None if first_key is None else parse_key(first_key),
        None if before_key is None else parse_key(before_key),
        None if time_from is None else parse_bound(time_from),
        None if time_to is None else parse_bound(time_to),
        None if after is None else decode_place(after),
        Inside(
            () if path is None else _path(path),
            None if first_item is None else parse_key(first_item),
            None if before_item is None else parse_key(before_item),
            None if items is None else _count(items),
        ),
    )
    found.check()
    return found


def _path(text: str) -> tuple[Any, ...]:
    """Several steps are a JSON list, one stands alone."""
    found = parse_key(text)
    return tuple(found) if isinstance(found, list) else (found,)


def _count(text: str) -> int:
    if not text.isdigit():
        raise UserError(f"{text!r} is no number of items")
    return int(text)


def _moment(text: str) -> Number:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UserError(f"{text!r} is neither a number nor a moment in ISO 8601") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)
