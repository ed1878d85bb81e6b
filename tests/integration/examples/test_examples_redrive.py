"""The example of dead letters that go in again, run as its page says."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import WAIT_S, rounds
from tests.support.servers.processes import ran, running

EXAMPLE = Path(__file__).parents[3] / "examples" / "redrive"
Redrive = Callable[..., dict[str, Any]]


def lines(folder: Path) -> list[dict[str, Any]]:
    parts = sorted(folder.glob("part-*")) if folder.exists() else []
    return [json.loads(line) for part in parts for line in part.read_text("utf-8").splitlines()]


def ids(folder: Path) -> list[int]:
    return sorted(each.get("segment", each)["id"] for each in lines(folder))


@pytest.mark.server
def test_letters_go_in_once_when_what_was_wrong_is_mended(tmp_path: Path) -> None:
    folder = tmp_path / "redrive"
    shutil.copytree(EXAMPLE, folder)
    with running(folder, "run", "job.yaml") as (job, printed):
        line = next(each for each in printed if "onyx append" in each)
        found = re.search(r"--log (\S+)", line)
        assert found is not None, line

        def redrive(*more: str) -> Any:
            words = ("redrive", "prices", "price", "--tenancy", "run", "--log", found[1])
            done = ran(folder, *words, *more, timeout_s=WAIT_S)
            assert done.returncode == 0, done.stdout + done.stderr
            return json.loads(done.stdout) if "--json" in more else done.stdout

        assert any(ids(folder / "bad") == [2, 4, 5] for _ in rounds())
        would = redrive("--dry-run")
        assert would.startswith(f"3 letters of {folder}/bad would go into again of job prices")
        assert "3  KeyError (shop.py, line 9), as in KeyError: " in would
        (folder / "prices.json").write_text('{"tea": 3, "cake": 5, "coffee": 4}')
        went = redrive("--json")
        assert (went["redriven"], went["outcomes"]) == (3, {"dead_letters": 1})
        assert ids(folder / "out") == [1, 2, 3, 5]
        assert any(ids(folder / "bad") == [2, 4, 4, 5] for _ in rounds())
        once_more = redrive("--json")
        assert (once_more["redriven"], once_more["left"]) == (1, {"redriven before": 3})
        history = redrive("--history").splitlines()
        assert [re.search(r" (\d+ of price: .*)", each)[1] for each in history] == [  # type: ignore[index]
            "3 of price: 1 dead letters",
            "1 of price: 1 dead letters",
        ]
        job.terminate()
        job.wait(WAIT_S)
    assert ids(folder / "out") == [1, 2, 3, 5]
