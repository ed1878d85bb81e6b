"""The example of segments that fail, run as its page says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.processes import ran

EXAMPLE = Path(__file__).parents[3] / "examples" / "failures"
TIMEOUT_S = 120.0


def lines(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted(folder.glob("part-*"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


@pytest.mark.server
def test_the_job_sums_what_it_can_and_reports_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "failures"
    shutil.copytree(EXAMPLE, folder)
    done = ran(folder, "run", "job.yaml", timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    totals = {each["customer"]: each["total"] for each in lines(folder / "totals")}
    assert totals == {"ann": 11, "bob": 5}
    letters = lines(folder / "bad")
    found = {(each["task"], each["error"]["type"], each["segment"].get("item")) for each in letters}
    assert len(letters) == 3
    assert found == {
        ("price", "KeyError", "coffee"),
        ("price", "Refusal", "tea"),
        ("totals", "UserError", "tea"),
    }
