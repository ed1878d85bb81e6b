"""Jobs as people name them: by id, by its beginning, or by name."""

from __future__ import annotations

import re

import pytest
from tests.support.log.memory_log import MemoryLog

from onyx.client.client import Client
from onyx.client.manifests import no_jobs
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.model.parsing.job import parse_mapping

CATALOG = [
    {"name": "in", "type": "input", "plugin": "requests"},
    {"name": "out", "type": "output", "plugin": "stdout"},
]


@pytest.fixture
def client() -> Client:
    return Client(MemoryLog().client(), "balanced")


def submit(client: Client, name: str, id: str) -> JobId:
    spec = {"workflow": [["in", "out"]], "catalog": CATALOG, "metadata": {"jobId": id}}
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": name}}
    return client.submit(parse_mapping({**head, "spec": spec})).job


def test_a_job_has_an_id_a_beginning_and_a_name(client: Client) -> None:
    submit(client, "orders", "3f2a-1")
    submit(client, "trips", "9bc0-1")
    for text in ("3f2a-1", "3f2a", "3", "orders"):
        assert client.named(text) == "3f2a-1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3f2a", "3f2a may be any of 2 jobs: give the id: 3f2a-1 or 3f2a-2"),
        ("orders", "orders may be any of 2 jobs: give the id: 3f2a-1 or 3f2a-2"),
        ("4", "there is no job 4: `onyx jobs` lists those that are known"),
    ],
)
def test_what_means_no_job_or_several_is_refused(client: Client, text: str, said: str) -> None:
    submit(client, "orders", "3f2a-1")
    submit(client, "orders", "3f2a-2")
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"):
        client.named(text)


def test_an_id_comes_before_a_name_and_a_name_before_a_beginning(client: Client) -> None:
    submit(client, "b", "a")
    submit(client, "a", "bb")
    submit(client, "c", "abc")
    assert [client.named(text) for text in ("a", "b", "ab")] == ["a", "a", "abc"]


def test_of_a_name_the_job_that_runs_is_meant_then_the_one_that_ended_last(client: Client) -> None:
    for id in ("1", "2", "3"):
        submit(client, "orders", id)
    client.kill(JobId("3"))
    client.kill(JobId("1"))
    assert client.named("orders") == "2"
    client.kill(JobId("2"))
    assert client.named("orders") == "2"
    with pytest.raises(UserError, match="job 2 was killed or has failed: only a job"):
        client.set_options(client.named("orders"), "in", {"batchSize": 5})


def test_in_an_empty_tenancy_the_others_are_named(client: Client) -> None:
    with pytest.raises(UserError) as raised:
        client.named("orders")
    assert str(raised.value) == (
        "there is no job orders: `onyx jobs` lists those that are known; this tenancy has no jobs; "
        "others have theirs in elsewhere or test: give --tenancy"
    )


def test_a_list_of_no_jobs_names_the_tenancies_that_have_some(client: Client) -> None:
    log, empty = client.log, client.replica()
    assert no_jobs(log, empty, "default") == (
        "tenancy default has no jobs; others have theirs in elsewhere or test: give --tenancy"
    )
    submit(client, "orders", "1")
    assert no_jobs(log, client.replica(), "default").startswith("no jobs yet: submit one")
