"""The example of requests to an endpoint, run as its page says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.ports import free_port
from tests.support.servers.processes import ran

EXAMPLE = Path(__file__).parents[3] / "examples" / "http"
TIMEOUT_S = 120.0


def lines(*paths: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.server
def test_every_order_is_taken_once_and_the_odd_one_becomes_a_letter(tmp_path: Path) -> None:
    folder = tmp_path / "http"
    shutil.copytree(EXAMPLE, folder)
    port = free_port()
    job = folder / "job.yaml"
    job.write_text(job.read_text().replace("8089", str(port)))
    with subprocess.Popen(
        [sys.executable, "shop.py", str(port)], cwd=folder, stderr=subprocess.DEVNULL
    ) as shop:
        try:
            # The shop may not listen yet: what cannot be reached is tried again.
            done = ran(folder, "run", "job.yaml", timeout_s=TIMEOUT_S)
        finally:
            shop.kill()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 7 segments of send went to dead letters; first error: 422" in done.stdout
    taken = lines(folder / "taken.jsonl")
    assert sorted(each["id"] for each in taken) == [1, 2, 3, 5, 6, 7]
    (letter,) = lines(*(folder / "refused").glob("part-*"))
    assert letter["segment"]["id"] == 4
    assert letter["error"]["message"] == "422 Unprocessable Entity: an order needs a customer"
