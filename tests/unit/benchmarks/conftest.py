"""Data of the benchmarks in a folder of the test."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import data


@pytest.fixture
def bench_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where data sets are made."""
    monkeypatch.setattr(data, "ROOT", tmp_path / "bench-data")
    return tmp_path / "bench-data"
