"""Dead letters in a topic are redriven."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.jobs.plugin_context import plugin_context
from tests.support.jobs.redrive_cluster import (
    FakeCluster,
    check_place,
    job_with_letters,
    redrive_of,
    whole_letter,
)
from tests.support.servers.kafka_broker import KafkaBroker

from onyx.errors import UserError
from onyx.flow.segment import Segment
from onyx.plugins.registry import build_output

pytestmark = pytest.mark.server


@pytest.mark.short(1)
@pytest.mark.parametrize("form", ["json", "arrow"])
def test_letters_in_a_topic_go_in_once_as_they_were(
    kafka: KafkaBroker, tmp_path: Path, form: str
) -> None:
    topic = kafka.create(f"letters-{form}", 2)
    options = {"bootstrapServers": kafka.address, "topic": topic, "format": form}

    def write(letters: Sequence[Segment]) -> None:
        output = build_output("kafka", plugin_context(options))
        try:
            output.write(list(letters))
            output.flush()
        finally:
            output.close()

    check_place(job_with_letters("kafka", **options), write, tmp_path)


def test_messages_that_are_no_letters_stay(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic, cluster = kafka.create("letters-hostile"), FakeCluster()
    plain = {**whole_letter(1), "segment": {"n": 1}, "types": ""}
    no_letters = [b"{", b"[1]", None, "{}", {**plain, "error": 1}, {**plain, "segment": []}]
    kafka.produce(topic, [*no_letters, plain, {**plain, "id": ""}, {**plain, "id": ""}])
    job = job_with_letters("kafka", bootstrapServers=kafka.address, topic=topic)
    assert redrive_of(job, tmp_path).preview().redriven == 3
    summary = redrive_of(job, tmp_path).run(cluster)
    assert (cluster.numbers, summary.left) == ([1, 1, 1], {"no letters": 6})
    assert redrive_of(job, tmp_path).run(cluster).redriven == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "nowhere"}, "nowhere"),
        ({"topic": "t", "format": "text", "valueField": "error"}, "format: json writes the whole"),
        ({"topic": "t", "configEnv": {"sasl.password": "L40_NOWHERE"}}, "L40_NOWHERE"),
    ],
)
def test_a_topic_that_cannot_be_read_is_said(
    kafka: KafkaBroker, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    job = job_with_letters("kafka", bootstrapServers=kafka.address, **options)
    with pytest.raises(UserError, match=message):
        redrive_of(job, tmp_path).preview()
