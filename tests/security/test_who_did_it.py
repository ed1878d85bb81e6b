"""Attacked: the record of who has submitted, killed, suspended and changed jobs: forged, made
unreadable, or made to decide something."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.operator.declaring import FAST, phase
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, cluster, job
from tests.operator.test_watches import eventually
from tests.support.log.memory_log import MemoryLog

from onyx.client.client import Client
from onyx.codec.entries import decode_entry, encode_entry
from onyx.history.archive import decode_file, encode_file
from onyx.ids import JobId, Position
from onyx.log.acts import ACTS, user_of_process
from onyx.log.interface import Origin
from onyx.model.parsing.job import parse_mapping
from onyx.replica import machine, story
from onyx.replica.authors import AUDIT, BY_CHARACTERS_MAX, bounded
from onyx.replica.command import Undecodable
from onyx.replica.commands import KillJob
from onyx.replica.job_events import ALLOCATED, COMPLETED, WAITS
from onyx.replica.state import Replica
from onyx.telemetry.logs import configure
from onyx_operator.admission.review import MalformedReview, marked
from onyx_operator.authors import ANNOTATION, Authors
from onyx_operator.settings import OperatorSettings

KILL = KillJob(job=JobId("j"))
ODD = ["a\nb", "\x1b[2Jx", "\x00", "\u202ealice", "\u2028", "\ud800", "\x7f"]


# --- in the log ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD)
def test_a_name_has_no_control_characters_where_it_is_stored_and_where_it_is_read(
    name: str,
) -> None:
    stored = decode_entry(Position(1), encode_entry(KILL, by=name, at_ms=5))
    assert stored.by.isprintable()
    assert stored.by == bounded(name)
    forged = {"v": 2, "fn": "kill-job", "args": {"job": "j"}, "by": name}
    if name != "\ud800":  # no JSON
        assert decode_entry(Position(1), json.dumps(forged).encode()).by == bounded(name)


@pytest.mark.parametrize("name", ["x" * 10_000, "\n" * 10_000, "x" * 250 + "\n" * 9])
def test_a_name_has_a_bounded_length_and_is_the_same_when_it_is_bounded_again(name: str) -> None:
    found = bounded(name)
    assert len(found) <= BY_CHARACTERS_MAX
    assert found.endswith("...")
    assert bounded(found) == found


@pytest.mark.parametrize(
    "odd",
    [
        {"by": "x" * 100_000}, {"by": "\x1b"}, {"by": 5}, {"by": {"a": [1]}}, {"by": None},
        {"at": "soon"}, {"at": -1}, {"at": 10**30}, {"at": 1.5}, {"at": True}, {"at": None},
    ],
    ids=str,
)  # fmt: skip
def test_no_replica_depends_on_who_did_something_or_when(odd: dict[str, Any]) -> None:
    plain = {"v": 2, "fn": "kill-job", "args": {"job": "j"}}
    entry = decode_entry(Position(0), json.dumps({**plain, **odd}).encode())
    assert not isinstance(entry.command, Undecodable)
    without = decode_entry(Position(0), json.dumps(plain).encode())
    assert machine.apply(Replica(), entry) == machine.apply(Replica(), without)
    (event,) = story.events_of(Replica(), entry, machine.apply(Replica(), entry))
    assert (event.job, event.by.isprintable()) == ("j", True)


def test_the_archive_keeps_who_did_it() -> None:
    entry = decode_entry(Position(3), encode_entry(KILL, by="kubernetes:alice", at_ms=5))
    _, kept = decode_file("name", encode_file(Origin(Position(2), b""), [entry]))
    assert kept == [entry]


# --- what a client does -------------------------------------------------------------------------

FOLLOWING = (WAITS, ALLOCATED, COMPLETED)
DONE = {
    "submit-job": "job-submitted", "suspend-job": "job-suspended", "resume-job": "job-resumed",
    "set-options": "options-set", "drain-job": "job-drains",
}  # fmt: skip
"""Commands, and the events that they are."""


class Shop:
    """A client of a log in memory."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.client = Client(self.log.client(), "balanced", tenancy="shop", by="command:alice@here")

    def submit(self) -> JobId:
        manifest = job()
        manifest["spec"].pop("clusterRef", None)
        return self.client.submit(parse_mapping(manifest)).job

    def events(self, job: str = "") -> list[tuple[str, str, str]]:
        """What people have done, without what followed."""
        return [
            (each.by, each.kind.name, each.job)
            for change in self.client.changes()
            for each in story.events_of(*change, of=lambda id: id.startswith(job))
            if each.kind not in FOLLOWING
        ]


