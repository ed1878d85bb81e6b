"""Jobs that are a manifest alone print what their page says, without a module of Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onyx.model.parsing.job import parse_manifest
from onyx.settings import Settings
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
FOLDER = Path(__file__).parents[3] / "examples" / "sql"


@pytest.fixture
def env(tmp_path: Path) -> Iterator[TestEnv]:
    (tmp_path / "trips.jsonl").write_bytes((FOLDER / "trips.jsonl").read_bytes())
    settings = Settings(data_dir=str(tmp_path), spark_master="local[1]")
    with with_test_env(5, modules=[], settings=settings) as env:
        yield env


def in_page() -> list[list[dict[str, Any]]]:
    """The blocks of rows of the page."""
    blocks = (FOLDER / "README.md").read_text("utf-8").split("\n\n")
    lines = [block.splitlines() for block in blocks if block.startswith("    {")]
    return [sorted(map(json.loads, block), key=str) for block in lines]


@pytest.mark.parametrize(
    ("file", "block"),
    [("job.yaml", 0), pytest.param("drivers.yaml", 1, marks=pytest.mark.slow)],
)
def test_a_manifest_alone_is_a_job(
    env: TestEnv, capsys: pytest.CaptureFixture[str], file: str, block: int
) -> None:
    status = env.run(parse_manifest((FOLDER / file).read_text("utf-8"), file), 240.0)
    assert status.state == "completed", status
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(printed, key=str) == in_page()[block]
