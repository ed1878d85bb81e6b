"""Requests over HTTP to several worker processes, of which one dies meanwhile."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest
import urllib3
from msgspec.structs import replace
from tests.support.patience import WAIT_S
from tests.support.servers.processes import workers_of

from onyx import api
from onyx.cli.local_run import local_cluster
from onyx.settings import HttpSettings, Settings, StateSettings, ZooKeeperSettings

pytestmark = pytest.mark.server

TURN_S = 0.1
TURNS_MAX = int(WAIT_S / TURN_S)
ORDERS = 40


def taken(url: str, number: int) -> int:
    """Send an order under its key until it is answered for good; how often that took."""
    waiter = threading.Event()
    for turn in range(TURNS_MAX):
        try:
            response = urllib3.request(
                "POST",
                url,
                json={"n": number},
                headers={"Idempotency-Key": f"order-{number}"},
                timeout=30,
                retries=False,
            )
            if response.status == 200:
                return turn + 1
            assert response.status in (404, 429, 503, 504), response.data
        except urllib3.exceptions.HTTPError:
            pass  # the process that had accepted it has died
        waiter.wait(TURN_S)
    raise AssertionError(number)


def await_workers(count: int) -> None:
    """Requests may all have been taken before the process is back that was killed."""
    pause = threading.Event()
    for _ in range(TURNS_MAX):
        if len(workers_of(psutil.Process())) == count:
            return
        pause.wait(TURN_S)
    raise AssertionError(f"of {count} processes there are {workers_of(psutil.Process())}")


@pytest.mark.slow
def test_a_process_that_dies_costs_no_order_and_makes_none_twice(tmp_path: Path) -> None:
    settings = replace(
        Settings(),
        data_dir=str(tmp_path),
        zookeeper=ZooKeeperSettings(session_timeout_s=4.0),
        http=HttpSettings(port=0),
        state=StateSettings(token_file="tokens"),
    )
    (tmp_path / "tokens").write_text("secret\n")
    job = {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "orders"},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["in", "out"]],
            "catalog": [
                {"name": "in", "type": "input", "plugin": "http", "options": {"partitions": 2}},
                {
                    "name": "out",
                    "type": "output",
                    "plugin": "files",
                    "options": {"path": "out", "format": "jsonl"},
                },
            ],
        },
    }
    with local_cluster(settings, [2, 2]) as (client, workers, env):
        submitted = api.submit_job(env, job).job
        url = f"http://127.0.0.1:{workers.http_port}/jobs/orders/in"
        taken(url, 0)
        shown = urllib3.request(
            "GET",
            f"http://127.0.0.1:{workers.http_port}/jobs/{submitted}/state",
            headers={"Authorization": "Bearer secret"},
            timeout=30,
        )
        assert (shown.status, shown.json()) == (200, {"states": []})
        sending = [threading.Thread(target=taken, args=(url, n)) for n in range(1, ORDERS)]
        for number, each in enumerate(sending):
            each.start()
            if number == ORDERS // 4:
                workers_of(psutil.Process())[0].kill()
        for each in sending:
            each.join()
        await_workers(2)
        client.drain(submitted)
        client.wait(submitted, WAIT_S)
    rows = [
        json.loads(line)["n"]
        for file in (tmp_path / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert Counter(rows) == Counter(range(ORDERS))
