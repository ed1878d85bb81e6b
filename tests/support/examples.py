"""How many examples property tests try: all in `make test-all`, a tenth in `make test`.

The profile of Hypothesis says so, which `tests.support.suite.tiers` chooses. Tests that need
another number than its default say it here, so that the profile counts for them too.
"""

from __future__ import annotations

from hypothesis import settings
from tests.support.suite.tiers import EXAMPLES


def examples(full: int) -> int:
    """As many as the profile tries of so many, and one at least."""
    return max(1, full * settings().max_examples // EXAMPLES["full"])
