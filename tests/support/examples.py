"""How many examples property tests try: all in `make test`, a quarter in `make check`.

The profile of hypothesis says so. Tests that need another number than its default say it here, so
that the profile counts for them too.
"""

from __future__ import annotations

from hypothesis import settings

FULL = 100
"""Examples of a property that says nothing, in the profile of `make test`."""


def examples(full: int) -> int:
    """As many as the profile tries of so many, and one at least."""
    return max(1, full * settings().max_examples // FULL)
