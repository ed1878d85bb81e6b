"""Shards of a task that were read where they are kept, and are asked about one window or state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from onyx.client.one_window import OneWindow
from onyx.client.window_view import Question
from onyx.keyed.answers import OneState
from onyx.spark.answers.window import AskedWindow
from onyx.state.shard_state import ShardState
from onyx.windows.answers import Answer, merge
from onyx.windows.records import Record, WindowRecord

One = OneState | OneWindow | AskedWindow
KeptShards = Mapping[int, ShardState]
"""By their numbers."""
Kept = Callable[[Question], Answer]
"""Answers questions about what was read; raises like `KeptStates`."""


def asked_by_shard(name: str, make: Callable[[], One], shards: KeptShards) -> Kept:
    """Shard by shard is decoded, asked and dropped again.

    Args:
        name: what it is called in records.
        make: gives it with nothing in it.
    """

    def answers(question: Question) -> Iterator[Answer]:
        for number, state in shards.items():
            one = make()
            _restore(one, name, number, state)
            yield _answer(one, question)

    return lambda question: merge(answers(question), question.extents_max)


def asked_together(name: str, one: AskedWindow, shards: KeptShards) -> Kept:
    """All shards are asked at once, because each file has rows of many."""
    for number, state in shards.items():
        _restore(one, name, number, state)
    return lambda question: _answer(one, question)


def _restore(one: One, name: str, number: int, state: ShardState) -> None:
    for records in state.records():
        one.restore(number, [each for each in records if _is_of(each, name)])


def _is_of(record: Record, name: str) -> bool:
    return isinstance(record, WindowRecord) and record.window == name


def _answer(one: One, question: Question) -> Answer:
    """The first extents."""
    found = one.query(question.select, question.extents_max + 1)
    return Answer(found[: question.extents_max], len(found) > question.extents_max)
