"""The test kit finds what is wrong with a processor, in the way in which it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import onyx
from onyx.processors import Inbox, Processor, Traverser, traverse
from onyx.testing.processors import Watermark, verify_processor

INPUT = [{"user": "abc"[n % 3], "n": n} for n in range(7)]
OUTPUT = [
    *({"user": "abc"[n % 3], "sum": sum(range(n % 3, n + 1, 3))} for n in range(7)),
    {"user": "a", "total": 9},
    {"user": "b", "total": 5},
    {"user": "c", "total": 7},
]


class Sums(Processor):
    """As it should be."""

    def init(self) -> None:
        self.sums: dict[str, int] = {}
        self.left: Traverser[Any] | None = None

    def process_item(self, ordinal: int, item: Any) -> bool:
        found = self.sums.get(item["user"], 0) + item["n"]
        if not self.try_emit({"user": item["user"], "sum": found}):
            return False
        self.sums[item["user"]] = found
        return True

    def complete(self) -> bool:
        if self.left is None:
            self.left = traverse({"user": k, "total": v} for k, v in sorted(self.sums.items()))
        return self.emit_from(self.left)

    def save_to_snapshot(self) -> bool:
        if self.left is None:
            self.left = traverse(list(self.sums.items()))
        done = self.save_from(self.left)
        if done:
            self.left = None
        return done

    def restore_from_snapshot(self, inbox: Inbox[Any]) -> None:
        self.sums.update(inbox.drain())


class LosesWhatIsRefused(Sums):
    def process_item(self, ordinal: int, item: Any) -> bool:
        super().process_item(ordinal, item)
        return True


class RemovesTooEarly(Sums):
    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        while inbox:
            if not self.process_item(ordinal, inbox.poll()):
                return


class ForgetsItsState(Sums):
    def save_to_snapshot(self) -> bool:
        return True


class RestoresTheFirstOnly(Sums):
    def restore_from_snapshot(self, inbox: Inbox[Any]) -> None:
        self.sums.update([inbox.drain()[0]])


class SaysDoneTooEarly(Sums):
    def complete(self) -> bool:
        super().complete()
        return True


class CountsBeforeItIsTaken(Sums):
    def process_item(self, ordinal: int, item: Any) -> bool:
        self.sums[item["user"]] = self.sums.get(item["user"], 0) + item["n"]
        return self.try_emit({"user": item["user"], "sum": self.sums[item["user"]]})


class NeverMoves(Sums):
    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        inbox.peek()


class SavesNoTruth(Sums):
    def save_to_snapshot(self) -> bool:
        super().save_to_snapshot()
        return None  # type: ignore[return-value]


class SavesTwice(Sums):
    def save_to_snapshot(self) -> bool:
        return all(self.outbox.offer_to_snapshot("all", self.sums) for _ in range(2))


class KeepsWhatOnePeerHas(Sums):
    """Wrong where peers come and go: all that it has is under one key."""

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot("all", self.sums)

    def restore_from_snapshot(self, inbox: Inbox[Any]) -> None:
        for _, sums in inbox.drain():
            self.sums = dict(sums)


class EndsInPages(Sums):
    """What it has sent it does not save."""

    completes_in_pages = True

    def complete(self) -> bool:
        for user in sorted(self.sums):
            if not self.try_emit({"user": user, "total": self.sums[user]}):
                return False
            del self.sums[user]
        return True


class SendsAgain(EndsInPages):
    """Saves what it has sent."""

    def init(self) -> None:
        super().init()
        self.sent: set[str] = set()

    def complete(self) -> bool:
        for user in sorted(self.sums.keys() - self.sent):
            if not self.try_emit({"user": user, "total": self.sums[user]}):
                return False
            self.sent.add(user)
        return True


@pytest.mark.parametrize("make", [Sums, EndsInPages])
def test_a_right_processor_passes_in_all_ways(make: Callable[[], Processor]) -> None:
    verify_processor(make, input=INPUT, output=OUTPUT, group_by=lambda each: each["user"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (LosesWhatIsRefused, "with an outbox of 2"),
        (RemovesTooEarly, "with an outbox of 2"),
        (CountsBeforeItIsTaken, "with an outbox of 2"),
        (SaysDoneTooEarly, "complete of processor SaysDoneTooEarly is done, but"),
        (ForgetsItsState, "restored: each batch"),
        (RestoresTheFirstOnly, "restored: each batch"),
        (NeverMoves, "leaves items in its inbox \\(7 of input\\) when nothing else comes"),
        (SavesNoTruth, "save_to_snapshot of processor SavesNoTruth returns True or False"),
        (SavesTwice, "twice"),
        (SendsAgain, "restored: each batch: not expected"),
        (KeepsWhatOnePeerHas, "each batch, on other peers"),
    ],
)
def test_a_planted_bug_is_found(make: Callable[[], Processor], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        verify_processor(make, input=INPUT, output=OUTPUT, group_by=lambda each: each["user"])


class ByTime(Processor):
    """Holds segments until event time has come to them."""

    def init(self) -> None:
        self.held: list[dict[str, Any]] = []

    def process_item(self, ordinal: int, item: Any) -> bool:
        self.held.append(item | {"from": self.context.parents[ordinal]})
        return True

    def try_process_watermark(self, watermark: int) -> bool:
        self.held.sort(key=lambda each: each["time"])
        while self.held and self.held[0]["time"] <= watermark:
            if not self.try_emit(self.held[0]):
                return False
            self.held.pop(0)
        return True

    def complete(self) -> bool:
        return self.try_process_watermark(10**9)

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot("held", self.held)

    def restore_from_snapshot(self, inbox: Inbox[Any]) -> None:
        for _, held in inbox.drain():
            self.held += held


def test_watermarks_and_ordinals_stand_in_the_input() -> None:
    times = [3, 1, 2, 6, 5]
    items = [(n % 2, {"time": time}) for n, time in enumerate(times)]
    names = ("left", "right")
    verify_processor(
        ByTime,
        input=[*items[:3], Watermark(2), *items[3:]],
        output=[{"time": t, "from": names[times.index(t) % 2]} for t in sorted(times)],
        parents=names,
    )


class Doubles(Processor):
    """Rows of a batch, twice."""

    def init(self) -> None:
        self.doubled = self.flat_mapper(lambda batch: [batch, batch])

    def process_item(self, ordinal: int, item: Any) -> bool:
        return self.doubled.try_process(item)


def test_columns_are_compared_row_by_row() -> None:
    batches = [pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": [3]})]
    rows = [{"n": n} for n in (1, 2, 1, 2, 3, 3)]
    verify_processor(Doubles, input=batches, output=rows, batch_format="arrow")
    with pytest.raises(AssertionError, match="missing: "):
        verify_processor(Doubles, input=batches, output=[*rows, {"n": 4}], batch_format="arrow")


def test_the_order_is_looked_at_unless_that_is_not_wanted() -> None:
    turned = [*OUTPUT[:7], *reversed(OUTPUT[7:])]
    with pytest.raises(AssertionError, match="the order differs from item 7 on"):
        verify_processor(Sums, input=INPUT, output=turned)
    verify_processor(Sums, input=INPUT, output=turned, ordered=False)


class Joins(Processor):
    """Leaves what comes from the second parent until the first is complete."""

    def init(self) -> None:
        self.names: dict[str, str] = {}
        self.is_complete = False

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        if ordinal == 0:
            self.names.update((each["user"], each["name"]) for each in inbox.drain())
        elif self.is_complete:
            super().process(ordinal, inbox)

    def process_item(self, ordinal: int, item: Any) -> bool:
        return self.try_emit({"name": self.names[item["user"]], "n": item["n"]})

    def complete_edge(self, ordinal: int) -> bool:
        self.is_complete |= ordinal == 0
        return True

    def save_to_snapshot(self) -> bool:
        if self.left is None:
            self.left = traverse([(("name", user), name) for user, name in self.names.items()])
        if not self.save_from(self.left):
            return False
        if not self.outbox.offer_to_snapshot("complete", self.is_complete):
            return False
        self.left = None
        return True

    left: Any = None

    def restore_from_snapshot(self, inbox: Inbox[Any]) -> None:
        for key, value in inbox.drain():
            if key == "complete":
                self.is_complete |= value
            else:
                self.names[key[1]] = value


class TakesTooEarly(Joins):
    """Takes what it should leave."""

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        if ordinal == 1 and not self.is_complete:
            inbox.drain()
        super().process(ordinal, inbox)


TWO_SIDES = [
    (1, {"user": "a", "n": 1}),
    (0, {"user": "a", "name": "ada"}),
    (1, {"user": "b", "n": 2}),
    (1, {"user": "a", "n": 3}),
    (0, {"user": "b", "name": "bob"}),
]
BOTH = [{"name": "ada", "n": 1}, {"name": "bob", "n": 2}, {"name": "ada", "n": 3}]


def test_a_processor_that_leaves_one_side_until_the_other_is_complete_passes() -> None:
    verify_processor(Joins, input=TWO_SIDES, output=BOTH, parents=("users", "orders"))


def test_a_processor_that_loses_what_it_should_leave_is_found() -> None:
    with pytest.raises(AssertionError, match="missing"):
        verify_processor(TakesTooEarly, input=TWO_SIDES, output=BOTH, parents=("users", "orders"))


class AsksOnce(Processor):
    """Asks for each item once more."""

    def init(self) -> None:
        self.asked: set[int] = set()

    def process_item(self, ordinal: int, item: Any) -> Any:
        if item["n"] not in self.asked:
            self.asked.add(item["n"])
            return onyx.FAIL
        return self.try_emit(item)


class Raises(Processor):
    def process_item(self, ordinal: int, item: Any) -> bool:
        raise ValueError("not this one")


def test_an_item_that_is_to_be_read_again_comes_again() -> None:
    verify_processor(AsksOnce, input=INPUT, output=INPUT, ordered=False)


def test_what_a_processor_raises_is_said() -> None:
    with pytest.raises(AssertionError, match="process of processor Raises raised ValueError: not"):
        verify_processor(Raises, input=INPUT, output=[])
