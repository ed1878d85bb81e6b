"""Requests into jobs, over gRPC between three groups: each is answered when its tree is done."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs import job_functions
from tests.support.jobs.yaml_jobs import FUNCTIONS, channel, manifest, taken, until
from tests.support.patience import WAIT_S

from onyx import api
from onyx.client.appender import NO_TOKEN, Appender, NotTaken, NotYetTaken, RequestFailed
from onyx.client.appending import addresses_of
from onyx.ids import JobId
from onyx.plugins.channel import Channel
from onyx.requests.request import Status
from onyx.settings import ClientSettings
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
GIVING = "tests.support.jobs.request_functions"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def env() -> Iterator[TestEnv]:
    """Three groups: whoever is asked, the owner of a partition is mostly another one."""
    with with_test_env(2, modules=[FUNCTIONS, GIVING]) as env:
        groups = [api.start_peer_group(env.settings) for _ in range(2)]
        for group in groups:
            api.start_peers(2, group)
        yield env
        for group in groups:
            api.shutdown_peer_group(group)


class Running:
    """A job that takes requests, and an appender to it."""

    def __init__(
        self, env: TestEnv, fn: str, read: str, form: str, spec: str, client: ClientSettings
    ) -> None:
        self.env = env
        is_class = fn.partition(":")[2][:1].isupper()
        does = f'processor: "{fn}"' if is_class else f'fn: "{fn}"'
        self.target: Channel = channel()
        self.name = f"requests-{next(_numbers)}"
        self.job: JobId = env.submit(
            manifest(
                f"""
        workflow: [[in, work], [work, out]]
        catalog:
          - {{name: in, type: input, plugin: requests, options: {{{read}}}}}
          - {{name: work, type: function, {does}, batchFormat: {form}}}
          - {{name: out, type: output, plugin: channel, options: {{channel: {self.target.name}}}}}
        {spec}
    """,
                self.name,
            )
        )
        until(env, lambda replica: len(replica.run(self.job).ready) > 2)
        workers = addresses_of(env.client.replica())
        self.appenders = [Appender(each, self.name, "in", client=client) for each in workers]

    def end(self) -> list[dict[str, Any]]:
        """Drain the job; what it has written."""
        for appender in self.appenders:
            appender.close()
        self.env.client.drain(self.job)
        assert self.env.client.wait(self.job, WAIT_S)
        return taken(self.target)


def start(
    env: TestEnv,
    fn: str = "f:same",
    read: str = "",
    form: str = "dicts",
    spec: str = "",
    client: ClientSettings = NO_TOKEN,
) -> Running:
    return Running(env, fn, read, form, spec, client)


def test_an_ack_comes_when_the_segment_is_in_the_output(env: TestEnv) -> None:
    running = start(env)
    for number, appender in enumerate(running.appenders):
        answer = appender.append({"n": number})
        assert answer.status is Status.PROCESSED
        assert taken(running.target) == [{"n": number}]
    assert running.end() == []


@pytest.mark.parametrize("form", ["dicts", "arrow"])
def test_dicts_and_columns_come_to_functions_of_either_kind(env: TestEnv, form: str) -> None:
    running = start(env, "f:same", "partitions: 3, partitionKey: key", form)
    rows = [{"key": f"k{n % 7}", "n": n} for n in range(1_000)]
    running.appenders[0].append(rows[:500])
    answer = running.appenders[1].append(pa.RecordBatch.from_pylist(rows[500:]))
    assert answer.segments == 500
    assert sorted(running.end(), key=lambda row: row["n"]) == rows


def test_segments_of_one_key_keep_their_order(env: TestEnv) -> None:
    running = start(env, read='partitions: 4, partitionKey: "key"')
    for n in range(20):
        running.appenders[n % 3].append([{"key": key, "n": n} for key in "abc"])
    found = running.end()
    for key in "abc":
        assert [row["n"] for row in found if row["key"] == key] == list(range(20))


@pytest.mark.parametrize("read", ["", ', partitions: 4, partitionKey: "n"'])
def test_a_token_opens_an_input_whomever_the_request_is_sent_to(
    env: TestEnv, read: str, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("sesame\n")
    named = f"tokenFile: {tokens}{read}"
    running = start(env, read=named, client=ClientSettings(str(tokens)))
    rows = [{"n": n} for n in range(20)]
    for appender in running.appenders:
        assert appender.append(rows).segments == len(rows)
    for address in addresses_of(env.client.replica()):
        stranger = Appender(address, running.name, "in")
        with stranger, pytest.raises(NotTaken, match="wants a bearer token: give this client"):
            stranger.append(rows)
    assert len(running.end()) == len(rows) * len(running.appenders)


@pytest.mark.parametrize("read", ["", 'partitions: 4, partitionKey: "n"'])
def test_a_request_is_taken_once_under_its_id_whomever_it_is_sent_to(
    env: TestEnv, read: str
) -> None:
    running = start(env, read=read)
    rows = [{"n": n} for n in range(50)]
    for appender in running.appenders:
        assert appender.append(rows, id="once").status is Status.PROCESSED
    with pytest.raises(NotTaken, match="'once' was used before, for other segments"):
        running.appenders[0].append(rows[:49], id="once")
    assert len(running.end()) == 50


@pytest.mark.parametrize(
    ("fn", "read", "form"),
    [
        ("divided", "", "dicts"),
        ("divided", "partitions: 4, partitionKey: order", "dicts"),
        ("Dividing", "", "dicts"),
        ("Dividing", "partitions: 4, partitionKey: order", "dicts"),
        ("DividingColumns", "", "arrow"),
    ],
)
def test_segments_that_fail_are_the_answer_of_their_request_alone(
    env: TestEnv, fn: str, read: str, form: str
) -> None:
    running = start(env, f"{GIVING}:{fn}", read, form=form)
    rows = [{"order": n, "count": n % 10} for n in range(50)]
    for appender in running.appenders:
        with pytest.raises(RequestFailed, match="segment 0 of the request failed") as raised:
            appender.append(rows, id="some-fail")
        answer = raised.value.answer
        assert (answer.segments, answer.outcomes.failed) == (50, 5)
        assert [each.segment for each in answer.outcomes.failures] == [0, 10, 20, 30, 40]
        assert {each.task for each in answer.outcomes.failures} == {"work"}
    assert running.appenders[0].append(rows[1]).status is Status.PROCESSED
    assert len(running.end()) == 46


def test_an_appender_goes_on_with_the_worker_that_owns_the_input(env: TestEnv) -> None:
    running = start(env)
    owners = {each.append({"n": 0}).owner for each in running.appenders} - {""}
    assert len(owners) == 1, "two of three pass requests on, to the third"
    alone = {each.append({"n": 1}).owner for each in running.appenders} - {""}
    assert alone == owners, "who was given one worker stays with it"
    with Appender(addresses_of(env.client.replica()), running.name, "in") as appender:
        answers = [appender.append({"n": n}) for n in range(2)]
        assert answers[1].owner == ""
    running.end()


def test_what_functions_give_back_is_in_the_answer(env: TestEnv) -> None:
    own = f"{GIVING}:largest"
    running = start(
        env,
        f"{GIVING}:price",
        'partitions: 3, partitionKey: "order"',
        spec=f"ackReturns: {{total: sum, orders: count, seen: '{own}'}}",
    )
    orders = [{"order": n, "count": n} for n in range(10)]
    answer = running.appenders[2].append(orders)
    assert answer.values == {"total": 135, "orders": 10, "seen": 9}
    assert running.appenders[0].call({"order": 7, "count": 2}) == {
        "total": 6,
        "orders": 1,
        "seen": 7,
    }
    running.end()


@pytest.mark.parametrize("returns", ["", "ackReturns: {total: sum, large: collect}"])
def test_a_value_that_nobody_wants_or_that_is_too_large_ends_no_job(
    env: TestEnv, returns: str
) -> None:
    running = start(env, f"{GIVING}:large", spec=returns)
    answer = running.appenders[0].append([{"count": 2}, {"count": 3}])
    assert answer.status is Status.PROCESSED
    assert answer.values == ({"total": 5} if returns else {})
    assert list(answer.errors) == (["large"] if returns else [])
    running.end()


@pytest.mark.parametrize("form", ["dicts", "arrow"])
def test_processors_give_back(env: TestEnv, form: str) -> None:
    name = "Pricing" if form == "dicts" else "PricingColumns"
    running = start(env, f"{GIVING}:{name}", form=form, spec="ackReturns: {total: sum}")
    futures = [running.appenders[n % 3].send({"count": n}) for n in range(30)]
    assert [each.result(WAIT_S).values for each in futures] == [{"total": 3 * n} for n in range(30)]
    running.end()


def test_functions_over_columns_give_a_value_for_each_row(env: TestEnv) -> None:
    running = start(env, f"{GIVING}:counted", "", "arrow", "ackReturns: {rows: sum}")
    assert running.appenders[1].call([{"count": n} for n in range(30)]) == {"rows": 30}
    running.end()


def test_what_cannot_be_taken_is_said_with_its_reason(env: TestEnv) -> None:
    running = start(env, read='partitionKey: "n", partitions: 2')
    appender = running.appenders[0]
    with pytest.raises(NotTaken, match="partitionKey 'n'"):
        appender.append([{"m": 1}])
    elsewhere = Appender(addresses_of(env.client.replica()), "no-such-job")
    with pytest.raises(NotTaken, match="there is no job 'no-such-job'"):
        elsewhere.append({"n": 1})
    elsewhere.close()
    nowhere = Appender(addresses_of(env.client.replica()), running.name, "work")
    with pytest.raises(NotTaken, match="no input 'work' that takes requests; those that do: in"):
        nowhere.append({"n": 1})
    nowhere.close()
    running.end()


def test_a_suspended_job_says_so_and_takes_the_request_when_it_goes_on(env: TestEnv) -> None:
    running = start(env)
    env.client.suspend(running.job)
    until(env, lambda replica: not replica.run(running.job).allocation)
    with pytest.raises(NotYetTaken, match="is suspended") as raised:
        running.appenders[0].append({"n": 1}, timeout_s=0.5)
    env.client.resume(running.job)
    answer = running.appenders[1].append({"n": 1}, id=raised.value.id)
    assert answer.status is Status.PROCESSED
    assert running.end() == [{"n": 1}]


def test_what_is_in_the_journal_is_processed_although_the_job_drains(env: TestEnv) -> None:
    running = start(env)
    futures = [running.appenders[n % 3].send({"n": n}, ack="journal") for n in range(200)]
    assert {each.result(WAIT_S).status for each in futures} == {Status.JOURNALLED}
    assert len(running.end()) == 200


@pytest.mark.short(1)
@pytest.mark.parametrize("by", ["name", "id"])
def test_clients_of_a_job_are_answered_while_another_upgrades_it(
    env: TestEnv, by: str, tmp_path: Path
) -> None:
    name = f"upgraded-by-{by}"
    spec = f"""
        guarantee: exactly-once
        workflow: [[in, work], [work, out]]
        catalog:
          - name: in
            type: input
            plugin: requests
            options: {{partitions: 3, partitionKey: n}}
          - {{name: work, type: function, fn: "f:same"}}
          - {{name: out, type: output, plugin: files, options: {{path: {tmp_path}}}}}
        """
    old = env.submit(manifest(spec, name))
    until(env, lambda replica: len(replica.run(old).ready) > 2)
    workers = addresses_of(env.client.replica())
    appenders = [Appender(each, name if by == "name" else old) for each in workers]
    rows = [[{"n": n}, {"n": n + 100}] for n in range(60)]
    with ThreadPoolExecutor(6) as threads:
        answers = [threads.submit(appenders[n % 3].append, row) for n, row in enumerate(rows)]
        new = env.submit(manifest(f"{spec}upgrade: {{from: {old}}}", name))
        assert {each.result(WAIT_S).status for each in answers} == {Status.PROCESSED}
    for each in appenders:
        each.close()
    env.client.drain(new)
    assert env.client.wait(new, WAIT_S)
    lines = [line for part in tmp_path.glob("*.jsonl") for line in part.read_text().splitlines()]
    found = sorted(json.loads(line)["n"] for line in lines)
    assert found == sorted(each["n"] for row in rows for each in row)


def test_whoever_waits_is_answered_while_the_job_drains(env: TestEnv) -> None:
    running = start(env, "f:held")
    job_functions.gate.clear()
    rows = {f"id-{n}": {"n": n} for n in range(6)}
    futures = [running.appenders[n % 3].send(rows[id], id=id) for n, id in enumerate(rows)]
    for n, id in enumerate(rows):  # what came before it on the same stream waits by then
        running.appenders[n % 3].append(rows[id], ack="journal", id=id)
    env.client.drain(running.job)
    until(env, lambda replica: replica.run(running.job).draining)
    with pytest.raises(NotYetTaken, match="drains: it takes nothing new"):
        running.appenders[1].append({"n": 7}, timeout_s=0.5)
    again = running.appenders[2].send(rows["id-0"], id="id-0")
    running.appenders[2].append(rows["id-0"], ack="journal", id="id-0")
    job_functions.gate.set()
    assert {each.result(WAIT_S).status for each in (*futures, again)} == {Status.PROCESSED}
    assert env.client.wait(running.job, WAIT_S)
    assert sorted(row["n"] for row in taken(running.target)) == list(range(6))
    for appender in running.appenders:
        appender.close()


def test_an_upgrade_goes_on_with_journal_and_ids(env: TestEnv) -> None:
    running = start(env)
    running.appenders[0].append({"n": 1}, id="before")
    env.client.suspend(running.job)
    until(env, lambda replica: not replica.run(running.job).allocation)
    out = f"options: {{channel: {running.target.name}}}"
    spec = f"""
        workflow: [[in, work], [work, out]]
        upgrade: {{from: {running.job}}}
        catalog:
          - {{name: in, type: input, plugin: requests}}
          - {{name: work, type: function, fn: "f:same"}}
          - {{name: out, type: output, plugin: channel, {out}}}
    """
    new = env.submit(manifest(spec, f"{running.name}-new"))
    until(env, lambda replica: len(replica.run(new).ready) > 2)
    upgraded = Appender(addresses_of(env.client.replica()), f"{running.name}-new")
    assert upgraded.append({"n": 1}, id="before").status is Status.PROCESSED
    with pytest.raises(NotTaken, match="used before"):
        upgraded.append({"n": 2}, id="before")
    upgraded.append({"n": 2})
    upgraded.close()
    env.client.drain(new)
    assert env.client.wait(new, WAIT_S)
    assert taken(running.target) == [{"n": 1}, {"n": 2}]
