"""The example of requests over HTTP, run as its page says."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3
from tests.support.patience import WAIT_S
from tests.support.servers.processes import running

EXAMPLE = Path(__file__).parents[3] / "examples" / "http-requests"
TURN_S = 0.1
TURNS_MAX = int(WAIT_S / TURN_S)


@contextmanager
def taking(folder: Path) -> Iterator[str]:
    """Where the job of a folder takes requests."""
    with running(folder, "run", "job.yaml") as (process, printed):
        line = next(each for each in printed if "curl" in each)
        found = re.search(r"http://\S+", line)
        assert found, line
        assert "Bearer TOKEN" in line
        yield found[0]
        process.terminate()
        process.wait(WAIT_S)


def post(url: str, order: dict[str, Any], **headers: str) -> tuple[int, dict[str, Any]]:
    """The answer, once the job runs."""
    waiter = threading.Event()
    for _ in range(TURNS_MAX):
        given = {"Idempotency-Key": "order-1", **headers}
        response = urllib3.request("POST", url, json=order, headers=given, timeout=WAIT_S)
        if response.status not in (404, 503):
            return response.status, response.json()
        waiter.wait(TURN_S)
    raise AssertionError(response.data)


@pytest.mark.server
def test_an_order_is_priced_once_and_only_with_the_token(tmp_path: Path) -> None:
    folder = tmp_path / "http-requests"
    shutil.copytree(EXAMPLE, folder)
    token = {"Authorization": "Bearer open-sesame"}
    tea = {"item": "tea", "count": 2}
    with taking(folder) as url:
        assert post(url, tea)[0] == 401
        for _ in range(2):
            code, answer = post(url, tea, **token)
            assert (code, answer["status"], answer["segments"]) == (200, "processed", 1)
        assert post(url, {"item": "coffee", "count": 1}, **token)[0] == 409
        files = (folder / "out").glob("*.jsonl")
        rows = [json.loads(line) for each in files for line in each.read_text().splitlines()]
    assert rows == [{"item": "tea", "count": 2, "price": 7.0}]
