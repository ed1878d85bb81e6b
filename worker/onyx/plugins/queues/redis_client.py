"""A client of a Redis as the options say."""

from __future__ import annotations

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from onyx.plugins.protocol import PluginContext
from onyx.plugins.queues.options import RedisOptions
from onyx.plugins.queues.secrets import password_of

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0


def client_of(context: PluginContext, options: RedisOptions) -> redis.Redis:
    """A client that repeats nothing by itself. It connects when it is used.

    Raises:
        UserError: the variable of the password is not set.
        Unavailable: the file of the password cannot be read.
    """
    located = context.located
    host, _, port = options.server.rpartition(":")
    files = {
        name: located(file)
        for name, file in (
            ("ssl_ca_certs", options.ca_file),
            ("ssl_certfile", options.certificate_file),
            ("ssl_keyfile", options.key_file),
        )
        if file is not None
    }
    secure: dict[str, Any] = {"ssl": True, **files} if options.tls else {}
    return redis.Redis(
        host=host.strip("[]"),
        port=int(port),
        db=options.database,
        username=options.username,
        password=password_of(context, options),
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=REQUEST_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        client_name="onyx",
        **secure,
    )