@pytest.fixture
def shop() -> Iterator[Shop]:
    found = Shop()
    yield found
    found.client.close()


def test_each_act_has_its_author_in_the_log_and_in_one_line_of_audit(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    id = shop.submit()
    shop.client.suspend(id)
    shop.client.resume(id)
    shop.client.set_options(id, "read", {"maxPending": 5})
    shop.client.drain(id)
    shop.client.act(KILL, "kubernetes:bob\n")
    alice, bob = "command:alice@here", "kubernetes:bob\\n"
    expected = [(alice, what, id) for what in DONE] + [(bob, "kill-job", "j")]
    events = [(alice, DONE[what], id) for what in DONE] + [(bob, "job-killed", "j")]
    assert shop.events() == events
    assert shop.events(id[:8]) == events[:-1]
    lines = [json.loads(each.getMessage()) for each in caplog.records if each.name == AUDIT]
    assert [(each["by"], each["what"], each["job"]) for each in lines] == expected
    assert {each["tenancy"] for each in lines} == {"shop"}
    assert all(each["time"].endswith("+00:00") for each in lines)


def test_who_has_jobs_forgotten_is_in_the_line_of_audit_that_stays(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    id = shop.submit()
    shop.client.kill(id)
    caplog.set_level(logging.INFO, AUDIT)
    assert shop.client.gc().jobs == (id,)
    (line,) = (json.loads(each.getMessage()) for each in caplog.records if each.name == AUDIT)
    assert (line["by"], line["what"], line["job"]) == ("command:alice@here", "gc", id)
    assert shop.events() == []  # without an archive


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_of_audit_is_one_line_of_json_in_every_form_of_the_log(
    form: str, shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    root, ours = logging.getLogger(), logging.getLogger("onyx")
    before, level, of_root = list(root.handlers), ours.level, root.level
    try:
        configure(log_format=form)
        shop.client.act(KILL, "kubernetes:a\x1b[2J\nforged")
    finally:
        root.handlers[:] = before
        root.setLevel(of_root)
        ours.setLevel(level)
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["by"] == r"kubernetes:a\x1b[2J\nforged"


def test_a_command_is_done_by_the_user_of_the_system_whatever_its_variables_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = user_of_process()
    for name in ("USER", "LOGNAME", "USERNAME", "LNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert user_of_process() == before
    assert before.startswith("command:")


# --- what the API server asks -------------------------------------------------------------------


def review(
    operation: str, body: Any, old: Any = None, user: str = "alice", **more: Any
) -> dict[str, Any]:
    request = {
        "uid": "1", "operation": operation, "userInfo": {"username": user},
        "object": body, "oldObject": old, **more,
    }  # fmt: skip
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def with_mark(body: dict[str, Any], mark: str | None) -> dict[str, Any]:
    noted = {} if mark is None else {"annotations": {"a": "b", ANNOTATION: mark}}
    return {**body, "metadata": {**body["metadata"], **noted}}


def stored(asked: dict[str, Any], authors: Authors | None = None) -> Any:
    """The mark of an object as the API server stores it after our answer."""
    response = marked(asked, authors or Authors(marks=True))["response"]
    assert response["allowed"]
    annotations = dict(asked["request"]["object"]["metadata"].get("annotations", {}))
    for each in json.loads(base64.b64decode(response.get("patch", "W10="))):
        if each["path"] == "/metadata/annotations":
            assert not annotations
            annotations = dict(each["value"])
        elif each["op"] == "remove":
            del annotations["onyx.dev/changed-by"]
        else:
            assert each["path"] == "/metadata/annotations/onyx.dev~1changed-by"
            annotations["onyx.dev/changed-by"] = each["value"]
    return annotations.get(ANNOTATION)


@pytest.mark.parametrize("forged", [None, "kubernetes:boss", ""])
def test_who_makes_or_edits_a_job_is_marked_whatever_mark_is_given(forged: str | None) -> None:
    made = review("CREATE", with_mark(job(), forged))
    assert stored(made) == "kubernetes:alice"
    edited = review("UPDATE", with_mark(job(version=2), forged), with_mark(job(), "kubernetes:bob"))
    assert stored(edited) == "kubernetes:alice"


@pytest.mark.parametrize("forged", [None, "kubernetes:boss"])
@pytest.mark.parametrize("before", [None, "kubernetes:bob"])
def test_a_mark_stays_as_it_was_when_nothing_of_the_spec_changes(
    before: str | None, forged: str | None
) -> None:
    asked = review("UPDATE", with_mark(job(), forged), with_mark(job(), before))
    assert stored(asked) == before


def test_a_mark_is_bounded_and_printable() -> None:
    mark = stored(review("CREATE", job(), user="x\x1b\n" * 500))
    assert len(mark) <= BY_CHARACTERS_MAX
    assert mark.isprintable()
    assert stored(review("CREATE", job(), user="")) == "unknown"


@pytest.mark.parametrize(("proven", "source"), [(True, "kubernetes"), (False, "unproven")])
def test_who_deletes_an_object_is_remembered_but_not_who_only_tries(
    proven: bool, source: str
) -> None:
    """Any pod may ask an operator to which the API server shows no certificate."""
    authors = Authors(marks=True, proven=proven)
    body = job()
    body["metadata"]["uid"] = "u1"
    assert authors.of_deletion(body) == "unknown"
    marked(review("DELETE", None, body, "mallory", dryRun=True), authors)
    assert authors.of_deletion(body) == "unknown"
    answer = marked(review("DELETE", None, body, "carol"), authors)
    assert answer["response"] == {"uid": "1", "allowed": True}
    assert authors.of_deletion(body) == f"{source}:carol"


@pytest.mark.parametrize(
    "odd",
    [
        review("UPDATE", None), review("CREATE", {"kind": "OnyxJob"}), review("DELETE", None, []),
        review("CREATE", {"kind": "OnyxJob", "metadata": []}),
        review("CREATE", {"kind": "OnyxJob", "metadata": {"annotations": [1]}}),
        review("UPDATE", job(), job(), userInfo="x"), review("CONNECT", 5),
        review("UPDATE", with_mark(job(), None), {"metadata": {"annotations": {ANNOTATION: 7}}}),
    ],
    ids=range(8),
)  # fmt: skip
def test_whatever_is_asked_is_answered(odd: dict[str, Any]) -> None:
    assert marked(odd, Authors(marks=True))["response"]["allowed"]


def test_what_is_no_review_is_refused() -> None:
    for each in (None, [], {}, {"kind": "AdmissionReview"}):
        with pytest.raises(MalformedReview):
            marked(each, Authors(marks=True))


# --- what the operator does ---------------------------------------------------------------------


def marking(marks: bool) -> OperatorSettings:
    return replace(FAST, webhook=replace(FAST.webhook, marks_authors=marks))


def authors_of(logs: Logs) -> list[tuple[str, str]]:
    client = logs.log("default.onyx").client()
    entries = client.read(Position(-1))
    client.close()
    return [(each.command.NAME, each.by) for each in entries if isinstance(each.command, ACTS)]


def lived(api: FakeApi, logs: Logs, settings: OperatorSettings) -> list[tuple[str, str]]:
    """A job is made by alice, suspended by bob, and deleted."""
    api.create(cluster())
    with Operator(api, logs.connect, settings):
        api.create(with_mark(job(), "kubernetes:alice"))
        api.wait_for("onyxjobs", "job", phase("Waiting"))
        noted = {"annotations": {ANNOTATION: "kubernetes:bob"}}
        api.patch("onyxjobs", "job", {"metadata": noted, "spec": {"desiredState": "Suspended"}})
        api.wait_for("onyxjobs", "job", phase("Suspended"))
        api.delete("onyxjobs", "job")
        eventually(lambda: bool(logs.commands("kill-job")))
    return authors_of(logs)


def test_what_the_operator_does_has_the_user_whose_wish_it_was(api: FakeApi, logs: Logs) -> None:
    assert lived(api, logs, marking(True)) == [
        ("submit-job", "kubernetes:alice"),
        ("suspend-job", "kubernetes:bob"),
        ("kill-job", "unknown"),  # this operator was not asked
    ]


def test_without_the_webhook_a_mark_counts_for_nothing(api: FakeApi, logs: Logs) -> None:
    found = lived(api, logs, marking(False))
    assert [what for what, _ in found] == ["submit-job", "suspend-job", "kill-job"]
    assert all(by.startswith("field-manager:") for what, by in found if what != "kill-job")
    assert found[-1][1] == "unknown"
