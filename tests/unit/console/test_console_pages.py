"""Pages of the console, from what is in the log and beside it to their text."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest
from msgspec.structs import replace
from tests.support.console_world import (
    GROUPS,
    HOSTILE,
    SPEC,
    STATEFUL,
    ConsoleWorld,
    answered,
    manifest,
    measured,
    shop,
)

from onyx.client.window_view import Question, WindowView
from onyx.console import ask_page, board
from onyx.console.job_page import difference
from onyx.console.jobs_page import Filter
from onyx.errors import LogReplaced, StateError, Unavailable
from onyx.ids import JobId, Position, TaskName
from onyx.keystate.selection import place_of
from onyx.log.interface import Document
from onyx.model.parsing.job import parse_mapping
from onyx.replica import canonical
from onyx.reports.measures import Measures, ZooKeeperMeasures


def plain(page: str) -> str:
    """What a page says, without its tags."""
    body = page[page.index("<main") :]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


@pytest.fixture(scope="module")
def world() -> ConsoleWorld:
    return shop()


def test_an_empty_cluster_says_what_to_do() -> None:
    empty = ConsoleWorld()
    assert "No jobs yet. Submit one: onyx submit job.yaml" in plain(empty.text("/"))
    assert "No worker is here. Start one: onyx worker" in plain(empty.text("/cluster"))
    assert "The log is empty" in plain(empty.text("/time"))


def test_the_list_says_how_each_job_is_and_why(world: ConsoleWorld) -> None:
    text = plain(world.text("/"))
    assert "6 jobs · 4 workers" in text
    assert re.search(
        r"clicks \S+… stalled does not advance: task enrich \(peer .{8}\), for 95 s", text
    )
    assert "312 of 120,000 segments of clean went to rejected; first error: KeyError" in text
    assert re.search(r"returns \S+… failed task clean, its function: ValueError", text)
    assert re.search(r"prices \S+… waiting task enrich needs a peer with tags \[tpu\]", text)
    assert re.search(r"flights \S+… completed 0 peers 1 h", text)


def test_a_job_says_once_that_it_does_not_advance(world: ConsoleWorld) -> None:
    text = plain(world.text("/jobs/clicks"))
    assert "Why it does not advance. task enrich (peer " in text
    assert "does not advance: " not in text


@pytest.mark.parametrize(
    ("query", "jobs"),
    [
        ({"q": "CLICK"}, {"clicks"}),
        ({"state": "failed"}, {"returns"}),
        ({"state": "trouble"}, {"clicks", "returns", "prices"}),
        ({"state": "running", "q": "o"}, {"orders"}),
        ({"state": "stalled", "q": "o"}, set()),
        ({"state": "<nonsense>", "page": "-1", "sort": "?", "q": "flights"}, {"flights"}),
    ],
)
def test_jobs_are_filtered_by_the_address(
    world: ConsoleWorld, query: dict[str, str], jobs: set[str]
) -> None:
    text = world.text("/", **query)
    found = set(re.findall(r'id="job-[^"]*" href="[^"]*">([^<]*)</a>', text))
    assert found == jobs


def test_a_filter_is_the_same_after_its_own_address() -> None:
    asked = Filter("a&b", "killed", "name", 3)
    query = dict(pair.split("=") for pair in asked.url(page=3).removeprefix("/?").split("&"))
    assert Filter.of({key: value.replace("%26", "&") for key, value in query.items()}) == asked


def test_a_job_shows_its_graph_what_holds_it_up_and_what_has_happened(world: ConsoleWorld) -> None:
    page = world.text("/jobs/clicks")
    text = plain(page)
    assert "What is slow, and why enrich peer" in text
    assert "at /app/shop.py:42 in enrich: rate = fetch(segment['currency'])" in text
    assert '<g class="node slow"' in page
    assert page.count('<g class="edge') == len(SPEC["workflow"])
    assert "enrich to alerts: if amount > 1000" in text
    assert "clean to rejected: what fails for good" in text
    assert re.search(
        r"allocated anew, because worker 2f3a9c01-\S+ left: 23 peers on 4 workers", text
    )
    assert "submitted, with 7 tasks" in text


def test_a_job_that_was_killed_shows_where_it_failed(world: ConsoleWorld) -> None:
    text = plain(world.text("/jobs/returns"))
    assert "Why it has failed. task clean, its function: ValueError" in text
    assert "at /app/shop.py:17 in clean: amount = float(segment['amount'])" in text
    assert "segment: {'order': 4711, 'amount': 'n/a'}" in text


def test_inputs_show_what_they_have_completed(world: ConsoleWorld) -> None:
    assert re.search(
        r"orders input generator runs 4 .* 4 481,668 clean function",
        plain(world.text("/jobs/orders")),
    )


def test_a_manifest_is_compared_with_the_version_before() -> None:
    world = ConsoleWorld()
    world.submit("orders", id="first")
    world.submit("orders", id="second", ackers=2)
    text = plain(world.text("/jobs/second/manifest"))
    assert "What changed since first" in text
    assert "+ ackers: 2" in text
    assert "- jobId: first + jobId: second" in text
    assert "What changed since" not in plain(world.text("/jobs/first/manifest"))


def test_any_entry_of_the_log_is_shown_with_the_cluster_as_it_was(world: ConsoleWorld) -> None:
    changes = list(world.client.changes())
    left = next(each for each in changes if each.entry.command.NAME == "group-leave-cluster")
    text = plain(world.text("/time", at=str(left.entry.position)))
    assert "worker 2f3a9c01… has left group-leave-cluster" in text
    assert "orders allocated anew, because worker 2f3a9c01-" in text
    assert "14 peers fewer, 46 in all" in text
    before = plain(world.text("/time", at=str(left.entry.position - 1)))
    assert "5 workers · 60 peers" in before
    assert "4 workers · 46 peers" in text


def test_entries_of_one_job_are_stepped_through(world: ConsoleWorld) -> None:
    job = next(each.id for each in world.client.statuses() if each.name == "nightly")
    page = world.text("/time", job=job)
    assert "only nightly ( all jobs )" in plain(page)
    assert "nightly suspended" in plain(page)
    assert "kubernetes:grace" in page


@pytest.mark.parametrize("at", ["999999", "-1", "x", "1e3", "9" * 40, "\u0665"])
def test_an_entry_that_is_not_there_is_a_page(world: ConsoleWorld, at: str) -> None:
    assert "No such entry" in plain(world.text("/time", at=at))


def test_the_cluster_shows_workers_ring_code_and_deaths(world: ConsoleWorld) -> None:
    page = world.text("/cluster")
    text = plain(page)
    assert "4 workers · 46 of 46 peers busy" in text
    assert re.search(rf"{GROUPS[2][:13]}… 10\.0\.0\.\d:6000 14 14", text)
    assert "3f2a9c01 on 42 peers, 9d01aa3e on 4 peers" in text
    assert "SIGKILL, which held 900 MiB at most, with a memory limit of 1,024 MiB" in text
    assert page.count('<path class="watch"') == 4
    assert f"{GROUPS[0]} watches {GROUPS[2]}" in page


def test_the_cluster_says_whose_replica_is_not_that_of_the_log(world: ConsoleWorld) -> None:
    (worker,) = measured(world).workers
    at = worker.zookeeper.log_position
    before = canonical.digest(world.client.replica(Position(at - 1)))
    said = [
        worker,
        replace(worker, group=GROUPS[2], digest=before),
        replace(
            worker, group=GROUPS[3], digest=before, zookeeper=ZooKeeperMeasures(log_position=at - 1)
        ),
        replace(worker, group=GROUPS[4], zookeeper=ZooKeeperMeasures(log_position=at + 7)),
    ]
    console = world.console(Measures(tuple(said)))
    text = plain(console.html(console.page("/cluster", {})))
    assert f"Replicas differ. {GROUPS[2][:13]}…: it has another replica than the log gives" in text
    assert "Workers with the same replica as the log 2 of 4, 1 with another one" in text
    assert text.count(" differs ") == 1


def test_what_workers_measure_is_shown_where_it_is_looked_for(world: ConsoleWorld) -> None:
    console = world.console(measured(world))
    pages = {
        path: console.html(console.page(path, {})) for path in ("/", "/jobs/orders", "/cluster")
    }
    listed, job, cluster = map(plain, pages.values())
    assert re.search(
        r"orders \S+… running .* 12\.4 k/s 48,210, 1 min 32 s 1\.0 s 17 23 peers", listed
    )
    assert "slow clean waits for room here; its busiest peer works 97% of its time" in job
    assert "Reads 12.4 k/s Behind 48,210, 1 min 32 s Latency (p99) 1.0 s" in job
    assert "120 MiB, 40,210 groups, 12 timers, left 7, right 1,204" in job
    assert re.search(
        r"orders( \S){5} 2030-03-17 17:46:39, .* ahead "
        r"totals 120 MiB 40,210 left 7, right 1,204 12 2030-03-17 17:47:40, in .* \S Ask",
        job,
    )
    assert "Figures are without workers that do not answer. 3f3a9c01…: no answer in time" in job
    assert '<g class="edge flow held">' in pages["/jobs/orders"]
    assert re.search(r"1f3a9c01-4c47….* 180 MiB 93", cluster)
    assert "silent" in cluster


def test_a_task_shows_its_partitions_its_state_and_what_each_peer_does(world: ConsoleWorld) -> None:
    console = world.console(measured(world))

    def text(path: str) -> str:
        return plain(console.html(console.page(path, {})))

    read = text("/jobs/orders/tasks/orders")
    assert "orders input generator" in read
    assert "From reading to complete half within 10 ms, 99 % within 1.0 s" in read
    assert "Read again in a minute 17" in read
    assert "shard-0 120,417 400 12,052 2030-03-17 17:46:40" in read
    assert "State 120 MiB Groups 40,210 Timers 12 Next timer 2030-03-17 17:47:40" in text(
        "/jobs/orders/tasks/totals"
    )
    enrich = text("/jobs/orders/tasks/enrich")
    assert "apply-fn 3.2 s at /app/shop.py:42 in enrich: rate = fetch" in enrich
    assert "3f3a9c01-4c47-4b1c-9d5e-1f3a5b7c9d33: no answer in time: 1 s" in enrich
    assert "its worker does not answer" in enrich


def test_a_peer_shows_what_runs_and_how_much_memory_its_worker_has(world: ConsoleWorld) -> None:
    console = world.console(measured(world))
    peers = world.client.replica().run(world.client.named("orders")).allocation[TaskName("enrich")]
    peer = next(each for each in peers if each.startswith(GROUPS[0][:8]))
    text = plain(console.html(console.page(f"/peers/{peer}", {})))
    assert "Job orders Task enrich Does apply-fn In this step for 3.2 s" in text
    assert "What runs now at /app/shop.py:42 in enrich" in text
    assert "Memory of the process 180 MiB Memory of its container 700 MiB, 68% of 1.0 GiB" in text
    worker = plain(console.html(console.page(f"/workers/{GROUPS[0]}", {})))
    assert re.search(r"Peers 14 .* orders enrich apply-fn 3\.2 s at /app/shop\.py:42", worker)
    silent = plain(console.html(console.page(f"/workers/{GROUPS[2]}", {})))
    assert "This worker does not say what it does. no answer in time: 1 s" in silent
    assert re.search(r"Address 10\.0\.0\.\d:6000 Peers 14", silent)


def test_what_a_peer_did_before_it_got_another_task_is_not_shown(world: ConsoleWorld) -> None:
    figures = measured(world)
    (worker,) = figures.workers
    others = tuple(replace(each, job="gone") for each in worker.peers)
    old = replace(figures, workers=(replace(worker, peers=others),))
    console = world.console(old)
    assert "apply-fn" not in console.html(console.page("/jobs/orders/tasks/enrich", {}))


def test_a_figure_that_is_not_known_is_no_zero(world: ConsoleWorld) -> None:
    assert "k/s" not in world.text("/")
    assert "Behind" not in world.text("/jobs/orders")


def test_a_thousand_jobs_are_shown_two_hundred_at_a_time() -> None:
    text = plain(shop(1_000).text("/", sort="name", page="2"))
    assert "1,006 jobs" in text
    assert "201 to 400 of 1,006" in text


def test_nothing_that_a_name_or_an_error_says_becomes_a_tag() -> None:
    world = ConsoleWorld()
    world.join(*GROUPS[:2], peers=7, tags=(HOSTILE,))
    job = world.submit("orders")
    world.stall(job, "enrich", HOSTILE)
    world.document("exception/other", {"detail": HOSTILE})
    world.outcome(job, "clean", 1)
    (peer, *_) = world.client.replica().run(job).allocation[TaskName("enrich")]
    paths = ("/", "/cluster", "/time", "/jobs/orders", "/jobs/orders/manifest",
             "/jobs/orders/tasks/enrich", f"/peers/{peer}", f"/workers/{GROUPS[0]}")  # fmt: skip
    for path in paths:
        for page in (world.text(path), world.text(path, q=HOSTILE, job=HOSTILE, state=HOSTILE)):
            assert "<script>alert" not in page
    for path in ("/jobs/orders", f"/peers/{peer}", f"/workers/{GROUPS[0]}"):
        assert HOSTILE in plain(world.text(path))


def test_a_state_is_asked_for_by_key_beginning_and_range_a_page_at_a_time() -> None:
    world = ConsoleWorld()
    world.join(GROUPS[0], peers=8)
    world.submit("orders", id="first", catalog=STATEFUL)
    asked: list[tuple[Question, float]] = []

    def answer(question: Question, timeout_s: float) -> WindowView:
        asked.append((question, timeout_s))
        return answered(question, timeout_s)

    console = world.console(answer=answer)

    def page(**query: str) -> str:
        return console.html(console.page("/ask", query))

    assert "totals.spent totals state of a function" in plain(page(job="orders"))
    assert not asked
    found = page(job="orders", state="totals.spent", key="5")
    assert 'ada 2030-03-17T17:46:40+00:00 2030-03-17T17:47:40+00:00 {"spent":7}' in plain(found)
    assert "(100000 characters)" in found
    assert "<script>alert" not in found
    assert (asked[0][0].job, asked[0][0].select.key, asked[0][0].extents_max) == ("first", 5, 200)
    (following,) = re.findall(r'rel="next" href="/ask\?([^"]*)"', found)
    page(**dict(parse_qsl(html.unescape(following))))
    assert asked[1][0].select.after == place_of(answered(*asked[0]).extents[-1])
    assert asked[1][0].select.key == 5
    page(job="first", state="totals.spent", **{"from-key": "a", "to-key": "b", "key": " "})
    assert (asked[2][0].select.key_from, asked[2][0].select.key_to) == ("a", "b")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"state": "totals.spent"}, "No answer. no worker answers"),
        ({"state": "totals.spent", "key": "a", "prefix": "b"}, "ask for one group, or for"),
        ({"state": "totals.spent", "from": "when?"}, "neither a number nor a moment"),
        ({"state": "totals.spent", "after": "%%%"}, "is not where a page has ended"),
        ({"job": "nothing"}, "No job is called nothing"),
    ],
)
def test_a_question_without_an_answer_says_why_and_stays_as_it_was_asked(
    query: dict[str, str], why: str
) -> None:
    world = ConsoleWorld()
    world.submit("orders", id="first", catalog=STATEFUL)
    console = world.console()
    page = console.html(console.page("/ask", {"job": "first", **query}))
    assert why in plain(page)
    for field in ("key", "prefix", "from"):
        assert f'name="{field}" value="{query.get(field, "")}"' in page or "No job" in page


def test_a_question_holds_no_page_for_longer_than_its_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ask_page, "ANSWER_PATIENCE_S", 0.0)
    world = ConsoleWorld()
    world.submit("orders", id="first", catalog=STATEFUL)
    go_on = threading.Event()

    def answer(*_: object) -> Any:
        go_on.wait()

    console = world.console(answer=answer)
    page = console.html(console.page("/ask", {"job": "first", "state": "totals.spent"}))
    go_on.set()
    assert "No answer. it has not come within 0 s" in plain(page)


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/x",
        "/jobs/../etc",
        "/jobs/%00",
        "/jobs/" + "y" * 999,
        "/x",
        "/peers/x",
        "/workers/x",
        "/workers/",
        "/jobs/x/tasks/y",
        "/jobs//tasks/y",
        "//",
        "",
    ],
)
def test_what_is_not_there_is_a_page_with_404(path: str) -> None:
    console = ConsoleWorld().console()
    page = console.page(path, {})
    assert page.code == 404
    assert "<h1>" in console.html(page)


def test_a_manifest_that_is_damaged_hides_no_other_job() -> None:
    world = ConsoleWorld()
    world.submit("orders", id="sound")
    job = JobId("broken")
    broken = world.client.prepare(job, parse_mapping(manifest("broken")))
    world.memory._store.chunks[broken.spec.digest] = b"{"  # as a disk could
    world.put(broken)
    text = plain(world.text("/"))
    assert "orders sound" in text
    assert "its manifest cannot be read" in plain(world.text("/jobs/broken"))


def test_a_page_says_of_when_it_is_when_zookeeper_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ConsoleWorld()
    world.submit("orders")
    console = world.console()
    console.page("/", {})

    def away(path: str) -> Document | None:
        raise Unavailable("no connection")

    world.clock_s += 60
    monkeypatch.setattr(world.log, "list_folders", away, raising=False)
    text = plain(console.html(console.page("/", {})))
    assert "the log does not answer: no connection" in text
    assert "orders" in text


def test_a_manifest_that_is_no_job_hides_no_other_job(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ConsoleWorld()
    world.join(GROUPS[0], peers=14)
    world.submit("orders")
    odd = world.submit("odd", id="odd")
    world.outcome(odd, "clean", 3)
    digest, real = world.client.replica().digest_of(odd), world.log.get_chunk
    damaged = b'{"metadata": {"name": "odd"}, "spec": {}}'
    chunk = lambda of: damaged if of == digest else real(of)  # noqa: E731
    monkeypatch.setattr(world.log, "get_chunk", chunk, raising=False)
    text = plain(world.text("/"))
    assert "its manifest cannot be read: " in text
    assert "orders" in text
    assert "ZooKeeper" not in text


def test_a_bug_in_what_is_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ConsoleWorld()
    console = world.console()
    monkeypatch.setattr(world.log, "list_folders", lambda _: 1 // 0, raising=False)
    text = plain(console.html(console.page("/", {})))
    assert "Nothing could be read yet. What is beside the log cannot be read: integer" in text
    job = console.page("/jobs/orders", {})  # which may well be there
    assert (job.code, "This is not known yet" in console.html(job)) == (503, True)


def test_when_zookeeper_is_back_the_next_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ConsoleWorld()
    world.submit("orders")
    console = world.console()

    def away(_: str) -> tuple[str, ...]:
        world.clock_s += 15  # which it takes to give up
        raise Unavailable("no connection")

    monkeypatch.setattr(world.log, "list_folders", away, raising=False)
    assert "no connection" in console.html(console.page("/", {}))
    monkeypatch.undo()
    world.clock_s += 1
    assert "no connection" not in console.html(console.page("/", {}))


def test_an_entry_that_cannot_be_read_now_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ConsoleWorld()
    monkeypatch.setattr(board, "CHANGES_MAX", 1)
    world.submit("orders")
    world.submit("flights")
    console = world.console()

    def damaged(*_: object) -> Document:
        raise StateError("the archive is damaged")

    monkeypatch.setattr(world.client, "entries", damaged)
    page = console.page("/time", {"at": "0"})
    assert page.code == 503
    assert "the archive is damaged" in plain(console.html(page))


def test_no_page_of_a_job_waits_for_how_far_its_inputs_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = shop()
    console = world.console()
    console.page("/", {})
    monkeypatch.setattr(board, "PATIENCE_S", 0.0)
    go_on = threading.Event()
    monkeypatch.setattr(board, "completed_positions", lambda *_: go_on.wait() and {})
    assert "orders" in plain(console.html(console.page("/jobs/orders", {})))
    go_on.set()


@pytest.mark.parametrize("path", ["/jobs/orders", "/jobs/orders/manifest"])
def test_no_page_waits_for_a_manifest_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    world = ConsoleWorld()
    world.submit("orders")
    console = world.console()
    console.page("/", {})
    monkeypatch.setattr(board, "PATIENCE_S", 0.0)
    go_on = threading.Event()
    monkeypatch.setattr(world.log, "get_chunk", lambda _: go_on.wait() and b"", raising=False)
    pages = [plain(console.html(console.page(path, {}))) for _ in range(3)]
    go_on.set()
    assert all("cannot be read: it has not come within 0 s" in each for each in pages)


def test_a_page_waits_no_longer_than_its_patience_for_what_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConsoleWorld()
    world.submit("orders")
    console = world.console()
    console.page("/", {})
    monkeypatch.setattr(board, "PATIENCE_S", 0.0)
    go_on = threading.Event()
    monkeypatch.setattr(world.log, "list_folders", lambda _: go_on.wait() and (), raising=False)
    world.clock_s += 60
    text = plain(console.html(console.page("/", {})))
    go_on.set()
    assert board.SLOW in text
    assert "orders" in text


def test_a_log_that_cannot_be_followed_any_more_ends_the_console(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConsoleWorld()
    world.submit("orders")

    def replaced(_: object, __: object, fail: Callable[[Exception], None]) -> Callable[[], None]:
        fail(LogReplaced("the log was recreated"))
        return lambda: None

    monkeypatch.setattr(world.client._replicas._log, "subscribe", replaced, raising=False)
    ended = threading.Event()
    with pytest.raises(LogReplaced), board.followed(world.client, ended.set):
        assert ended.is_set()


def test_long_manifests_are_compared_from_the_first_change_to_the_last() -> None:
    """By `difflib` lines that come back, as here, take minutes."""
    lines = [str(number % 71) for number in range(8_000)]
    now = [*lines[:3], "a", *lines[4:6], "b", *lines[6:]]
    found = difference("\n".join(lines), "\n".join(now))
    assert [(each.kind, each.text) for each in found] == [
        ("where", "@@ from line 4 @@"), ("less", "-3"), ("less", "-4"), ("less", "-5"),
        ("more", "+a"), ("more", "+4"), ("more", "+5"), ("more", "+b"),
    ]  # fmt: skip
    assert difference("\n".join(lines), "\n".join(lines)) == ()
    backwards = difference("\n".join(lines), "\n".join(lines[::-1]))
    assert backwards[-1].text == "... and more"
