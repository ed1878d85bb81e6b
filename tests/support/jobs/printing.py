"""What jobs of a folder of examples print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onyx.model.parsing.job import parse_manifest
from onyx.testing import TestEnv


def printed(file: Path, env: TestEnv, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The segments that a job prints, in the order of the text: groups have none."""
    status = env.run(parse_manifest(file.read_text("utf-8"), file.name))
    assert status.state == "completed", status
    return [json.loads(line) for line in sorted(capsys.readouterr().out.splitlines())]
