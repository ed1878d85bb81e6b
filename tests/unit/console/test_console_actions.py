"""What is done to jobs from the console: forms are filled in and sent, and the log is read."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.console_world import HOSTILE, ConsoleWorld, manifest
from tests.unit.console.test_console_app import HOSTS, Answer, ask

from onyx.base.seams import SystemClock
from onyx.console import app as app_module
from onyx.console.app import ConsoleApp, Guard
from onyx.console.board import followed
from onyx.console.serve import ConsoleOptions, guard_of
from onyx.errors import Unavailable, UserError
from onyx.ids import JobId
from onyx.model.parsing.job import parse_mapping
from onyx.replica.commands import KillJob
from onyx.requests.tokens import Tokens

OWNER = "OnyxJob/3f2a/shop/orders/5e0c7a52-0000-4000-8000-000000000001"
TOKENS = "t0ken # ada\nother"


class Person:
    """Who looks at a console in a browser, as himself or through a proxy that names him."""

    def __init__(self, console: ConsoleApp, world: ConsoleWorld, **headers: str) -> None:
        self.console, self.world = console, world
        self.headers = {"Authorization": "Bearer t0ken", **headers}

    def get(self, path: str) -> Answer:
        return ask(self.console, path, **self.headers)

    def form(self, path: str) -> dict[str, str]:
        """The fields of the form that a page has, its cookie kept."""
        answer = self.get(path)
        self.headers["Cookie"] = answer.headers["set-cookie"].partition(";")[0]
        post = answer.text.partition('method="post"')[2]
        found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', post)
        return {name: html.unescape(value) for name, value in found}

    def send(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        body = "&".join(f"{name}={value}" for name, value in fields.items()).encode()
        given = {
            "Origin": "http://localhost:8484",
            "Content_Type": "application/x-www-form-urlencoded",
            **self.headers,
            **headers,
        }
        return ask(self.console, path.partition("?")[0], "POST", body, **given)

    def act(self, path: str) -> Answer:
        return self.send(path, self.form(path))

    def happened(self) -> list[tuple[str, str]]:
        """What people have done, and who."""
        entries = [each.entry for each in self.world.client.changes()]
        mine = [each for each in entries if each.command.NAME != "submit-job" and each.by]
        return [(each.command.NAME, each.by) for each in mine]


@pytest.fixture
def world() -> ConsoleWorld:
    world = ConsoleWorld()
    world.join("a" * 36, peers=8)
    world.submit("orders", id="first")
    return world


@pytest.fixture
def ada(world: ConsoleWorld) -> Iterator[Person]:
    with followed(world.client, lambda: None) as past:
        console = world.console(acts_on=past)
        guard = Guard(HOSTS, Tokens(SystemClock(), value=TOKENS), "token:unnamed", "X-User")
        yield Person(ConsoleApp(console, guard), world)


def test_each_action_is_what_the_command_does_under_the_name_of_who_looks(ada: Person) -> None:
    for kind in ("suspend", "resume", "drain", "kill"):
        answer = ada.act(f"/act/{kind}/first")
        assert answer.code == 303
        assert answer.headers["location"].startswith("/jobs/first?done=")
    assert ada.happened() == [
        (f"{kind}-job", "token:ada") for kind in ("suspend", "resume", "drain", "kill")
    ]


def test_the_page_of_a_job_leads_to_what_would_change_it_and_says_what_was_done(
    ada: Person,
) -> None:
    def offered() -> list[str]:
        return re.findall(r'id="act-(\w+)"', ada.get("/jobs/first").text)

    assert offered() == ["suspend", "drain", "set", "kill"]
    done = ada.act("/act/suspend/first").headers["location"]
    assert offered() == ["resume", "drain", "set", "kill"]
    assert re.search(r"Done:</strong> suspended\S*, by token:ada", ada.get(done).text)
    assert "Done:" not in ada.get("/jobs/first?done=x").text
    ada.act("/act/kill/first")
    assert offered() == []


def test_a_value_is_chosen_checked_shown_and_set(ada: Person) -> None:
    assert "<option>clean</option>" in ada.get("/act/set/first").text
    assert 'name="maxPending"' in ada.get("/act/set/first?task=orders").text
    wrong = ada.get("/act/set/first?task=orders&maxPending=-1&batchSize=50")
    assert wrong.code == 400
    assert "maxPending" in wrong.text
    assert 'method="post"' not in wrong.text
    path = "/act/set/first?task=orders&maxPending=500&batchTimeout=default"
    assert "maxPending: default → <b>500</b>" in ada.get(path).text
    assert ada.act(path).code == 303
    changed = ada.world.client.replica().run(JobId("first")).options
    assert {task: dict(values) for task, values in changed.items()} == {
        "orders": {"maxPending": 500, "batchTimeout": 0}
    }


def test_looking_at_an_action_does_nothing(ada: Person) -> None:
    before = ada.world.client.replica().version
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        for kind in ("suspend", "resume", "drain", "set", "kill"):
            ask(ada.console, f"/act/{kind}/first", method, **ada.headers)
    assert ada.world.client.replica().version == before


@pytest.mark.parametrize("origin", ["", "null", "http://evil.example", "http://localhost:3000"])
def test_a_form_of_another_site_does_nothing(ada: Person, origin: str) -> None:
    fields = ada.form("/act/kill/first")
    answer = ada.send("/act/kill/first", fields, Origin=origin)
    assert answer.code == 403
    assert "did not come from a page of this console" in answer.text
    assert ada.happened() == []


def test_a_form_without_its_seal_or_with_an_old_or_another_ones_does_nothing(ada: Person) -> None:
    other = Person(ada.console, ada.world, Authorization="Bearer other")
    theirs = other.form("/act/kill/first")
    mine = ada.form("/act/suspend/first")
    for fields in ({}, {"seal": "0.1.ff"}, mine, theirs):
        assert ada.send("/act/kill/first", fields).code == 403
    assert ada.happened() == []


def test_a_form_that_is_sent_twice_acts_once(ada: Person) -> None:
    fields = ada.form("/act/suspend/first")
    assert ada.send("/act/suspend/first", fields).code == 303
    ada.act("/act/resume/first")
    again = ada.send("/act/suspend/first", fields)
    assert (again.code, "was sent already" in again.text) == (409, True)
    assert [name for name, _ in ada.happened()] == ["suspend-job", "resume-job"]


@pytest.mark.parametrize("kind", ["suspend", "resume", "drain", "set", "kill"])
def test_what_has_ended_or_was_never_there_is_refused_in_words(ada: Person, kind: str) -> None:
    fields = ada.form("/act/kill/first")
    ada.send("/act/kill/first", fields)
    ended = ada.get(f"/act/{kind}/first")
    assert (ended.code, "was killed or has failed: only a job" in ended.text) == (
        409,
        True,
    )
    assert 'method="post"' not in ended.text
    for job in ("nobody", "..", "a" * 10_000, "%3Cscript%3E"):
        answer = ada.get(f"/act/{kind}/{job}")
        assert answer.code in (404, 409)
        assert "<script>" not in answer.text.replace("<script src", "")


def test_a_job_that_ends_before_the_entry_comes_is_said_to_have(
    ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, act = ada.world.client, ada.world.client.act

    def late(command: Any, by: str = "") -> Any:
        ada.world.put(KillJob(job=JobId("first")))
        return act(command, by)

    monkeypatch.setattr(client, "act", late)
    answer = ada.act("/act/drain/first")
    assert (answer.code, "was killed or has failed: only a job" in answer.text) == (
        409,
        True,
    )


def test_what_the_operator_would_undo_is_refused_and_the_rest_is_explained(ada: Person) -> None:
    client = ada.world.client
    job = parse_mapping(manifest("declared"))
    client.act(client.prepare(JobId("theirs"), job, OWNER))
    refused = ada.get("/act/suspend/theirs")
    assert refused.code == 409
    assert "OnyxJob shop/orders declares this job" in refused.text
    assert "desiredState: Suspended" in refused.text
    fields = ada.form("/act/kill/first")
    assert ada.send("/act/suspend/theirs", fields).code == 403
    assert "restartNonce" in ada.get("/act/kill/theirs").text
    assert ada.act("/act/kill/theirs").code == 303


def test_while_zookeeper_hangs_a_page_says_that_nobody_knows(
    ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(*_: Any) -> Any:
        raise Unavailable("ZooKeeper does not answer within 10 s")

    monkeypatch.setattr(ada.world.client, "act", hangs)
    answer = ada.act("/act/suspend/first")
    assert answer.code == 503
    assert "This may have been done, or not" in answer.text
    assert "does not answer within 10 s" in answer.text


def test_more_actions_at_once_than_may_be_are_refused(
    ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = ada.form("/act/suspend/first")
    monkeypatch.setattr(app_module, "ACTING_MAX", 0)
    for answer in (ada.send("/act/suspend/first", fields), ada.get("/act/suspend/first")):
        assert (answer.code, "try again soon" in answer.text) == (503, True)
    assert ada.happened() == []


@pytest.mark.parametrize(
    ("headers", "by"),
    [
        ({}, "token:ada"),
        ({"Authorization": "Bearer other"}, "token:unnamed"),
        ({"X_User": "grace@example.org"}, "proxy:grace@example.org"),
        ({"X_User": "kubernetes:root\x1b[2J"}, "proxy:kubernetes:root\\x1b[2J"),
        (
            {"Authorization": "", "Cookie": f"onyx-console={b't0ken'.hex()}", "X_User": "grace"},
            "token:ada",
        ),
    ],
)
def test_who_did_it_is_whom_the_token_or_the_proxy_with_a_token_names(
    ada: Person, headers: dict[str, str], by: str
) -> None:
    person = Person(ada.console, ada.world, **headers)
    fields = person.form("/act/suspend/first")
    cookies = "; ".join(filter(None, (headers.get("Cookie"), person.headers["Cookie"])))
    assert person.send("/act/suspend/first", fields, Cookie=cookies).code == 303
    assert ada.happened() == [("suspend-job", by)]


def test_a_user_without_a_name_or_with_two_is_nobody(ada: Person) -> None:
    assert Person(ada.console, ada.world, X_User=" ").get("/").code == 401
    with pytest.raises(UserError, match="--token-file"):
        ConsoleOptions(user_header="X-User").check()


def test_where_jobs_can_be_changed_a_token_is_asked_for_on_this_machine_too(
    world: ConsoleWorld,
) -> None:
    for has_actions, code in ((False, 200), (True, 401)):
        guard, drawn = guard_of(ConsoleOptions(has_actions=has_actions), SystemClock())
        console = ConsoleApp(world.console(), guard)
        assert ask(console, "/").code == code
        assert bool(drawn) == has_actions
    entered = ask(console, f"/login?token={drawn}")
    assert (entered.code, entered.headers["location"]) == (303, "/")
    assert ask(console, "/", Cookie=entered.headers["set-cookie"].partition(";")[0]).code == 200


def test_a_console_without_actions_does_nothing(world: ConsoleWorld) -> None:
    guard = Guard(HOSTS, Tokens(SystemClock(), value=TOKENS))
    person = Person(ConsoleApp(world.console(), guard), world)
    for answer in (person.get("/act/kill/first"), person.send("/act/kill/first", {})):
        assert (answer.code, "--actions" in answer.text) == (404, True)
    assert 'id="act-' not in person.get("/jobs/first").text


def test_hostile_names_stay_text_on_pages_of_actions(world: ConsoleWorld, ada: Person) -> None:
    job = parse_mapping(manifest("orders"))
    world.client.act(world.client.prepare(JobId("odd"), job, f"{HOSTILE}/a/b"))
    for path in ("/act/kill/odd", f"/act/set/odd?task={HOSTILE}&maxPending={HOSTILE}"):
        assert "<script>" not in ada.get(path).text


# --- upgrades, tried ------------------------------------------------------------------------------


def tried(person: Person, text: str) -> Answer:
    body = text.encode()
    form = (
        b'--b\r\nContent-Disposition: form-data; name="manifest"\r\n\r\n' + body + b"\r\n--b--\r\n"
    )
    return ask(
        person.console, "/jobs/first/upgrade", "POST", form, Origin="http://localhost:8484",
        Content_Type="multipart/form-data; boundary=b", **person.headers,
    )  # fmt: skip


def test_a_manifest_is_tried_in_the_place_of_a_job_and_nothing_changes(ada: Person) -> None:
    before = ada.world.client.replica().version
    page = ada.get("/jobs/first/upgrade").text
    text = html.unescape(page[page.index("<textarea") :].partition(">")[2].partition("</")[0])
    same = tried(ada, text)
    assert (same.code, "The manifest is the same" in same.text) == (200, True)
    other = tried(ada, text.replace("store", "shelf")).text
    assert re.search(r'">store</th><td[^>]*>output</td><td[^>]*>dropped', other)
    assert '<span class="more">+  - name: shelf</span>' in other
    lossy = tried(ada, text.replace("spec:", "spec:\n  guarantee: at-most-once"))
    assert (lossy.code, "keeps no state" in lossy.text) == (400, True)
    assert ada.world.client.replica().version == before


@pytest.mark.parametrize(
    "text", ["", "{", "kind: OnyxJob", "a: &a [*a]", "\x00", "- " * 5_000, HOSTILE]
)
def test_a_manifest_that_is_none_is_refused_in_words(ada: Person, text: str) -> None:
    answer = tried(ada, text)
    assert (answer.code, "It would be refused" in answer.text) == (400, True)
    assert "<script>" not in answer.text


def test_an_upgrade_of_what_is_not_there_is_no_error(ada: Person) -> None:
    assert ada.get("/jobs/nobody/upgrade").code == 409
    assert ada.get("/jobs/%2e%2e/upgrade").code in (404, 409)
