"""What a consumer group hears of an input is advice: it fails without harm, and says so once."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import Unavailable
from onyx.plugins.kafka import client as connections
from onyx.plugins.kafka import input as reading
from onyx.plugins.kafka.client import GroupCommits, KafkaClient
from onyx.plugins.kafka.options import KafkaOptions
from onyx.plugins.protocol import START, Behind, Cursor, MeasuredInput
from onyx.plugins.registry import build_input


class Group:
    """A consumer that commits; `wrong` is what the broker answers."""

    wrong: KafkaError | None = None
    whole = True
    """Whether the request fails, and not one of its partitions."""
    heard: list[list[tuple[int, int]]]

    def __init__(self, settings: dict[str, Any]) -> None:
        Group.settings = settings

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[Any]:
        assert not asynchronous
        if self.wrong is not None and self.whole:
            raise KafkaException(self.wrong)
        self.heard.append([(each.partition, each.offset) for each in offsets])
        return [Answer(self.wrong)]


class Answer:
    def __init__(self, error: KafkaError | None) -> None:
        self.error = error


@pytest.fixture(autouse=True)
def group(monkeypatch: pytest.MonkeyPatch) -> type[Group]:
    monkeypatch.setattr(connections, "Consumer", Group)
    Group.wrong, Group.whole, Group.heard = None, True, []
    return Group


def commits(**context: Any) -> GroupCommits:
    options = KafkaOptions(bootstrap_servers="localhost:9", topic="orders")
    return GroupCommits(KafkaClient(plugin_context({}, **context), options), "shop")


def test_a_group_hears_each_time_where_all_partitions_are(group: type[Group]) -> None:
    """Also what has not changed: Kafka forgets it, and a zombie may have said something else."""
    told = commits()
    for _ in range(2):
        told.commit({0: 5, 3: 7})
    told.commit({})
    assert group.heard == [[(0, 5), (3, 7)]] * 2
    assert group.settings["group.id"] == "shop"


@pytest.mark.parametrize("whole", [True, False])
def test_what_fails_is_logged_once_until_it_succeeds(
    group: type[Group], whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    told, group.whole = commits(), whole
    for wrong in (
        (KafkaError.GROUP_AUTHORIZATION_FAILED,) * 3 + (None,) + (KafkaError.UNKNOWN_MEMBER_ID,) * 2
    ):
        group.wrong = None if wrong is None else KafkaError(wrong)
        told.commit({0: 5})
    first, second = (each.getMessage() for each in caplog.records)
    assert "job 'flights', task 'work'" in first
    assert "consumerGroup 'shop' does not hear how far it is: access is denied" in first
    assert "another program is a member of the group" in second


def test_after_a_failure_the_ends_are_asked_of_somebody_who_knows_no_leader_of_before(
    group: type[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the group hears of the frontier whether the ends are known or not."""
    answers = [
        KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)),
        SimpleNamespace(offset=9),
    ]

    class Ends:
        def __init__(self, settings: dict[str, Any]) -> None:
            self.answer: Future[Any] = Future()
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                self.answer.set_exception(answer)
            else:
                self.answer.set_result(answer)

        def list_offsets(self, wanted: dict[TopicPartition, Any], **_: Any) -> dict[Any, Any]:
            return dict.fromkeys(wanted, self.answer)

    monkeypatch.setattr(reading, "AdminClient", Ends)
    options = {"bootstrapServers": "localhost:9", "topic": "orders", "consumerGroup": "shop"}
    plugin = build_input("kafka", plugin_context(options))
    assert isinstance(plugin, MeasuredInput)
    cursors = {"orders/0": Cursor(2, [5, None]), "orders/1": START}
    with pytest.raises(Unavailable):
        plugin.behind(cursors)
    for _ in range(2):
        assert plugin.behind(cursors) == {"orders/0": Behind(4)}
    assert group.heard == [[(0, 5)]] * 3
    plugin.close()


def test_who_may_be_dead_says_nothing(group: type[Group]) -> None:
    commits(permitted=lambda: False).commit({0: 5})
    assert group.heard == []
