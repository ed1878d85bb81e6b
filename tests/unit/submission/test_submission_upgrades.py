"""A client that submits upgrades, over a log in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from immutables import Map
from msgspec.structs import replace
from tests.support.log.memory_log import MemoryLog
from tests.support.log.runs import altered
from tests.support.log.vouching import voucher
from tests.support.patience import WAIT_S

from onyx.client import submissions
from onyx.client.client import Client
from onyx.errors import JobRefused, Unavailable, UserError
from onyx.ids import JobId, PeerId, Position, TaskName
from onyx.log.interface import Origin
from onyx.model.job import Job, Upgrade
from onyx.model.parsing.job import parse_mapping
from onyx.replica.command import Entry
from onyx.replica.commands import (
    AddVirtualPeer,
    PauseJob,
    RegisterPartitions,
    SignalRest,
    SuspendJob,
)
from onyx.submission import upgrades
from onyx.upgrade.plan import upgrading


def job(name: str, plugin: str = "generator") -> Job:
    options = {"segments": 1} if plugin == "generator" else {"segments": []}
    spec = {
        "workflow": [["in", "out"]],
        "catalog": [
            {"name": "in", "type": "input", "plugin": plugin, "batchSize": 1, "options": options},
            {"name": "out", "type": "output", "plugin": "stdout", "batchSize": 1},
        ],
        "metadata": {"jobId": name},
    }
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
    return parse_mapping({**head, "spec": spec})


@pytest.fixture
def client() -> Iterator[Client]:
    log = MemoryLog()
    with voucher(log):
        yield Client(log.client(), "balanced")


def submit(client: Client, name: str, after: str | None = None) -> JobId:
    new = job(name) if after is None else upgrading(job(name), after)
    return client.submit(new).job


def read(client: Client, name: str, documents: int) -> None:
    """The job lists two partitions, of which so many have a frontier."""
    digest = client.log.put_chunk(b"[]")
    client.log.append(RegisterPartitions(job=name, task="in", count=2, digest=digest))
    for number in range(documents):
        client.log.put_document(f"frontier/{name}/{number}", b"{}", None)


def test_the_submission_of_an_upgrade_kills_the_old_job(client: Client) -> None:
    submit(client, "a")
    submit(client, "b", after="a")
    assert [(each.id, each.state) for each in client.statuses()] == [
        ("b", "waiting"),
        ("a", "killed"),
    ]


def test_submitting_again_with_the_same_id_changes_nothing(client: Client) -> None:
    submit(client, "a")
    submit(client, "b", after="a")
    assert submit(client, "b", after="a") == "b"
    assert client.replica().jobs == ("b",)


def test_a_job_that_would_lose_state_silently_is_refused_before_anything_is_killed(
    client: Client,
) -> None:
    submit(client, "a")
    new = upgrading(job("b", plugin="sequence"), "a")
    with pytest.raises(JobRefused, match=r"tasks\.in: needs an answer: plugin was generator"):
        client.submit(new)
    assert client.status(JobId("a")).state == "waiting"
    assert new.upgrade is not None
    step, *_ = client.examine(new).steps
    assert (step.name, step.fate) == ("in", "dropped")


def test_only_a_known_job_that_has_not_completed_can_be_upgraded(client: Client) -> None:
    with pytest.raises(UserError, match="job a is not known"):
        submit(client, "b", after="a")
    submit(client, "a")
    client.drain(JobId("a"))
    with pytest.raises(UserError, match="job a has completed"):
        submit(client, "b", after="a")


def test_a_job_is_upgraded_by_one_job_but_again_when_that_was_killed(client: Client) -> None:
    submit(client, "a")
    submit(client, "b", after="a")
    with pytest.raises(UserError, match="job b upgrades job a already"):
        submit(client, "c", after="a")
    client.kill(JobId("b"))
    assert submit(client, "c", after="a") == "c"


def test_a_job_that_has_not_carried_over_state_cannot_be_upgraded(client: Client) -> None:
    submit(client, "a")
    submit(client, "b", after="a")
    read(client, "b", documents=1)
    with pytest.raises(UserError, match=r"job b has not carried over .* upgrade a"):
        submit(client, "c", after="b")
    client.log.put_document("frontier/b/1", b"{}", None)
    submit(client, "c", after="b")
    assert client.replica().jobs == ("c",)


def test_the_first_job_holds_the_state_until_another_one_has_carried_it_over(
    client: Client,
) -> None:
    submit(client, "a")
    submit(client, "b", after="a")
    read(client, "b", documents=1)
    assert upgrades.state_holder(client.log, client.replica(), JobId("a")) == "a"
    assert upgrades.state_holder(client.log, client.replica(), JobId("b")) == "a"
    client.log.put_document("frontier/b/1", b"{}", None)
    assert upgrades.state_holder(client.log, client.replica(), JobId("b")) == "b"


def test_a_job_that_ends_as_well_is_no_hindrance(client: Client) -> None:
    submit(client, "a")
    submit(client, "b", after="a")
    new = upgrading(job("c"), "a")
    assert new.upgrade is not None
    found = upgrades.plan_upgrade(
        client.log, client.replica(), new, new.upgrade, instead_of=JobId("b")
    )
    assert not found.problems


def test_after_a_job_that_completes_in_the_last_moment_the_next_one_begins_anew(
    client: Client,
) -> None:
    submit(client, "a")
    client.drain(JobId("a"))
    client.hand_in(JobId("b"), upgrading(job("b"), "a"), "", client.replica())
    replica = client.replica()
    assert (replica.jobs, replica.completed_jobs) == (("b",), ("a",))
    assert replica.upgrades(JobId("b")) is None


def test_answers_without_an_old_job_are_no_upgrade(client: Client) -> None:
    alone = replace(job("a"), upgrade=Upgrade(windows={"w": "initialize"}))
    assert client.submit(alone).job == "a"
    assert client.job(JobId("a")).upgrade is None
    assert alone.upgrade is not None
    with pytest.raises(UserError, match="names no job"):
        upgrades.plan_upgrade(client.log, client.replica(), alone, alone.upgrade)


def on_spark(client: Client) -> Job:
    """A job that is to upgrade job a, which lists its partitions."""
    client.submit(job("a", plugin="m:feed"))
    read(client, "a", documents=0)
    return upgrading(replace(job("b", plugin="m:feed"), engine="spark"), "a")


@pytest.mark.parametrize("state", ["suspended", "killed"])
@pytest.mark.parametrize(("position", "rests"), [(7, True), (6, False)])
def test_a_job_that_nobody_works_on_goes_from_peers_to_spark_if_it_stopped_at_rest(
    client: Client, position: int, rests: bool, state: str
) -> None:
    new, old = on_spark(client), JobId("a")
    {"suspended": client.suspend, "killed": client.kill}[state](old)
    at = f'{{"position": {position}, "sent": 7}}'.encode()
    client.log.put_document("frontier/a/1", at, None)
    found = upgrades.plan_upgrade(client.log, client.replica(), new, new.upgrade or Upgrade())
    assert (upgrades.IN_FLIGHT not in found.problems) is rests
    assert not found.pauses


def test_a_job_that_waits_for_peers_comes_to_rest_when_it_has_some_unless_it_never_read(
    client: Client,
) -> None:
    client.submit(job("a", plugin="m:feed"))
    new = upgrading(replace(job("b", plugin="m:feed"), engine="spark"), "a")
    section = new.upgrade or Upgrade()
    assert not upgrades.plan_upgrade(client.log, client.replica(), new, section).pauses
    read(client, "a", documents=2)
    assert upgrades.plan_upgrade(client.log, client.replica(), new, section).pauses == "a"


def test_a_job_that_runs_on_peers_is_to_come_to_rest_before_it_goes_to_spark(
    client: Client,
) -> None:
    new, there = on_spark(client), {TaskName("in"): (PeerId("p"),)}
    for rested, pauses in ((Map(), "a"), (Map({PeerId("p"): None}), "")):
        replica = altered(client.replica(), JobId("a"), allocation=Map(there), rested=rested)
        found = upgrades.plan_upgrade(client.log, replica, new, new.upgrade or Upgrade())
        assert found.pauses == pauses
        assert upgrades.IN_FLIGHT not in found.problems


@pytest.mark.parametrize("rests", [True, False])
def test_a_job_on_peers_is_brought_to_rest_or_goes_on(
    rests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "REST_TIMEOUT_S", WAIT_S if rests else 0.01)
    log = MemoryLog()
    with voucher(log):
        client = Client(log.client(), "balanced")
        for number in range(2):
            client.log.append(AddVirtualPeer(id=f"p{number}", group_id="voucher", tags=("spark",)))
        new = on_spark(client)
        run = client.replica().run(JobId("a"))

        def read(item: Entry | Origin) -> None:
            if rests and isinstance(item, Entry) and isinstance(item.command, PauseJob):
                at = run.allocation_version, item.position, run.allocation[TaskName("in")]
                client.log.append(SignalRest(JobId("a"), TaskName("in"), *at))

        unsubscribe = client.log.subscribe(Position(-1), read)
        with contextlib.closing(SimpleNamespace(close=unsubscribe)):
            if rests:
                client.submit(new)
            else:
                with pytest.raises(Unavailable, match="of in are in flight; it goes on, and"):
                    client.submit(new)
    *_, before, last = [each.command.NAME for each in client.log.read(Position(-1))]
    states = {each.id: each.state for each in client.statuses()}
    if rests:
        assert (before, last, states["a"]) == ("signal-rest", "submit-job", "killed")
    else:
        assert (before, last, states) == ("pause-job", "resume-job", {"a": "running"})


def test_a_job_that_is_suspended_while_it_comes_to_rest_stays_suspended() -> None:
    log = MemoryLog()
    with voucher(log):
        client = Client(log.client(), "balanced")
        for number in range(2):
            client.log.append(AddVirtualPeer(id=f"p{number}", group_id="voucher", tags=("spark",)))
        new = on_spark(client)

        def suspend(item: Entry | Origin) -> None:
            if isinstance(item, Entry) and isinstance(item.command, PauseJob):
                client.log.append(SuspendJob(JobId("a")))

        unsubscribe = client.log.subscribe(Position(-1), suspend)
        with (
            contextlib.closing(SimpleNamespace(close=unsubscribe)),
            pytest.raises(Unavailable, match="somebody has resumed or suspended job a"),
        ):
            client.submit(new)

    assert {each.id: each.state for each in client.statuses()} == {"a": "suspended"}


def test_a_paused_job_says_so_and_how_it_goes_on(client: Client) -> None:
    client.log.append(AddVirtualPeer(id="p0", group_id="voucher"))
    client.log.append(AddVirtualPeer(id="p1", group_id="voucher"))
    submit(client, "a")
    client.act(PauseJob(job=JobId("a")))
    found = client.status(JobId("a"))
    assert found.state == "paused"
    assert found.waiting_for == (
        "its inputs are paused for an upgrade, and segments of in are in flight: "
        "`onyx resume a` lets it go on"
    )
    client.resume(JobId("a"))
    assert client.status(JobId("a")).state == "running"


def test_an_old_job_is_kept_until_its_state_has_been_carried_over(client: Client) -> None:
    submit(client, "a")
    submit(client, "b", after="a")
    submit(client, "other")
    client.kill(JobId("other"))
    assert client.gc().jobs == ("other",)
    read(client, "b", documents=2)
    assert client.gc().jobs == ("a",)
    assert client.replica().jobs == ("b",)


def test_a_job_that_is_killed_before_it_carries_over_keeps_no_old_job(
    client: Client,
) -> None:
    submit(client, "a")
    submit(client, "b", after="a")
    client.kill(JobId("b"))
    assert client.gc().jobs == ("a", "b")
    assert not client.replica().records
