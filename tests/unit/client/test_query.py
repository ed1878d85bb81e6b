"""Who is asked about the state of a window, what becomes of the answers, and who hears why not."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.log.memory_log import MemoryLog
from tests.support.log.runs import altered

from onyx.client.client import Client
from onyx.client.query import StateReader
from onyx.client.reader import JobReader
from onyx.client.states.kinds import states_of
from onyx.client.window_view import Question, WindowView, asked_of
from onyx.codec.questions import decode_selection, encode_extents
from onyx.errors import SegmentError, Unavailable, UserError
from onyx.flow.groups.keys import shard_of
from onyx.ids import GroupId, JobId, PeerId, Position, Slot, TaskName
from onyx.keystate.extents import ALL, Extent
from onyx.keystate.selection import Answer, Selection
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.replica.state import Replica
from onyx.transport.state_queries import StateAnswer, StateQuery

JOB = JobId("job-1")
WINDOWED = {"batchSize": 1, "type": "reduce"}
MANIFEST: dict[str, Any] = {
    "apiVersion": "onyx.dev/v1beta1",
    "kind": "OnyxJob",
    "metadata": {"name": "words"},
    "spec": {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["read", "all-words"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "generator", "batchSize": 1,
             "options": {"segments": 1}},
            {"name": "count", **WINDOWED, "groupByKey": "word", "fluxPolicy": "continue"},
            {"name": "all-words", **WINDOWED},
        ],
        "windows": [
            {"id": "counts", "task": "count", "type": "fixed", "aggregation": "count",
             "windowKey": "n", "range": [10, "minutes"]},
            {"id": "total", "task": "all-words", "type": "global", "aggregation": "count"},
        ],
        "triggers": [
            {"windowId": each, "id": "end", "type": "segment", "threshold": [9, "elements"],
             "refinement": "accumulating", "sync": "m:sync"}
            for each in ("counts", "total")
        ],
    },
}  # fmt: skip


def replica(peers: int = 3, version: int = 5, suspended: bool = False, **more: Any) -> Replica:
    """Slots run against the names, so that the order of neither is taken for the other."""
    tasks = {name: [PeerId(f"{name}-{n}") for n in range(peers)] for name in ("count", "all-words")}
    slots = {
        name: {p: Slot(peers - n) for n, p in enumerate(members)} for name, members in tasks.items()
    }
    everyone = [peer for members in tasks.values() for peer in members]
    allocation = Map({TaskName(name): tuple(members) for name, members in tasks.items()})
    known = Replica(
        version=Position(version),
        jobs=(JOB,),
        groups_reverse_index=Map({peer: GroupId(f"g-{peer}") for peer in everyone}),
        peer_sites=Map({peer: Map({"address": f"{peer}:1"}) for peer in everyone}),
    )
    return altered(
        replace(known, **more),
        JOB,
        allocation=allocation if peers else Map(),
        slots=Map({name: Map(each) for name, each in slots.items()}),
        allocation_version=version,
        suspended=suspended,
    )


class Fixed(Client):
    """A client whose replicas come one after another, the last one for ever."""

    def __init__(self, *replicas: Replica) -> None:
        super().__init__(MemoryLog().client(), "balanced")
        self._replicas = list(replicas)

    def replica(self, at: Position | None = None) -> Replica:
        return self._replicas.pop(0) if len(self._replicas) > 1 else self._replicas[0]

    def job(self, job: JobId) -> Job:
        return parse_mapping(MANIFEST)


class Peers:
    """Answers questions, and remembers them."""

    def __init__(self, answer: Callable[[StateQuery], StateAnswer]) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self.asked: list[tuple[str, StateQuery]] = []

    def ask(self, address: str, query: StateQuery, timeout_s: float) -> StateAnswer:
        assert timeout_s > 0
        with self._lock:
            self.asked.append((address, query))
        return self._answer(query)

    @property
    def names(self) -> list[PeerId]:
        return sorted(query.peer for _, query in self.asked)


def own(query: StateQuery) -> StateAnswer:
    """Each peer has one group, called as it is."""
    return StateAnswer(encode_extents([Extent(query.peer, 0, 9, 1)], 1_000)[0], False)


def busy(query: StateQuery) -> StateAnswer:
    raise Unavailable("busy")


def read(
    client: Client, peers: Peers, window: str = "counts", key: Any = ALL, **more: Any
) -> WindowView:
    return reader(client, peers).read(Question(JOB, window, Selection(key=key), **more))


def reader(client: Client, peers: Peers) -> StateReader:
    clock = ManualClock()
    return StateReader(client, "tenancy", peers.ask, kept, clock, clock.advance)


def kept(client: JobReader, job: Job, question: Question) -> Answer:
    """What the state log of a job says that nobody works on."""
    return Answer([Extent("kept", 0, 9, question.window)], False)


def test_all_owners_are_asked_and_their_extents_are_in_order() -> None:
    peers = Peers(own)
    view = read(Fixed(replica()), peers)
    assert [extent.group for extent in view.extents] == ["count-0", "count-1", "count-2"]
    assert (view.task, view.more, view.in_time) == ("count", False, True)
    for address, query in peers.asked:
        assert address == f"{query.peer}:1"
        assert (query.tenancy, query.group, query.version) == ("tenancy", f"g-{query.peer}", 5)


def test_a_group_is_asked_of_its_owner_alone() -> None:
    for word in ("a", "b", "c", "d", "e"):
        peers = Peers(own)
        read(Fixed(replica()), peers, key=word)
        by_slot = ["count-2", "count-1", "count-0"]
        assert peers.names == [by_slot[shard_of(word) % 3]]
        assert decode_selection(peers.asked[0][1].selection).key == word


def test_a_state_without_groups_is_asked_of_the_peer_of_the_lowest_slot() -> None:
    peers = Peers(own)
    view = read(Fixed(replica()), peers, "total")
    assert peers.names == ["all-words-2"]
    assert not view.in_time


def test_peers_that_own_no_key_group_are_not_asked() -> None:
    peers = Peers(own)
    read(Fixed(replica(peers=130)), peers)
    assert len(peers.asked) == 128


def test_more_extents_than_were_asked_for_are_told() -> None:
    view = read(Fixed(replica()), Peers(own), extents_max=2)
    assert (len(view.extents), view.more) == (2, True)


def test_the_whole_question_is_repeated_when_the_job_is_re_allocated_meanwhile() -> None:
    def answer(query: StateQuery) -> StateAnswer:
        return own(query) if query.version == 9 else busy(query)

    peers = Peers(answer)
    view = read(Fixed(replica(3, 5), replica(3, 5), replica(2, 9)), peers)
    assert [extent.group for extent in view.extents] == ["count-0", "count-1"]


def test_a_peer_that_stays_busy_is_told_after_the_time_limit() -> None:
    peers = Peers(busy)
    with pytest.raises(Unavailable, match="no answer within 10 s: busy"):
        read(Fixed(replica(1)), peers)
    assert 10 < len(peers.asked) < 20


def test_what_is_wrong_with_a_question_is_not_asked_twice() -> None:
    def refuse(query: StateQuery) -> StateAnswer:
        raise SegmentError("too large")

    peers = Peers(refuse)
    with pytest.raises(UserError, match="too large"):
        read(Fixed(replica(1)), peers)
    assert len(peers.asked) == 1


@pytest.mark.parametrize(
    ("question", "reported"),
    [
        ({"window": "count"}, "no state 'count': it has counts, total; did you mean counts?"),
        ({"key": float("nan")}, "a group key is NaN"),
        ({"window": "total", "key": "a"}, "all-words of window total is not grouped"),
        ({"extents_max": 0}, "from 1 to 1000000 extents"),
    ],
)
def test_a_question_that_makes_no_sense_is_told_before_anybody_is_asked(
    question: dict[str, Any], reported: str
) -> None:
    peers = Peers(own)
    with pytest.raises(UserError, match=reported):
        read(Fixed(replica()), peers, **question)
    assert peers.asked == []


@pytest.mark.parametrize(
    "more", [{"suspended": True}, {"completed_jobs": Map({JOB: None})}, {}], ids=str
)
def test_the_state_of_a_job_without_peers_is_read_where_it_is_kept(more: dict[str, Any]) -> None:
    peers = Peers(own)
    view = read(Fixed(replica(peers=0, **more)), peers)
    assert [(each.group, each.state) for each in view.extents] == [("kept", "counts")]
    assert peers.asked == []


def test_pages_go_on_behind_the_last_extent_of_the_page_before() -> None:
    """Each peer has three groups, and tells of one at a time."""

    def pages(query: StateQuery) -> StateAnswer:
        asked = decode_selection(query.selection)
        groups = [f"{query.peer} {n}" for n in range(3)]
        left = [each for each in groups if asked.after is None or each > asked.after.group]
        data = encode_extents([Extent(each, 0, 9, 1) for each in left[:1]], 1_000)[0]
        return StateAnswer(data, len(left) > 1)

    asking = reader(Fixed(replica()), Peers(pages))
    views = list(asking.pages(Question(JOB, "counts", extents_max=2)))
    found = [each.group for view in views for each in view.extents]
    assert found == [f"count-{peer} {n}" for peer in range(3) for n in range(3)]
    assert [view.next is None for view in views] == [False] * (len(views) - 1) + [True]


def test_a_question_says_whether_the_answer_is_to_be_durable() -> None:
    for durable in (False, True):
        peers = Peers(own)
        read(Fixed(replica()), peers, durable=durable)
        assert {query.durable for _, query in peers.asked} == {durable}


def test_the_states_of_a_job_are_listed() -> None:
    states = states_of(parse_mapping(MANIFEST))
    assert [(each.name, each.task, each.kind, each.grouped) for each in states] == [
        ("counts", "count", "fixed window", True),
        ("total", "all-words", "global window", False),
    ]


def test_a_job_that_nobody_knows_is_told() -> None:
    client = Client(MemoryLog().client(), "balanced")
    with pytest.raises(UserError, match="there is no job job-1: `onyx jobs` lists those"):
        read(client, Peers(own))


def test_a_state_of_a_function_is_named_with_its_task() -> None:
    manifest = copy.deepcopy(MANIFEST)
    manifest["spec"]["catalog"][1] |= {
        "type": "function", "fn": "m:f", "state": {"seen": "value[int]"},
    }  # fmt: skip
    manifest["spec"]["workflow"].append(["count", "all-words"])
    manifest["spec"]["windows"] = manifest["spec"]["windows"][1:]
    manifest["spec"]["triggers"] = manifest["spec"]["triggers"][1:]
    job = parse_mapping(manifest)
    assert asked_of(job, Question(JOB, "count.seen")).task == "count"
    assert asked_of(job, Question(JOB, "total")).task == "all-words"
    assert [(each.name, each.kind) for each in states_of(job)] == [
        ("total", "global window"), ("count.seen", "state of a function")
    ]  # fmt: skip
    with pytest.raises(UserError, match="has no times"):
        asked_of(job, Question(JOB, "count.seen", Selection(time_from=1)))
    with pytest.raises(UserError, match=r"no state 'seen': it has total, count.seen"):
        asked_of(job, Question(JOB, "seen"))
