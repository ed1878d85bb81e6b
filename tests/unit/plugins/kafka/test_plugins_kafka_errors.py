"""Errors of Kafka that come as values are raised as exceptions, which Onyx explains."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import Unavailable, UserError
from onyx.plugins.kafka.client import KafkaClient, as_exception
from onyx.plugins.kafka.options import KafkaOptions


@pytest.fixture
def client() -> KafkaClient:
    options = KafkaOptions(bootstrap_servers="localhost:9", topic="orders")
    return KafkaClient(plugin_context({}), options)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.COORDINATOR_NOT_AVAILABLE, Unavailable),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, UserError),
    ],
)
@pytest.mark.parametrize("given", [KafkaError, lambda code: KafkaException(KafkaError(code))])
def test_an_error_of_a_response_is_explained(client, code, kind, given) -> None:
    with pytest.raises(kind) as raised, client.explained("listing groups"):
        raise as_exception(given(code))

    assert str(raised.value).startswith(("task 'work'", "job 'flights', task 'work'"))
    assert isinstance(raised.value.__context__, BaseException)


def test_an_error_of_a_response_is_no_exception_by_itself() -> None:
    """The reason for `as_exception`; delete both when the library mends it."""
    assert not isinstance(KafkaError(KafkaError.NETWORK_EXCEPTION), BaseException)
