"""The example of joins with tables, run as its page says, and as a query of Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.processes import ran
from tests.support.spark.query import publish_all, request_of, run_query

from onyx.model.parsing.job import parse_manifest

EXAMPLE = Path(__file__).parents[3] / "examples" / "joins"
TIMEOUT_S = 120.0
PRICES = {1: 4.5, 2: 5.0, 3: 4.9, 4: None}


def lines(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted(folder.glob("part-*"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def check(folder: Path) -> None:
    priced = lines(folder / "out" / "priced")
    assert {each["order"]: each["price"] for each in priced} == PRICES
    assert {each["name"] for each in priced} == {"Green tea", "Cup with a handle"}
    assert [each["order"] for each in lines(folder / "out" / "unknown")] == [5]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "joins", ignore=shutil.ignore_patterns("out"))
    return tmp_path / "joins"


@pytest.mark.server
def test_orders_get_the_price_that_was_valid(folder: Path) -> None:
    done = ran(folder, "run", "job.yaml", timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    check(folder)


def test_they_get_it_as_a_query_of_spark_too(folder: Path) -> None:
    text = (folder / "job.yaml").read_text().replace("spec:\n", "spec:\n  engine: spark\n")
    request = request_of(parse_manifest(text), folder, ())
    reply = run_query(request)
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    check(folder)
