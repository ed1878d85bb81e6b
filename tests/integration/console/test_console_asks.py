"""Pages that ask real workers: what they do now, what a job keeps, what becomes of a segment."""

from __future__ import annotations

import http.cookiejar
import re
import threading
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster
from tests.unit.console.test_console_pages import plain

from onyx.console.serve import ConsoleOptions, serving
from onyx.ids import TaskName
from onyx.log.server.process import ZooKeeperServer

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,  # workers; what the pages say is tested without any
]
JOB = {
    "apiVersion": "onyx.dev/v1beta1",
    "kind": "OnyxJob",
    "metadata": {"name": "shop"},
    "spec": {
        "workflow": [["orders", "total"], ["total", "out"]],
        "catalog": [
            {"name": "orders", "type": "input", "plugin": "requests", "maxPeers": 1},
            {"name": "total", "type": "function", "fn": "totals:add", "groupByKey": "who",
             "fluxPolicy": "continue", "deduplicate": False, "state": {"spent": "value[int]"}},
            {"name": "out", "type": "output", "plugin": "blackhole", "maxPeers": 1},
        ],
    },
}  # fmt: skip
CODE = """
def add(segment, state):
    state.spent = (state.spent or 0) + segment["n"]
    return segment
"""


class Visitor:
    """Somebody with a browser that keeps cookies."""

    def __init__(self, address: str) -> None:
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(cookies)
        self.home = address.partition("/login")[0].rstrip("/")
        self._opener.open(address).close()

    def page(self, path: str, **fields: str) -> str:
        data = urllib.parse.urlencode(fields).encode() if fields else None
        asked = urllib.request.Request(self.home + path, data, {"Origin": self.home})
        with self._opener.open(asked) as answer:
            text: str = answer.read().decode()
            return text

    def see(self, path: str, pattern: str) -> None:
        """Load a page until it says something: workers look at their tasks every two seconds."""
        until = threading.Event()
        for _ in range(int(WAIT_S / 0.2)):
            text = plain(self.page(path))
            if re.search(pattern, text):
                return
            until.wait(0.2)
        raise AssertionError(f"{path} does not say {pattern!r}: {text}")


def test_a_segment_that_is_appended_is_seen_in_what_the_job_keeps(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    (tmp_path / "totals.py").write_text(CODE)
    with Cluster(zookeeper.address, tmp_path, tmp_path / "totals.py") as cluster:
        cluster.start_workers(2, peers=2)
        job = cluster.submit(JOB)
        cluster.await_ready(job)
        options = ConsoleOptions(port=0, has_actions=True)
        with serving(cluster.client, cluster.settings, options) as address:
            ada = Visitor(address)
            seal = re.findall(r'name="seal" value="([^"]*)"', ada.page(f"/append/{job}"))[-1]
            segment = '{"who": "ada", "n": 7}'
            answer = plain(ada.page(f"/append/{job}", seal=seal, segment=segment, level="ack"))
            assert "Processed after" in answer
            state = plain(ada.page("/ask?job=shop&state=total.spent&key=ada"))
            assert re.search(r"Key State ada 7\b", state)
            assert "Nothing is kept" in plain(ada.page("/ask?job=shop&state=total.spent&key=bob"))

            task = f"/jobs/{job}/tasks/total"
            ada.see(task, "Groups 1 What runs now .* read-batch .* read-batch")
            ada.see("/cluster", "Workers with the same replica as the log 2 of 2")
            (peer, *_) = cluster.replica.run(job).allocation[TaskName("total")]
            ada.see(f"/peers/{peer}", "Does read-batch .* Memory of the process")
