"""Dead letters go in once each, whatever dies: who redrives, and who works."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.yaml_jobs import job_of
from tests.support.patience import rounds
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import onyx, running

from onyx import api
from onyx.log.server.process import ZooKeeperServer
from onyx.settings import to_environment

pytestmark = [pytest.mark.server, pytest.mark.slow]
MODULE = Path(__file__).with_name("redrive_job.py")
LETTERS = 16_000
KILLS = 5


def job(folder: Path) -> dict[str, Any]:
    files = {"type": "output", "plugin": "files"}
    return job_of(
        "mending",
        {
            "guarantee": "exactly-once",
            "workflow": [["in", "work"], ["again", "work"], ["work", "out"]],
            "catalog": [
                {"name": "in", "type": "input", "plugin": "requests"},
                {"name": "again", "type": "input", "plugin": "requests"},
                {"name": "work", "type": "function", "fn": "redrive_job:work", "deadLetter": "bad"},
                {"name": "out", **files, "options": {"path": str(folder / "out")}},
                {"name": "bad", **files, "options": {"path": str(folder / "bad")}},
            ],
        },
    )


def numbers(folder: Path, number: Callable[[Any], int]) -> Counter[int]:
    parts = sorted(folder.glob("part-*"))
    rows = (row for part in parts for row in part.read_text("utf-8").splitlines())
    return Counter(number(json.loads(row)) for row in rows)


def test_each_letter_goes_in_once_whoever_is_killed(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    chance = random.Random(7)
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        workers = cluster.start_workers(3, 3)
        found = cluster.submit(job(tmp_path))
        cluster.await_ready(found)
        with api.appender(cluster.settings, found, "in") as appender:
            for first in range(0, 2 * LETTERS, 4_000):
                rows = [{"n": n, "folder": str(tmp_path)} for n in range(first, first + 4_000)]
                appender.append(rows)
        odd = Counter(range(1, 2 * LETTERS, 2))
        bad = tmp_path / "bad"
        assert any(numbers(bad, lambda each: each["segment"]["n"]) == odd for _ in rounds())
        (tmp_path / "mended").touch()
        words = ("redrive", found, "work", "--into", "again", "--json")
        environment = to_environment(cluster.settings)
        for kill in range(KILLS):
            before = len(list(bad.glob("_redriven/*")))
            with running(tmp_path, *words, environment=environment) as (_, _):
                # Between two marks, wherever that is.
                assert any(len(list(bad.glob("_redriven/*"))) > before for _ in rounds())
                time.sleep(chance.random() / 10)
                if kill % 4 == 1:
                    workers.pop().kill()
                    workers.append(cluster.start_worker(3))
        at_once = [running(tmp_path, *words, environment=environment) for _ in range(2)]
        with at_once[0] as (first, _), at_once[1] as (second, _):
            assert (first.wait(120.0), second.wait(120.0)) == (0, 0)
        last = onyx(cluster.settings, *words)
        assert json.loads(last.stdout)["left"] == {"redriven before": LETTERS}, last.stderr
        cluster.client.drain(found)
        cluster.await_completed(found)
        assert numbers(tmp_path / "out", lambda each: each["n"]) == Counter(range(2 * LETTERS))
