"""Data of the benchmarks in a folder of the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import data, onyx_run
from benchmarks.peers import CONTENDERS


@pytest.fixture
def bench_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where data sets are made."""
    monkeypatch.setattr(data, "ROOT", tmp_path / "bench-data")
    return tmp_path / "bench-data"


@pytest.fixture(scope="module")
def programs() -> Iterator[None]:
    """Programs that are compared, and the functions of jobs, are modules that can be imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(onyx_run.JOBS))
        patch.syspath_prepend(str(CONTENDERS))
        yield
