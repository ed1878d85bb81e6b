"""Connections to Kafka, its errors as errors of Onyx, and the group that hears how far an input is.

Settings of librdkafka are passed on as a job gives them. Refused are those that the plugins rely
on, those that load code, and secrets: a job is stored and shown, so it names the variable of the
environment that holds a secret, and no message shows a value.

librdkafka reports lost connections by callbacks and keeps trying. The worker logs that, at most
once in `LOGGED_EVERY_S`. The code of an error says whether the call may be repeated.

A *group* is advice for others: Kafka's tools and whoever scales by lag look at its offsets, and no
job ever begins there. It has no members, so nothing is assigned and nothing rebalances. Rejected:
the admin request that alters the offsets of a group, which can end the process in librdkafka
(decision 0018).
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from onyx.errors import OnyxError, Unavailable
from onyx.plugins.kafka.options import KafkaOptions
from onyx.plugins.options import option_error, task_error, variable_of
from onyx.plugins.protocol import PluginContext

REQUEST_TIMEOUT_S = 15.0
"""Longest wait for an answer of a broker, before Unavailable is raised."""
RECONNECT_MS_MAX = 2_000
"""Between two attempts, unless `config` says otherwise."""
LOGGED_EVERY_S = 30.0
_OF_FILES = (".location", ".keytab", ".file")
"""Ends of the names of settings that are paths."""
_OF_THE_SYSTEM = "probe"
"""For `ssl.ca.location`: certificates of the system."""
_LOGGER = logging.getLogger(__name__)
_WRONG_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_REFUSED = (
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError._AUTHENTICATION,
)
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_PASSING = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._WAIT_CACHE,
    KafkaError._RETRY,
    KafkaError._IN_PROGRESS,
    KafkaError._CONFLICT,
    KafkaError._QUEUE_FULL,
    KafkaError._DESTROY,
    KafkaError._RESOLVE,
    KafkaError._STATE,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
)
_UNANSWERED = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
"""Errors without a reason; the library reported the reason by a callback before."""
_AFTER = re.compile(r" \(after \d+ms in state \w+[^)]*\)")


class KafkaClient:
    """Settings and errors of the Kafka clients of one task."""

    def __init__(self, context: PluginContext, options: KafkaOptions) -> None:
        self.context = context
        self.topic = options.topic
        servers = options.bootstrap_servers
        self.servers = servers if isinstance(servers, str) else ",".join(servers)
        self._logged_s = -LOGGED_EVERY_S
        self._reason: KafkaError | None = None
        """The last error that the library reported by a callback."""
        self._reason_s = 0.0
        self._settings = self._given(options)

    def settings(self, **own: Any) -> dict[str, Any]:
        """Settings of a client; `own` ones with `_` for `.`."""
        return {
            "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
            "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
            **self._settings,
            **{key.replace("_", "."): value for key, value in own.items()},
            "bootstrap.servers": self.servers,
            "error_cb": self._notice,
            "logger": _Quiet(self),
        }

    @contextlib.contextmanager
    def explained(
        self, doing: str, hear: Callable[[float], object] = lambda timeout_s: None
    ) -> Iterator[None]:
        """Raises errors of Kafka as errors of Onyx.

        Args:
            doing: names the call in errors: `reading topic 'flights'`.
            hear: `poll` of the client in use, which runs the callbacks that give the reason.

        Raises:
            Unavailable: the same may succeed later.
            UserError: it will not.
        """
        try:
            yield
        except KafkaException as error:
            hear(0)
            raise self.error(doing, error.args[0]) from error

    def error(self, doing: str, error: KafkaError) -> OnyxError:
        """What an error of Kafka means for the job."""
        reason = self._reason_of_late()
        if reason is not None and error.code() in _UNANSWERED:
            error = reason
        what = f"{doing} failed: {self.meaning(error)}"
        if error.code() in _PASSING or error.retriable():
            self._log(what)
            return Unavailable(f"task {self.context.task!r}: {what}")
        return task_error(self.context, what)

    def topic_setting(self, admin: AdminClient, name: str) -> str | None:
        """A setting of the topic; None where we may not know."""
        topic = ConfigResource(ResourceType.TOPIC, self.topic)
        asked = admin.describe_configs([topic], request_timeout=REQUEST_TIMEOUT_S)
        try:
            return str(asked[topic].result()[name].value)
        except KafkaException:
            return None

    def _log(self, what: str) -> None:
        """Log a warning, at most one in `LOGGED_EVERY_S`: a caller that repeats logs nothing."""
        now_s = time.monotonic()
        if now_s - self._logged_s >= LOGGED_EVERY_S:
            self._logged_s = now_s
            _LOGGER.warning("task %s waits for Kafka: %s", self.context.task, what)

    def meaning(self, error: KafkaError) -> str:
        """What is wrong and what to do about it."""
        code, said = error.code(), _AFTER.sub("", error.str())
        if code in _WRONG_TOPIC:
            return f"{self.servers} has no topic {self.topic!r}; create it first"
        if code in _REFUSED:
            return (
                f"{self.servers} refuses our credentials ({said}); look at security.protocol and "
                "sasl.* in 'config' and at the variables that 'configEnv' names"
            )
        if code in _DENIED:
            return f"access is denied ({said}); give this user the right to do it"
        if code == KafkaError.UNKNOWN_MEMBER_ID:
            return f"another program is a member of the group ({said}); name another group"
        if code in _TOO_LARGE:
            return (
                f"a message is larger than the topic takes ({said}); raise max.message.bytes of "
                "the topic and message.max.bytes in 'config', or make segments smaller"
            )
        if code in _PASSING:
            return f"{said} (bootstrapServers: {self.servers})"
        return said

    def _notice(self, error: KafkaError) -> None:
        """The callback of the library for errors outside of calls."""
        reason = self._reason_of_late()
        known = reason is not None and reason.code() in _REFUSED
        if not known and error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._reason, self._reason_s = error, time.monotonic()
            self._log(self.meaning(error))

    def _reason_of_late(self) -> KafkaError | None:
        """The last reported error, if it is recent."""
        recent = time.monotonic() - self._reason_s < 2 * REQUEST_TIMEOUT_S
        return self._reason if recent else None

    def _given(self, options: KafkaOptions) -> dict[str, Any]:
        """The settings that the job gives, with secrets from the environment."""
        settings: dict[str, Any] = dict(options.config)
        for key, value in options.config.items():
            if key.endswith(_OF_FILES) and isinstance(value, str) and value != _OF_THE_SYSTEM:
                settings[key] = self.context.located(value)
        for key, variable in options.config_env.items():
            settings[key] = variable_of(self.context, "configEnv", variable, key)
        return settings


def as_exception(error: KafkaError | KafkaException) -> KafkaException:
    """An error in a response of a broker, as something that can be raised.

    A `KafkaError` can be raised although it is no subclass of BaseException. No `except` but a bare
    one catches it then: it passes `explained`, ends the thread, and stays in the `__context__` of
    what is raised next. So every error that comes as a value is raised through this function.
    """
    return error if isinstance(error, KafkaException) else KafkaException(error)


@contextlib.contextmanager
def refused_settings(client: KafkaClient) -> Iterator[None]:
    """Errors of the constructor of a client as errors of its settings.

    Raises:
        UserError: a setting is unknown or has a value that the library refuses.
    """
    try:
        yield
    except (KafkaException, ValueError, TypeError) as error:
        reason = error.args[0]
        said = reason.str() if isinstance(reason, KafkaError) else str(reason)
        raise option_error(client.context, "config", f"is refused: {said}") from None


class GroupCommits:
    """Commits how far an input is to a consumer group. For one thread at a time."""

    def __init__(self, client: KafkaClient, group: str) -> None:
        self._client = client
        self._group = group
        self._consumer: Consumer | None = None
        """Never closed: its thread may still commit when the input is, and there are no members
        that it could leave."""
        self._failed = False

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit the next offset of each partition; also one that has not changed, because Kafka
        forgets what is not renewed, and who was declared dead may have committed last. Waits for
        the broker, and raises nothing: what fails is logged once, until it succeeds."""
        client = self._client
        if not offsets or not client.context.permitted():
            return
        topic = client.topic
        wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
        try:
            if self._consumer is None:
                self._consumer = Consumer(client.settings(
                    group_id=self._group, enable_auto_commit=False,
                    session_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
                ))  # fmt: skip
            done = self._consumer.commit(offsets=wanted, asynchronous=False) or ()
            for each in done:
                if each.error is not None:
                    raise as_exception(each.error)
            self._failed = False
        except KafkaException as error:
            if not self._failed:
                self._failed = True
                _LOGGER.warning(
                    "%s: consumerGroup %r does not hear how far it is: %s. The job goes on, and "
                    "tries again",
                    client.context.where, self._group, client.meaning(error.args[0]),
                )  # fmt: skip


class _Quiet(logging.Logger):
    """The log of the library, for debugging: what matters is reported as an error too."""

    def __init__(self, client: KafkaClient) -> None:
        super().__init__(f"{__name__}.{client.context.task}")

    def log(self, level: int, msg: object, *arguments: object, **named: Any) -> None:
        _LOGGER.debug(msg, *arguments)
