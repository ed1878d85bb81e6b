"""What functions give back for a request, as its caller gets it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from onyx.errors import OnyxError, contained
from onyx.functions.returning import LOST
from onyx.ledger.returns import Part
from onyx.requests.request import Answer

Resolve = Callable[[str], Callable[..., Any]]


def needs_user_code(parts: Mapping[str, Part]) -> bool:
    """Whether a function of the user's puts values together."""
    return any(":" in part.aggregator for part in parts.values())


def with_values(answer: Answer, keys: Iterable[str], resolve: Resolve) -> Answer:
    """The answer with a value, or the reason why there is none, for each key.

    Args:
        keys: what functions of the job may give back.
        resolve: gives the function of the user's that puts values together, from a list of them.
    """
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    if answer.values_lost:
        # What is known is a part of it, or may be.
        return replace(answer, parts={}, values_lost=False, errors=dict.fromkeys(keys, LOST))
    for key, part in sorted(answer.parts.items()):
        if part.error:
            errors[key] = part.error
            continue
        try:
            values[key] = _value(part, resolve)
        except OnyxError as error:
            errors[key] = str(error)
        except BaseException as error:
            errors[key] = str(contained(error, part.aggregator))
    return replace(answer, values=values, parts={}, errors=errors)


def _value(part: Part, resolve: Resolve) -> Any:
    return resolve(part.aggregator)(part.value) if ":" in part.aggregator else part.value
