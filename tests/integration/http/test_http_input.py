"""The http input in a real cluster: what is taken, once, and what clients learn of it."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import urllib3
from msgspec.structs import replace
from tests.support.patience import WAIT_S

from onyx import api
from onyx.client.appending import appender
from onyx.ledger.outcomes import NOTHING, plain
from onyx.settings import HttpSettings, Settings
from onyx.testing.env import TestEnv, with_test_env

pytestmark = pytest.mark.server

TURN_S = 0.02
TURNS_MAX = int(WAIT_S / TURN_S)
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    with with_test_env(3, (), replace(Settings(), http=HttpSettings(port=0))) as env:
        yield env


class Orders:
    """A job that writes what it is handed, and its client."""

    def __init__(self, env: TestEnv, folder: Path, name: str, **options: Any) -> None:
        self.env, self.folder, self.name = env, folder / "out", name
        self.url = f"http://127.0.0.1:{env.group.http_port}/jobs/{name}/in"
        self.pool = urllib3.PoolManager()
        self.job = env.submit(
            {
                "apiVersion": "onyx.dev/v1beta1",
                "kind": "OnyxJob",
                "metadata": {"name": name},
                "spec": {
                    "guarantee": "exactly-once",
                    "workflow": [["in", "out"]],
                    "catalog": [
                        {"name": "in", "type": "input", "plugin": "http", "options": options},
                        {
                            "name": "out",
                            "type": "output",
                            "plugin": "files",
                            "options": {"path": str(self.folder), "format": "jsonl"},
                        },
                    ],
                },
            }
        )
        self._await_known()

    def _await_known(self) -> None:
        waiter = threading.Event()
        for _ in range(TURNS_MAX):
            ended = self.env.client.status(self.job).state in ("failed", "killed", "completed")
            if ended or self.post(b"")[0] not in (404, 503):
                return
            waiter.wait(TURN_S)

    def post(
        self, body: bytes | Any, query: str = "", **headers: str
    ) -> tuple[int, dict[str, Any]]:
        given = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = self.pool.request(
            "POST", self.url + query, body=data, headers=given, retries=False, timeout=30
        )
        return response.status, response.json()

    def takes(self, body: bytes | Any, query: str = "", **headers: str) -> dict[str, Any]:
        """The answer that is none to come again."""
        waiter = threading.Event()
        for _ in range(TURNS_MAX):
            code, answer = self.post(body, query, **headers)
            if code not in (429, 503, 504):
                return {"code": code, **answer}
            waiter.wait(TURN_S)
        raise AssertionError(answer)

    def rows(self) -> Counter[str]:
        files = self.folder.glob("*.jsonl")
        lines = [line for file in files for line in file.read_text().splitlines()]
        return Counter(json.dumps(json.loads(line)) for line in lines)

    def end(self) -> Counter[str]:
        """All that was written, once the job has ended."""
        self.env.client.drain(self.job)
        self.env.client.wait(self.job, WAIT_S)
        assert self.env.client.status(self.job).state == "completed"
        return self.rows()


def test_what_is_answered_with_200_is_durable_in_the_outputs(env: TestEnv, tmp_path: Path):
    orders = Orders(env, tmp_path, "durable", partitions=2)
    assert orders.takes({"n": 1}) == {
        "code": 200,
        "status": "processed",
        "reason": "",
        "segments": 1,
        **plain(NOTHING),
        "values": {},
        "errors": {},
        "refused": {},
    }
    assert orders.rows() == {'{"n": 1}': 1}
    assert orders.takes([{"n": 2}, {"n": 3}])["segments"] == 2
    assert orders.rows().total() == 3
    assert orders.end().total() == 3


def test_each_type_and_level_is_taken(env: TestEnv, tmp_path: Path):
    orders = Orders(env, tmp_path, "types")
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_pylist([{"n": 3}, {"n": 4}])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    sent: list[tuple[bytes, str, str, int]] = [
        (b'{\n "n": 0\n}', "application/json", "ack", 200),
        (b'{"n": 1}\n{"n": 2}\n', "application/x-ndjson", "journal", 202),
        (sink.getvalue().to_pybytes(), "application/vnd.apache.arrow.stream", "none", 202),
    ]
    for body, kind, ack, code in sent:
        assert orders.takes(body, f"?ack={ack}", Content_Type=kind)["code"] == code
    assert orders.end() == {f'{{"n": {n}}}': 1 for n in range(5)}


def test_a_request_is_taken_once_under_its_key_from_whichever_side(env: TestEnv, tmp_path: Path):
    orders = Orders(env, tmp_path, "once", partitions=3, partitionKey="n")
    for _ in range(3):
        assert orders.takes([{"n": n} for n in range(9)], Idempotency_Key="a")["segments"] == 9
    conflict = orders.takes({"n": 10}, Idempotency_Key="a")
    assert (conflict["code"], conflict["status"]) == (409, "conflict")
    with appender(env.settings, "once", "in") as other:
        other.append({"n": 11}, id="b")
    assert orders.end() == {f'{{"n": {n}}}': 1 for n in (*range(9), 11)}


def test_what_is_wrong_is_named_by_row(env: TestEnv, tmp_path: Path):
    orders = Orders(env, tmp_path, "wrong")
    found = orders.takes([{"n": 1}, {"n": 2**70}])
    assert (found["code"], list(found["refused"])) == (422, ["1"])
    for body in (b"", b"[]", b"{", b"1", b'"x"', b"[1]", b"\xff"):
        assert orders.takes(body)["code"] == 400
    assert orders.end().total() == 0


def test_jobs_have_tokens_of_their_own(
    env: TestEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "token").write_text("first\n")
    monkeypatch.setenv("SECOND_TOKEN", "second")
    first = Orders(env, tmp_path / "1", "first-job", tokenFile=str(tmp_path / "token"))
    second = Orders(env, tmp_path / "2", "second-job", tokenEnv="SECOND_TOKEN")
    for orders, own, other in ((first, "first", "second"), (second, "second", "first")):
        assert orders.takes({"n": 1})["code"] == 401
        assert orders.takes({"n": 1}, Authorization=f"Bearer {other}")["code"] == 401
        assert orders.takes({"n": 1}, Authorization=f"Bearer {own}")["code"] == 200
        assert orders.end().total() == 1


def test_a_token_that_is_not_there_ends_the_job(env: TestEnv, tmp_path: Path):
    orders = Orders(env, tmp_path, "no-token", tokenFile=str(tmp_path / "none"))
    env.client.wait(orders.job, WAIT_S)
    status = env.client.status(orders.job)
    assert status.state == "failed"
    assert orders.takes({"n": 1})["code"] == 404


def test_a_suspended_job_says_that_it_is(env: TestEnv, tmp_path: Path):
    orders = Orders(env, tmp_path, "asleep")
    assert orders.takes({"n": 1})["code"] == 200
    env.client.suspend(orders.job)
    waiter = threading.Event()
    for _ in range(TURNS_MAX):
        code, answer = orders.post({"n": 2})
        if code == 503:
            break
        waiter.wait(TURN_S)
    assert "suspended" in answer["reason"]
    env.client.resume(orders.job)
    assert orders.takes({"n": 3})["code"] == 200
    orders.end()


def test_many_clients_are_answered_at_once(env: TestEnv, tmp_path: Path):
    orders = Orders(env, tmp_path, "many", partitions=2)
    orders.takes({"n": "first"})
    codes: list[int] = []

    def send(client: int) -> None:
        mine = Orders.__new__(Orders)
        mine.__dict__.update(orders.__dict__, pool=urllib3.PoolManager())
        codes.extend(mine.takes({"n": f"{client} {n}"})["code"] for n in range(10))

    threads = [threading.Thread(target=send, args=(each,)) for each in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert codes == [200] * 80
    assert orders.end().total() == 81


def test_a_group_that_has_left_takes_nothing(tmp_path: Path):
    found = replace(api.Settings(), http=HttpSettings(port=0))
    with with_test_env(1, (), found) as env:
        url = f"http://127.0.0.1:{env.group.http_port}/jobs/x/y"
        pool = urllib3.PoolManager()
        # It has not read yet that it has joined, so there may be such a job.
        until_read = urllib3.Retry(int(WAIT_S), status_forcelist=[503], allowed_methods=None)
        answer = pool.request("POST", url, body=b"{}", headers=JSON, retries=until_read)
        assert answer.status == 404
        api.shutdown_peer_group(env.group)
        with pytest.raises(urllib3.exceptions.HTTPError):
            pool.request("POST", url, body=b"{}", headers=JSON, retries=False)
