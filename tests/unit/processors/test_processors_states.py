"""A processor as what its task keeps: where what it makes goes, and what is over."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import pytest
from tests.support.clocks import ManualClock

from onyx.errors import UserFunctionError
from onyx.keystate.buckets import InMemory
from onyx.keystate.pages import Emission, Pages
from onyx.operators.processor import calls as calls_module
from onyx.operators.processor import processor_states as module
from onyx.operators.processor.calls import Calls, outbox_of
from onyx.operators.processor.definition import Parent, Processing
from onyx.operators.processor.operator import ProcessorOperator
from onyx.operators.processor.processor_states import ALL
from onyx.operators.processor.snapshot import ProcessorSnapshot
from onyx.operators.processor.turns import Takes
from onyx.processors import Context, Inbox, Processor, traverse

OWN = [0, 1, 2, 3]


class Noted(Processor):
    """What was called. Its state is the number of items that it has had."""

    def init(self) -> None:
        self.had = 0

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        self.had += len(inbox.drain())

    def complete_edge(self, ordinal: int) -> bool:
        return self.try_emit({"edge": ordinal})

    def complete(self) -> bool:
        return self.try_emit({"had": self.had})

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot(self.context.index, self.had)

    def restore_from_snapshot(self, inbox: Inbox[tuple[int, int]]) -> None:
        self.had += sum(had for _, had in inbox.drain())


def states_of(
    processor: Processor | None = None,
    ended: Collection[str] = (),
    clock: Any = None,
    room: int = 1_024,
    durable: bool = True,
) -> ProcessorOperator:
    made = processor or Noted()
    parents = (Parent("a", frozenset({"a"})), Parent("b", frozenset({"b"})))
    its = Processing(
        task="task",
        make=type(made),
        name="m:Noted",
        parents=parents,
        fed_by=frozenset({"a", "b"}),
    )
    clock = clock or ManualClock()
    context = Context("job", "task", 0, 1, ("a", "b"))
    calls = Calls(made, "m:Noted", outbox_of("dicts", room, room), context, clock)
    calls.init()
    snapshot = ProcessorSnapshot(OWN, InMemory())
    return ProcessorOperator(its, lambda: calls, snapshot, OWN, clock, lambda: ended, durable)


nothing_takes = Takes(anything=False, retries=False)


def made(pages: Pages) -> list[tuple[int, Any]]:
    return [
        (each.shard, segment)
        for page in pages
        for each in page
        if isinstance(each, Emission)
        for segment in each.segments
    ]


def restored(before: ProcessorOperator, shards: Collection[int]) -> ProcessorOperator:
    """Another processor, with what one has recorded in some shards."""
    before.take_changes()
    of_shard = before.freeze(OWN)
    after = states_of()
    for shard in shards:
        after.restore(shard, of_shard(shard))
    after.restored()
    return after


def test_a_parent_that_has_ended_is_told_once_and_the_rest_at_the_end() -> None:
    states = states_of(ended=["a"])
    states.restored()
    assert states.next_tick_ms == 0
    assert [segment for _, segment in made(states.tick(0))] == [{"edge": 0}]
    assert states.next_tick_ms is None
    assert [segment for _, segment in made(states.complete(OWN, 0))] == [{"edge": 1}, {"had": 0}]
    assert made(states.complete(OWN, 0)) == []


def test_what_has_ended_for_all_shards_is_not_done_again_by_who_takes_over() -> None:
    states = states_of()
    states.process(0, [{}, {}], nothing_takes)
    assert ({"had": 2}) in [segment for _, segment in made(states.complete(OWN, 0))]
    assert made(restored(states, OWN).complete(OWN, 0)) == []


def test_what_is_made_goes_into_no_shard_that_has_ended() -> None:
    over, going = states_of(), states_of()
    over.process(0, [{}] * 5, nothing_takes)
    going.process(0, [{}] * 2, nothing_takes)
    list(over.complete(OWN, 0))
    for states in (over, going):
        states.take_changes()
    taker = states_of()
    for shard in OWN:
        taker.restore(shard, (over if shard < 2 else going).freeze(OWN)(shard))
    taker.restored()
    found = made(taker.complete(OWN, 0))
    assert {shard for shard, _ in found} <= {2, 3}
    assert {"had": 5} not in [segment for _, segment in found], "that was sent"


class InPages(Noted):
    """A number for each item, with the state saved in between."""

    completes_in_pages = True

    def complete(self) -> bool:
        while self.had:
            if not self.try_emit({"left": self.had}):
                return False
            self.had -= 1
        return True

    def save_to_snapshot(self) -> bool:
        entries = [(number, 1) for number in range(self.had)]
        self.saving = getattr(self, "saving", None) or traverse(entries)
        if not self.save_from(self.saving):
            return False
        self.saving = None
        return True


def test_state_is_saved_between_two_pages_of_the_end_whatever_was_refused() -> None:
    states = states_of(InPages(), room=1)
    states.process(0, [{}] * 3, nothing_takes)
    states.take_changes()
    left, had = list[Any](), list[Any]()
    for page in states.complete(OWN, 0):
        left += [segment for _, segment in made(iter([page])) if "left" in segment]
        states.take_changes()
        taker = restored(states, OWN)
        had.append([each["had"] for _, each in made(taker.complete(OWN, 0)) if "had" in each])
    assert had[2:] == [[2], [1], []], "behind the ends of two parents"
    assert left == [{"left": 3}, {"left": 2}, {"left": 1}]


class Everywhere(InPages):
    """It does so whenever it is asked for something of its own."""

    def complete_edge(self, ordinal: int) -> bool:
        return ordinal == 1 or self.complete()

    def try_process(self) -> bool:
        return self.complete()

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        self.had += sum(each["n"] for each in inbox.drain())


@pytest.mark.parametrize("method", ["complete_edge", "try_process"])
def test_state_is_saved_between_two_pages_of_other_methods_too(method: str) -> None:
    ended = ["a"] if method == "complete_edge" else []
    states = states_of(Everywhere(), ended, room=1)
    if method == "complete_edge":
        states._tries = False
    states.process(0, [{"n": 3}], nothing_takes)
    states.take_changes()
    left, had = list[Any](), list[Any]()
    for page in states.tick(1_000_000):
        left += [segment["left"] for _, segment in made(iter([page]))]
        states.take_changes()
        taker = restored(states, OWN)
        had.append([each["had"] for _, each in made(taker.complete(OWN, 0)) if "had" in each])
    assert left == [3, 2, 1]
    assert had[:2] == [[2], [1]]


def test_a_batch_waits_while_a_call_before_it_goes_on_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MADE_MAX", 2)
    states = states_of(Everywhere(), room=1)
    states.process(0, [{"n": 3}], nothing_takes)
    worked = states.process(0, [{"n": 5}], nothing_takes)
    assert (worked.taken, len(worked.made)) == (0, 1)
    assert worked.made[0][1] == [{"left": 3}, {"left": 2}]
    worked = states.process(0, [{"n": 5}], nothing_takes)
    assert (worked.taken, worked.made[0][1]) == (1, [{"left": 1}])


@pytest.mark.parametrize("durable", [False, True])
def test_what_is_made_at_the_end_is_kept_until_it_is_done_only_if_it_is_recorded(
    durable: bool,
) -> None:
    class Many(Noted):
        def complete(self) -> bool:
            self.had -= 1
            self.try_emit({"left": self.had})
            return not self.had

    states = states_of(Many(), durable=durable)
    states.process(0, [{}] * 3, nothing_takes)
    pages = [made(iter([page])) for page in states.complete(OWN, 0)]
    found = [len(page) for page in pages if page and "left" in page[0][1]]
    assert found == ([3] if durable else [1, 1, 1])


def test_nothing_is_saved_when_nothing_was_called() -> None:
    states = states_of()
    states.process(0, [{}], nothing_takes)
    assert states.take_changes()
    assert states.take_changes() == {}
    states.process(0, [], nothing_takes)
    assert states.take_changes() == {}, "the entry is as it was"


def test_a_chunk_waits_for_nine_times_as_long_as_saving_took() -> None:
    clock = ManualClock()

    class Slow(Noted):
        is_cooperative = False

        def save_to_snapshot(self) -> bool:
            clock.advance(2.0)
            return super().save_to_snapshot()

    states = states_of(Slow(), clock=clock)
    states.process(0, [{}], nothing_takes)
    states.take_changes()
    assert states.rest_s == 18.0


def test_a_cooperative_call_that_is_slow_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()

    class Slow(Noted):
        def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
            super().process(ordinal, inbox)
            clock.advance(0.5)

    states = states_of(Slow(), clock=clock)
    with caplog.at_level(logging.WARNING, "onyx.task"):
        states.process(0, [{}], nothing_takes)
        states.process(0, [{}], nothing_takes)
    (record,) = caplog.records
    assert record.getMessage().startswith("process of processor m:Noted took 0.5 s")


@pytest.mark.parametrize("method", ["try_process", "complete"])
def test_a_method_that_returns_no_bool_is_named(method: str) -> None:
    states = states_of(type("Wrong", (Noted,), {method: lambda self: None})())

    def run() -> None:
        states.process(0, [{}], nothing_takes)
        list(states.complete(OWN, 0))

    with pytest.raises(UserFunctionError, match=f"{method} of processor m:Noted returned a None"):
        run()


def test_its_end_is_recorded_with_what_was_made_at_the_end() -> None:
    states = states_of()
    states.process(0, [{}], nothing_takes)
    states.take_changes()
    list(states.complete(OWN, 0))
    after = restored(states, OWN)
    assert after.next_tick_ms is None
    assert ALL not in (0, 1), "no ordinal"


def test_what_was_saved_last_is_shown_and_nothing_behind_the_end() -> None:
    states = states_of()
    states.process(0, [1, 2], nothing_takes)
    assert states.query("task") == []
    states.take_changes()
    states.process(0, [3], nothing_takes)
    (entry,) = states.query("task")
    assert (entry.group, entry.state) == (0, 2)
    assert entry.lower in OWN
    made(states.complete(OWN, 0))
    assert states.query("task") == []


class Endless(Noted):
    """It offers without an end, whatever it is asked."""

    def _offer(self) -> bool:
        while self.try_emit({"text": "x" * 100}):
            pass
        return False

    def complete(self) -> bool:
        return self._offer()

    def complete_edge(self, ordinal: int) -> bool:
        return self._offer()

    def try_process(self) -> bool:
        return self._offer()


@pytest.mark.parametrize("method", ["complete", "complete_edge", "try_process"])
def test_what_is_kept_in_memory_until_a_method_is_done_is_bounded(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(calls_module, "KEPT_BYTES_MAX", 1 << 20)

    class Only(Endless):
        pass

    for other in {"complete", "complete_edge", "try_process"} - {method}:
        setattr(Only, other, getattr(Processor, other))
    states = states_of(Only())

    def run() -> None:
        if method == "try_process":
            states.process(0, [{}], nothing_takes)
        list(states.complete(OWN, 0))

    with pytest.raises(UserFunctionError, match=f"{method} of processor .* 1 MiB.*completes_in_p"):
        run()
