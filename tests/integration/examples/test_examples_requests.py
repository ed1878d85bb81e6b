"""The example of requests, run as its page says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.servers.processes import running

EXAMPLE = Path(__file__).parents[3] / "examples" / "requests"
TIMEOUT_S = 120.0


@pytest.mark.server
def test_orders_are_answered_with_their_total_and_taken_once(tmp_path: Path) -> None:
    folder = tmp_path / "requests"
    shutil.copytree(EXAMPLE, folder)
    with running(folder, "run", "job.yaml") as (job, printed):
        line = next(each for each in printed if "onyx append" in each)
        found = re.search(r"--log (\S+)", line)
        assert found is not None, line
        client = subprocess.run(
            [sys.executable, "client.py", found[1]],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        job.terminate()
        job.wait(TIMEOUT_S)
    assert client.stdout.splitlines() == ["{'orders': 3, 'total': 24}"] * 2, client.stderr
    parts = (folder / "out").glob("*.jsonl")
    lines = [line for part in parts for line in part.read_text("utf-8").splitlines()]
    assert sorted(json.loads(line)["order"] for line in lines) == [1, 2, 3]
