"""What unit tests of several areas share."""

from __future__ import annotations

import pytest

from onyx.storage import s3
from onyx.storage.s3 import Trailing


@pytest.fixture
def trailing(monkeypatch: pytest.MonkeyPatch) -> Trailing:
    """Writes the notes of object stores when the test says so."""
    made = Trailing(lambda work: None)
    monkeypatch.setattr(s3, "TRAILING", made)
    return made
