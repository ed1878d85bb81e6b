"""What may be asked of tables, joins and processors, and of whom."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace
from tests.support.log.runs import altered

from onyx.client.query import owners_of
from onyx.client.states.kinds import state_named, states_of
from onyx.client.window_view import Question, asked_of
from onyx.errors import UserError
from onyx.flow.groups.keys import shard_of
from onyx.ids import GroupId, JobId, PeerId, Slot, TaskName
from onyx.keystate.extents import ALL
from onyx.keystate.selection import EVERYTHING, Selection
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.replica.state import Replica

JOB = JobId("job-1")
PEERS = 3


def job(**more: Any) -> Job:
    spec = {
        "guarantee": "exactly-once",
        "workflow": [["read", "named"], ["named", "priced"], ["priced", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "generator", "batchSize": 1,
             "options": {"segments": 1}},
            {"name": "named", "type": "function", "join": {"table": "names", "key": "product"}},
            {"name": "priced", "type": "function", "groupByKey": ["day", "product"],
             "fluxPolicy": "continue",
             "join": {"table": "prices", "key": ["product", "day"], "at": "time"}},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 1},
            {"name": "names", "type": "table", "plugin": "files", "key": "id",
             "options": {"path": "names.jsonl"}},
            {"name": "prices", "type": "table", "plugin": "files", "key": ["id", "date"],
             "partitioned": True, "versionKey": "since", "options": {"path": "prices.jsonl"},
             "schema": {"id": "string", "date": "date", "since": "timestamp"}},
        ],
        **more,
    }  # fmt: skip
    manifest = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "shop"}}
    return parse_mapping({**manifest, "spec": spec})


def replica(found: Job) -> Replica:
    tasks = {
        each.name: [PeerId(f"{each.name}-{n}") for n in range(PEERS)] for each in found.catalog
    }
    peers = [peer for members in tasks.values() for peer in members]
    slots = {
        name: Map({peer: Slot(n) for n, peer in enumerate(members)})
        for name, members in tasks.items()
    }
    return altered(
        Replica(
            jobs=(JOB,), groups_reverse_index=Map({peer: GroupId(f"g-{peer}") for peer in peers})
        ),
        JOB,
        allocation=Map({TaskName(name): tuple(members) for name, members in tasks.items()}),
        slots=Map(slots),
    )


def owners(found: Job, name: str, key: Any = ALL) -> list[str]:
    return [each.peer for each in owners_of(replica(found), JOB, state_named(found, name), key)]


def refused(found: Job, name: str, select: Selection = EVERYTHING, durable: bool = False) -> str:
    with pytest.raises(UserError) as error:
        asked_of(found, Question(JOB, name, select, durable=durable))
    return str(error.value)


def no_files() -> Any:
    raise AssertionError("it has none")


def listed(found: Job) -> list[tuple[str, str, str, bool]]:
    return [(each.name, each.task, each.kind, each.grouped) for each in states_of(found)]


def test_tables_are_listed_with_the_first_task_that_looks_them_up() -> None:
    assert listed(job()) == [
        ("names", "named", "table", True),
        ("prices", "priced", "partitioned table with versions", True),
    ]


def test_a_whole_table_is_asked_of_one_peer_whatever_the_key() -> None:
    for key in (ALL, "tea", 7):
        assert owners(job(), "names", key) == ["named-0"]


def test_a_partitioned_table_is_asked_of_who_has_the_group() -> None:
    assert owners(job(), "prices") == ["priced-0", "priced-1", "priced-2"]
    for n in range(9):
        group = {"product": f"p{n}", "day": n}
        asked = owners(job(), "prices", {"id": f"p{n}", "date": n})
        assert asked == [f"priced-{shard_of(group) % PEERS}"]


def test_times_are_those_of_versions() -> None:
    assert state_named(job(), "prices").in_time
    assert not state_named(job(), "names").in_time
    assert "no versions, has no times" in refused(job(), "names", Selection(time_from=1))
    asked_of(job(), Question(JOB, "prices", Selection(time_from=1)))


def test_a_key_of_several_parts_has_all_of_them() -> None:
    assert "is an object with id, date" in refused(job(), "prices", Selection(key="tea"))
    assert "is an object with id, date" in refused(job(), "prices", Selection(key={"id": "tea"}))


def test_a_table_is_always_durable_and_never_in_a_state_log() -> None:
    found = job(guarantee="at-most-once")
    state = asked_of(found, Question(JOB, "names", durable=True))
    with pytest.raises(UserError, match=r"only in the memory of workers .* read its source"):
        state.empty(print, no_files)


def joining(left: Any = "id", right: Any = "of") -> Job:
    sides = {
        side: {"task": side, "key": key, "at": "at"}
        for side, key in (("left", left), ("right", right))
    }
    return job(
        workflow=[["left", "meet"], ["right", "meet"], ["meet", "write"]],
        catalog=[
            *({"name": name, "type": "input", "plugin": "generator", "batchSize": 1,
               "options": {"segments": 1}} for name in ("left", "right")),
            {"name": "meet", "type": "join", "within": {"before": 1, "after": 1}, **sides},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 1},
        ],
    )  # fmt: skip


def test_a_join_is_asked_by_the_key_of_its_left_side() -> None:
    assert listed(joining()) == [("meet", "meet", "join of streams", True)]
    assert state_named(joining(), "meet").in_time
    assert owners(joining(), "meet") == ["meet-0", "meet-1", "meet-2"]
    for n in range(9):
        assert owners(joining(), "meet", n) == [f"meet-{shard_of(n) % PEERS}"]
        asked = owners(joining(["id", "day"], ["of", "on"]), "meet", {"day": 1, "id": n})
        assert asked == [f"meet-{shard_of({'0': n, '1': 1}) % PEERS}"]
    found = joining(["id", "day"], ["of", "on"])
    assert "object with id, day" in refused(found, "meet", Selection(key={"of": 1, "on": 1}))


def processing(**more: Any) -> Job:
    return job(
        workflow=[["read", "count"], ["count", "write"]],
        catalog=[
            {"name": "read", "type": "input", "plugin": "generator", "batchSize": 1,
             "options": {"segments": 1}},
            {"name": "count", "type": "function", "processor": "m:Count"},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 1},
        ],
        **more,
    )  # fmt: skip


def test_an_entry_of_a_processor_may_be_at_any_peer() -> None:
    assert listed(processing()) == [("count", "count", "snapshot of a processor", True)]
    for key in (ALL, 7, "seven"):
        assert owners(processing(), "count", key) == ["count-0", "count-1", "count-2"]
    assert "has no times" in refused(processing(), "count", Selection(time_to=1))


@pytest.mark.parametrize("name", ["meet", "count"])
def test_a_state_in_memory_is_not_durable(name: str) -> None:
    found = replace(joining() if name == "meet" else processing(), guarantee="at-most-once")
    asked_of(found, Question(JOB, name))
    assert "nothing of it is durable" in refused(found, name, durable=True)


def test_what_spark_has_is_not_shown() -> None:
    assert "runs on Spark" in refused(replace(job(), engine="spark"), "names")
    assert "one query of Spark" in refused(replace(processing(), engine="spark"), "count")
