"""Collecting problems: checking a manifest never stops at the first mistake.

Every check gets a `Report` and a path and adds what it finds; a value that cannot be used is
replaced by `INVALID`, so that later checks distinguish "wrong, and reported" from "absent".
Rejected: exceptions for single mistakes, because a user mends a file faster with all of them. But a
stranger's file may hold thousands: so a check ends with the hundredth (`Report.until_full`).
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from heapq import nlargest
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from onyx.errors import Problem

ROOT = "manifest"
"""Path of the document itself."""
PROBLEMS_MAX = 100
"""More are not kept: nobody reads them, and each may take long to find the words for."""
_SHOWN_CHARACTERS_MAX = 60
_KEY_CHARACTERS_MAX = 100
_WORD_CHARACTERS_MAX = 80
_COMPARED_MAX = 64
"""Words that are compared with a misspelled one as a whole, which takes long."""
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


class _Invalid:
    def __repr__(self) -> str:
        return "INVALID"


INVALID: Final = _Invalid()
"""Stands for a value about which a problem has been reported."""


class _Full(Exception):
    """Nothing more is looked for."""


class Report:
    """The problems found so far."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._silent: set[str] = set()
        self._more = False
        self._ends = False

    @contextlib.contextmanager
    def until_full(self) -> Iterator[None]:
        """A check, which ends where it finds more than is kept."""
        self._ends = True
        with contextlib.suppress(_Full):
            yield
        self._ends = False

    def add(self, path: str, message: str, hint: str = "") -> None:
        """One problem, unless the value at `path` was said to be unreadable already."""
        if path in self._silent:
            return
        if len(self._problems) >= PROBLEMS_MAX:
            self._more = True
            if self._ends:
                raise _Full
            return
        self._problems.append(Problem(path or ROOT, message, hint))

    def end(self, message: str) -> NoReturn:
        """A problem with all of it, which ends the check."""
        assert self._ends, "only a check ends"
        self.unreadable("", message)
        raise _Full

    def unreadable(self, path: str, message: str, hint: str = "") -> None:
        """A problem after which no other about the same path makes sense."""
        self.add(path, message, hint)
        self._silent.add(path)

    def problems(self, lines: dict[str, int] | None = None, source: str = "") -> list[Problem]:
        """All problems in the order of the file, with file and line where `lines` has them."""
        found = list(self._problems)
        if lines is not None:
            found = placed(found, lines, source)
        if self._more:
            found.append(Problem(ROOT, "and more problems, which are shown when these are mended"))
        return found

    def __bool__(self) -> bool:
        return bool(self._problems)


def placed(problems: Iterable[Problem], lines: dict[str, int], source: str) -> list[Problem]:
    """Problems with file and line, in the order of the file; `lines` as `read_text` gives them."""
    found = sorted(problems, key=lambda each: _line(each.path, lines))
    return [replace(each, where=f"{source}:{_line(each.path, lines)}") for each in found]


def at(path: str, key: str | int) -> str:
    """The path of a child: `spec.catalog`, `[2]`, `.batchSize` as the user would write it."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    plain = len(key) <= _KEY_CHARACTERS_MAX and _PLAIN_KEY.match(key)
    name = key if plain else f"[{show(key)}]"
    return f"{path}.{name}" if path and not name.startswith("[") else f"{path}{name}"


def within(path: str, inner: str) -> str:
    """The path of what stands at `inner` below `path`."""
    return f"{path}.{inner}" if inner and not inner.startswith("[") else f"{path}{inner}"


def show(value: Any) -> str:
    """A value as an error message shows it: short whatever it is."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 64:
        return "an integer beyond 64 bits"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        text = ascii(value[: _SHOWN_CHARACTERS_MAX + 1])[1:-1]
        return f'"{text}"' if len(value) <= _SHOWN_CHARACTERS_MAX else f'"{text[:57]}..."'
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if isinstance(value, dict):
        return "a mapping"
    return f"a value of type {type(value).__name__}"


def listed(words: Iterable[str]) -> str:
    """Words in a list for a person: `a, b or c`."""
    names = list(words)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def nearest(word: str, known: Iterable[str]) -> str:
    """ "did you mean ...?", or nothing when no known word is near."""
    names = list(known)
    folded = {_folded(name): name for name in names}
    word = word[:_WORD_CHARACTERS_MAX]
    plain = _folded(word.rsplit("/", 1)[-1])
    if plain in folded:
        return f"did you mean {folded[plain]}?"
    if len(names) > _COMPARED_MAX:
        names = nlargest(_COMPARED_MAX, names, key=lambda name: _ends_shared(word, name))
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else ""


@lru_cache(4_096)
def _folded(word: str) -> str:
    """A word without what people write in different ways."""
    return re.sub(r"[^a-z0-9]", "", word.lower())


def _ends_shared(word: str, name: str) -> int:
    """How many characters two words have in common at their beginnings and ends."""
    return _beginning_shared(word, name) + _beginning_shared(word[::-1], name[::-1])


def _beginning_shared(word: str, name: str) -> int:
    for index, (left, right) in enumerate(zip(word, name, strict=False)):
        if left != right:
            return index
    return min(len(word), len(name))


def _line(path: str, lines: dict[str, int]) -> int:
    while path not in lines:
        cut = max(path.rfind("."), path.rfind("["))
        if cut <= 0:
            return lines.get("", 1)
        path = path[:cut]
    return lines[path]
