"""Shards of a task that were read where they are kept, and are asked about one state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from onyx.client.states.state import Restored
from onyx.client.window_view import Question
from onyx.keystate.selection import Answer, merge
from onyx.state.shard_state import ShardState

KeptShards = Mapping[int, ShardState]
"""By their numbers."""
Kept = Callable[[Question], Answer]
"""Answers questions about what was read; raises like `KeptStates`."""


def asked_by_shard(make: Callable[[], Restored], shards: KeptShards) -> Kept:
    """Shard by shard is decoded, asked and dropped again.

    Args:
        make: gives the state with nothing in it.
    """

    def answers(question: Question) -> Iterator[Answer]:
        for number, state in shards.items():
            one = make()
            _restore(one, number, state)
            yield _answer(one, question)

    return lambda question: merge(answers(question), question.extents_max)


def asked_together(one: Restored, shards: KeptShards) -> Kept:
    """All shards are asked at once, because each file has rows of many."""
    for number, state in shards.items():
        _restore(one, number, state)
    return lambda question: _answer(one, question)


def _restore(one: Restored, number: int, state: ShardState) -> None:
    for records in state.records():
        one.restore(number, records)


def _answer(one: Restored, question: Question) -> Answer:
    """The first extents."""
    found = one.query(question.select, question.extents_max + 1)
    return Answer.of(found, question.extents_max)
