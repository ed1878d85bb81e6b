"""Tasks whose segments get what another task keeps: by group, in both formats, of several peers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.jobs.bench import Bench

from onyx.program.phases import Phase
from onyx.settings import Settings, StateSettings, TaskSettings
from onyx.task.channels.lookups import ASK_AGAIN_S
from onyx.transport.interface import LookUp, LookUpAnswer

WORDS = [{"n": n, "word": "abc"[n % 3]} for n in range(12)]
FORMS = [{}, {"batchFormat": "arrow"}]
Segments = list[dict[str, Any]]


def spec(
    join: Mapping[str, Any], form: Mapping[str, Any] = FORMS[0], segments: Segments = WORDS
) -> dict[str, Any]:
    """read -> count -> known -> write: how often each word was there comes to `known`."""
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["count", "known"], ["known", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence",
             "options": {"segments": segments}},
            {"name": "count", "type": "function", "fn": "m:same", "groupByKey": "word",
             "fluxPolicy": "continue", "onMissingKey": "group"},
            {"name": "known", "type": "function", "batchSize": 5, **form,
             "join": {"state": "seen", "key": "word", "as": "seen", **join}},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
        "windows": [{"id": "seen", "task": "count", "type": "global", "aggregation": "count"}],
    }  # fmt: skip


def with_bad(made: dict[str, Any]) -> dict[str, Any]:
    """The job with an output `bad`, which gets what fails in `known`."""
    made["workflow"].append(["known", "bad"])
    made["catalog"][2]["deadLetter"] = "bad"
    made["catalog"].append({"name": "bad", "type": "output", "plugin": "blackhole"})
    return made


def bench_of(made: dict[str, Any], peers: int = 3) -> Bench:
    return Bench(made, {"m:same": lambda each: each}, {"count": peers, "known": 2})


def rows(bench: Bench) -> Segments:
    assert bench.exceptions == []
    assert bench.completed
    return sorted(bench.written("write"), key=lambda each: each["n"])


def waits(bench: Bench) -> bool:
    """Whether a batch waits for answers."""
    return any(
        task.phase is Phase.LOOK_UP and task.allocation.lookups.waits
        for task in bench.tasks.values()
        if task.name == "known"
    )


def losing(bench: Bench, kind: type, most: int) -> list[Any]:
    """Lose the first messages of a kind; those that are lost."""
    lost: list[Any] = []
    send = bench.transport.send_lookup

    def send_some(group: Any, message: Any) -> None:
        if isinstance(message, kind) and len(lost) < most:
            lost.append(message)
        else:
            send(group, message)

    bench.transport.send_lookup = send_some  # type: ignore[method-assign]
    return lost


@pytest.mark.parametrize("form", FORMS, ids=["dicts", "columns"])
@pytest.mark.parametrize("durable", [False, True])
def test_segments_get_the_state_of_their_group_from_the_peer_that_has_it(form, durable):
    bench = bench_of(spec({"durable": durable}, form))
    bench.settle()
    found = rows(bench)
    assert [each["n"] for each in found] == list(range(12))
    assert all(each["n"] // 3 + 1 <= each["seen"] <= 4 for each in found)


@pytest.mark.parametrize("key", ["word", "number"])
def test_states_in_arrays_are_looked_up(key):
    rows_in = [{**each, "number": each["n"] % 3} for each in WORDS]
    made = spec({"key": key}, FORMS[1], rows_in)
    made["catalog"][1] |= {"batchFormat": "arrow", "groupByKey": key}
    bench = bench_of(made)
    bench.settle()
    found = rows(bench)
    assert all(each["n"] // 3 + 1 <= each["seen"] <= 4 for each in found)


@pytest.mark.parametrize("form", FORMS, ids=["dicts", "columns"])
def test_a_segment_whose_group_has_no_state_gets_the_default_or_ends(form):
    other = [{"n": 0, "word": "a", "other": "z"}, {"n": 1, "word": "a", "other": "a"}]
    default = bench_of(spec({"key": "other", "default": {"seen": 0}}, form, other))
    default.settle()
    assert [each["seen"] for each in rows(default)] == [0, 2]
    inner = bench_of(spec({"key": "other", "how": "inner"}, form, other))
    inner.settle()
    assert [each["n"] for each in rows(inner)] == [1]


@pytest.mark.parametrize("form", FORMS, ids=["dicts", "columns"])
def test_groups_of_several_keys_are_found_by_the_parts_in_their_order(form):
    pairs = [{"n": n, "a": n % 2, "b": str(n % 3), "c": n % 2, "d": str(n % 3)} for n in range(12)]
    made = spec({"key": ["c", "d"]}, form, pairs)
    made["catalog"][1] |= {"groupByKey": ["a", "b"]}
    del made["catalog"][1]["onMissingKey"]
    bench = bench_of(made)
    bench.settle()
    assert all(1 <= each["seen"] <= 2 for each in rows(bench))


def counted(segment: dict[str, Any], state: Any) -> dict[str, Any]:
    state.times = (state.times or 0) + 1
    state.seen.append(segment["n"])
    return segment


@pytest.mark.parametrize("form", FORMS, ids=["dicts", "columns"])
@pytest.mark.parametrize("name", ["times", "seen"])
def test_values_and_lists_of_functions_with_state_are_looked_up(form, name):
    made = spec({"state": f"count.{name}"}, form)
    made["catalog"][1] |= {"fn": "m:counted", "state": {"times": "value[int]", "seen": "list[int]"}}
    made["windows"] = []
    bench = Bench(made, {"m:counted": counted}, {"count": 3})
    bench.settle()
    for each in rows(bench):
        if name == "times":
            assert each["n"] // 3 + 1 <= each["seen"] <= 4
        else:
            assert each["n"] in each["seen"]


@pytest.mark.parametrize("kind", [LookUp, LookUpAnswer])
def test_a_question_that_gets_no_answer_is_asked_again(kind):
    bench = bench_of(spec({}))
    lost = losing(bench, kind, most=3)
    bench.settle()
    assert lost
    assert not bench.completed
    for _ in range(4):
        bench.clock.advance(ASK_AGAIN_S)
        bench.settle()
    assert len(rows(bench)) == 12


def test_what_was_asked_in_an_older_allocation_version_is_asked_anew():
    bench = bench_of(spec({}))
    losing(bench, LookUp, most=10_000)
    bench.settle()
    assert waits(bench)
    del bench.transport.send_lookup
    bench.rewire(count=2, known=3)
    bench.settle()
    found = rows(bench)
    assert len(found) == 12
    assert all(each["seen"] <= 4 for each in found)


def test_an_answer_that_comes_twice_counts_once():
    bench = bench_of(spec({}))
    send = bench.transport.send_lookup
    bench.transport.send_lookup = lambda *message: (send(*message), send(*message))
    bench.settle()
    assert all(each["seen"] <= 4 for each in rows(bench))


def test_an_answer_has_as_many_states_as_fit_and_the_others_are_asked_for(monkeypatch):
    monkeypatch.setattr("onyx.task.questions.STATES_BYTES_MAX", 2)
    monkeypatch.setattr("onyx.task.channels.lookups.KEYS_BYTES_MAX", 3)
    bench = bench_of(spec({}), peers=1)
    bench.settle()
    assert all(1 <= each["seen"] <= 4 for each in rows(bench))


def test_two_tasks_may_look_up_each_other():
    made = spec({})
    made["catalog"][1] |= {"join": {"state": "known", "key": "word", "as": "known",
                                    "default": {"known": 0}}}  # fmt: skip
    made["catalog"][2] |= {"groupByKey": "word", "fluxPolicy": "continue", "fn": "m:same"}
    made["windows"] += [{"id": "known", "task": "known", "type": "global", "aggregation": "count"}]
    bench = bench_of(made)
    bench.settle()
    assert all(0 <= each["known"] <= 4 and 1 <= each["seen"] <= 4 for each in rows(bench))


@pytest.mark.parametrize("asks", [False, True])
def test_a_durable_answer_is_given_also_while_its_task_waits_for_who_asked(asks):
    """`asks`: for an answer of its own; else for room."""
    made = spec({"durable": True})
    for each in made["catalog"]:
        each["batchSize"] = 1
    if asks:
        made["catalog"][1] |= {"join": {"state": "known", "key": "word", "as": "known",
                                        "durable": True, "default": {"known": 0}}}  # fmt: skip
        made["catalog"][2] |= {"groupByKey": "word", "fluxPolicy": "continue", "fn": "m:same"}
        window = {"id": "known", "task": "known", "type": "global", "aggregation": "count"}
        made["windows"].append(window)
    narrow = Settings(task=TaskSettings(inbox_segments_max=1))
    bench = Bench(made, {"m:same": lambda each: each}, settings=narrow)
    bench.settle()
    assert len(rows(bench)) == 12


def test_a_state_too_large_to_be_looked_up_ends_the_job_with_its_group(monkeypatch):
    monkeypatch.setattr("onyx.task.questions.STATE_BYTES_MAX", 2)
    bench = bench_of(spec({}))
    bench.settle()
    detail = bench.exceptions[0]["detail"]
    assert re.search("join with state seen: the state of group '[abc]' has", detail)


def named(segment: dict[str, Any], state: Any) -> dict[str, Any]:
    state.name = segment["word"] * segment.get("times", 1)
    return segment


@pytest.mark.parametrize("form", FORMS, ids=["dicts", "columns"])
def test_only_segments_fail_whose_group_has_a_state_too_large_to_be_looked_up(form, monkeypatch):
    monkeypatch.setattr("onyx.task.questions.STATES_BYTES_MAX", 20)
    monkeypatch.setattr("onyx.task.questions.STATE_BYTES_MAX", 20)
    many = [{**each, "times": 50 if each["word"] == "b" else 1} for each in WORDS]
    made = with_bad(spec({"state": "count.name"}, form, many))
    made["catalog"][1] |= {"fn": "m:named", "state": {"name": "value[str]"}}
    made["windows"] = []
    bench = Bench(made, {"m:named": named}, {"count": 1})
    bench.settle()
    assert {each["seen"] for each in rows(bench)} == {"a", "c"}
    letters = bench.written("bad")
    assert len(letters) == 4
    assert all("join with state count.name: the state of group 'b'" in str(x) for x in letters)


def test_a_segment_with_a_value_of_its_own_in_the_place_fails_by_itself():
    occupied = [*WORDS, {"n": 12, "word": "a", "seen": "mine"}]
    made = with_bad(spec({}, segments=occupied))
    bench = bench_of(made)
    bench.settle()
    assert len(rows(bench)) == 12
    (letter,) = bench.written("bad")
    assert "where it would get that of state seen" in str(letter)


def test_states_that_were_on_disk_do_not_stay_in_memory():
    many = [{"n": n, "word": f"w{n}"} for n in range(200)]
    made = spec({"state": "count.times"}, segments=many)
    made["catalog"][1] |= {"fn": "m:counted", "state": {"times": "value[int]", "seen": "list[int]"}}
    made["windows"] = []
    limit = Settings(state=StateSettings(memory_extents_max=10))
    bench = Bench(made, {"m:counted": counted}, settings=limit)
    bench.settle()
    assert [each["seen"] for each in rows(bench)] == [1] * 200
    held = bench.task("count").allocation.keeper.operator.query("count.times")
    assert len(held) == 200
    everybody = bench.task("count").allocation.keeper.operator
    everybody.look_up("count.times", [each["word"] for each in many])
    assert everybody._store.holder.held <= 10
