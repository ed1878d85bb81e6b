"""The output that writes at least once, over a producer that a test holds: what is durable, what is
taken while there is no room, and what a broker refuses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import OutputFailed, Unavailable, UserError
from onyx.plugins.kafka import output as module
from onyx.plugins.kafka.output import KafkaOutput
from onyx.plugins.registry import build_output

Reported = Callable[[KafkaError | None, Any], None]


class HeldProducer:
    """Messages wait until a test answers them."""

    def __init__(self, settings: Any) -> None:
        self.room = 1_000
        self.raises: KafkaException | None = None
        self.waiting: list[tuple[bytes, Reported]] = []
        self.answers: deque[Callable[[], None]] = deque()

    def produce(
        self, topic: str, value: bytes, key: Any, *, on_delivery: Reported, **_: Any
    ) -> None:
        if self.raises is not None:
            raise self.raises
        if len(self.waiting) >= self.room:
            raise BufferError
        self.waiting.append((value, on_delivery))

    def answer(self, index: int, error: int | None = None) -> None:
        """A broker answers the message that waits there; it is heard of at the next poll."""
        _, reported = self.waiting.pop(index)
        given = None if error is None else KafkaError(error)
        self.answers.append(lambda: reported(given, None))

    def poll(self, timeout_s: float) -> None:
        while self.answers:
            self.answers.popleft()()

    def flush(self, timeout_s: float) -> None:
        while self.waiting:
            self.answer(0)
        self.poll(0)

    def purge(self) -> None:
        self.waiting.clear()


class World:
    def __init__(self, **context: Any) -> None:
        options = {"bootstrapServers": "localhost:9", "topic": "orders"}
        self.output = build_output("kafka", plugin_context(options, **context))
        assert isinstance(self.output, KafkaOutput)
        self.output.durable()
        reported = self.output._reported
        assert reported is not None
        self.producer: HeldProducer = reported._producer  # type: ignore[assignment]

    @property
    def values(self) -> list[bytes]:
        return [value for value, _ in self.producer.waiting]


@pytest.fixture(autouse=True)
def _held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Producer", HeldProducer)


def test_what_is_durable_is_a_prefix_in_whatever_order_brokers_answer() -> None:
    world = World()
    world.output.write([{"n": 0}, {"n": 1}])
    world.output.write_columns(pa.record_batch({"n": [2]}))
    assert world.values == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    for index, durable in ((2, 0), (0, 0), (0, 3)):
        world.producer.answer(index)
        world.output.tick()
        assert world.output.durable() == durable


def test_what_is_taken_while_there_is_no_room_is_produced_once_when_there_is() -> None:
    world = World()
    world.producer.room = 1
    world.output.write([{"n": 0}, {"n": 1}])
    with pytest.raises(Unavailable, match="no room now"):
        world.output.write([{"n": 2}])
    assert world.values == [b'{"n":0}']
    world.producer.answer(0)
    world.output.tick()
    assert world.values == [b'{"n":1}']
    world.output.write([{"n": 2}])
    for durable in (2, 3):
        world.producer.answer(0)
        world.output.tick()
        assert world.output.durable() == durable


def test_segments_that_were_taken_are_not_asked_for_again_when_kafka_is_away() -> None:
    world = World()
    world.producer.raises = KafkaException(KafkaError(KafkaError._TRANSPORT))
    world.output.write([{"n": 0}])
    with pytest.raises(Unavailable):
        world.output.tick()
    world.producer.raises = None
    world.output.flush()
    world.output.flush()
    assert world.output.durable() == 1


@pytest.mark.parametrize("when", ["produced", "answered"])
def test_what_is_refused_after_it_was_taken_blames_nothing_that_comes_then(when: str) -> None:
    world = World()
    code = KafkaError.MSG_SIZE_TOO_LARGE
    if when == "produced":
        world.producer.raises = KafkaException(KafkaError(code))
        with pytest.raises(OutputFailed, match="orders"):
            world.output.write([{"n": 0}])
    else:
        world.output.write([{"n": 0}])
        world.producer.answer(0, code)
    for call in (lambda: world.output.write([{"n": 1}]), world.output.tick, world.output.flush):
        with pytest.raises(OutputFailed, match="orders"):
            call()
    assert world.output.durable() == 0


def test_a_segment_that_cannot_be_a_message_is_refused_alone() -> None:
    world = World()
    with pytest.raises(UserError) as refused:
        world.output.write([{"n": {1j}}])
    assert not isinstance(refused.value, OutputFailed)
    world.output.write([{"n": 1}])
    world.output.flush()
    assert world.output.durable() == 1


def test_nothing_is_produced_while_this_incarnation_may_be_dead() -> None:
    permitted = [False]
    world = World(permitted=lambda: permitted[0])
    world.output.write([{"n": 0}])
    assert world.values == []
    permitted[0] = True
    world.output.tick()
    assert world.values == [b'{"n":0}']
