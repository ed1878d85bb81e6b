"""A session of a Spark Connect server, which others run and which serves others too.

It may be away, die while a stage runs, be of another version or no such server at all. PySpark's
client then tries for ten minutes and says little; here it gives up after half a minute, because the
stage is run again as a whole. Whether anything answers is asked first (`require_one`, of masters
too): Spark itself waits for a minute, and then says that something has been stopped.

PySpark sends a token only over TLS, which its server does not speak by itself. In a cluster nobody
but workers reaches the server, so ours travels as plain text, in the header that the server reads.
It goes to the server of `ONYX_SPARK_MASTER` alone: a job may name any other. PySpark's own
variable, `SPARK_CONNECT_AUTHENTICATE_TOKEN`, is for servers behind TLS.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from onyx.errors import SettingsError, Unavailable, UserError
from onyx.settings import from_environment

PORT = 15002
"""The port of a server whose URL gives none."""
SESSION_TIMEOUT_S = 120.0
"""Longest wait for a session. What takes a connection and is no such server may say nothing."""
ANSWER_TIMEOUT_S = 10.0
"""Longest wait for a port to answer."""
RETRIES_MAX = 6
RETRY_FIRST_MS = 500
RETRY_FACTOR = 2.0
RETRY_MAX_MS = 10_000
FILE_VARIABLE = "ONYX_SPARK_TOKEN_FILE"
MASTER_VARIABLE = "ONYX_SPARK_MASTER"
OF_PYSPARK = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_CHARACTERS_MAX = 4_096
_SIGNS_OF_A_TOKEN = ("No authentication token provided", "Invalid authentication token")
_SIGNS_OF_LOSS = ("INVALID_HANDLE.", "RETRIES_EXCEEDED", "StatusCode.UNAVAILABLE")
"""The second: a server that was started anew does not know the session."""
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""The settings, as of every stage, wherever it runs."""


def open_connect(master: str, extra: Mapping[str, str]) -> Any:
    """A new session.

    Args:
        master: `sc://host:port`, perhaps with parameters.
        extra: `sparkConf` of the task.

    Raises:
        UserError: a setting is the server's own, or it wants a token.
        SettingsError: the token of the workers cannot be read.
        Unavailable: no server answers there, or none that is understood.
    """
    _require_port(master)
    try:
        session, version = _begun(with_token(master, os.environ))
    except ImportError as error:
        raise UserError(
            f"a master {master} needs {error.name or error}: pip install "
            "'onyx-on-kubernetes[spark]'"
        ) from error
    except (SettingsError, Unavailable):
        raise
    except Exception as error:
        if any(sign in str(error) for sign in _SIGNS_OF_A_TOKEN):
            raise UserError(
                f"the Spark Connect server at {master} wants a token that this worker does not "
                f"show: {FILE_VARIABLE} of the workers names the file of it, for the server of "
                f"{MASTER_VARIABLE}; {OF_PYSPARK} is for servers behind TLS"
            ) from error
        raise Unavailable(
            f"what answers at {master} is no Spark Connect server, or of a version that PySpark "
            f"{_own_version()} does not understand: {_first_line(error)}"
        ) from error
    for key, value in {**SETTINGS, **extra}.items():
        _set(session, key, value, f"Spark {version} at {master}")
    return session


def _begun(url: str) -> tuple[Any, str]:
    """A session, and the version of its server."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(url).create()
    try:
        _be_less_patient(session)
        return session, _within(SESSION_TIMEOUT_S, lambda: str(session.version))
    except BaseException:
        # PySpark keeps the first session of a process as its default one, so what the next one
        # builds would go to a server that refused this one. Nothing is there to be released.
        session.release_session_on_close = False
        session.stop()
        raise


def doubt(session: Any) -> str:
    """A remark for errors of a server of another version; empty if there is none to make."""
    version = str(session.version)  # asked when it was opened, and kept since
    own = _own_version()
    if version.split(".")[:2] == own.split(".")[:2]:
        return ""
    return f"the server is Spark {version}, the worker has PySpark {own}: take the same"


def is_lost(error: BaseException) -> bool:
    """Whether an error is the server's end and no fault of the stage. What the server says of a
    query has a class of its own; what is left over is the connection."""
    if type(error).__name__ == "SparkConnectGrpcException":
        return True
    return any(sign in str(error) for sign in _SIGNS_OF_LOSS)


def _require_port(master: str) -> None:
    where = master.removeprefix("sc://").partition("/")[0]
    host, _, port = where.partition(":")
    require_one("Spark Connect server", [(host, int(port or PORT))])


def _within(timeout_s: float, ask: Callable[[], str]) -> str:
    """The server's first answer. The thread that waits for none ends with the process."""
    answers: queue.SimpleQueue[str | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put(ask())
        except Exception as error:
            answers.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        answer = answers.get(timeout=timeout_s)
    except queue.Empty:
        answer = TimeoutError(f"nothing was said within {timeout_s:g} s")
    if isinstance(answer, Exception):
        raise answer
    return answer


def _be_less_patient(session: Any) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    policy = DefaultPolicy(
        max_retries=RETRIES_MAX,
        initial_backoff=RETRY_FIRST_MS,
        backoff_multiplier=RETRY_FACTOR,
        max_backoff=RETRY_MAX_MS,
    )
    session.client.set_retry_policies([policy])


def _set(session: Any, key: str, value: str, server: str) -> None:
    try:
        session.conf.set(key, value)
    except Exception as error:
        if is_lost(error):
            raise Unavailable(f"{server} does not answer: {_first_line(error)}") from error
        raise UserError(
            f"sparkConf.{key}: {server} does not let a session set it: set it where the server is "
            f"started ({_first_line(error)})"
        ) from error


def _own_version() -> str:
    import pyspark

    return str(pyspark.__version__)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def require_one(what: str, places: Sequence[tuple[str, int]]) -> None:
    """That one of some places takes a connection.

    Args:
        what: should be there, for the message.

    Raises:
        Unavailable: none does.
    """
    said = []
    for host, port in places:
        try:
            socket.create_connection((host, port), ANSWER_TIMEOUT_S).close()
        except OSError as error:
            said.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise Unavailable(
        f"no {what} answers at {', '.join(said)}; is it started, and may this worker reach it?"
    )


def with_token(master: str, variables: Mapping[str, str]) -> str:
    """The URL by which PySpark finds a server and shows what that wants to see.

    Args:
        master: `sc://host:port`, perhaps with parameters.
        variables: of this process.

    Raises:
        SettingsError: the file of the token, or another setting, cannot be read.
    """
    file = from_environment(variables).spark_token_file
    if not file or not is_own(master, variables):
        return master
    address, _, parameters = master.removeprefix("sc://").partition("/")
    kept = parameters.removesuffix(";")
    return f"sc://{address}/{kept};authorization={quote(f'Bearer {read_token(Path(file))}')}"


def is_own(master: str, variables: Mapping[str, str]) -> bool:
    """Whether a master is the server that workers use for jobs that name none."""
    return _address(master) == _address(from_environment(variables).spark_master)


def read_token(file: Path) -> str:
    """What is in the file.

    Raises:
        SettingsError: it cannot be read, or holds no token.
    """
    try:
        with file.open(encoding="ascii") as opened:
            token = opened.read(_CHARACTERS_MAX).strip()
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"{FILE_VARIABLE}: {file} cannot be read: {error}") from error
    if not token.isprintable() or not token or " " in token:
        raise SettingsError(f"{FILE_VARIABLE}: {file} holds no token: one word is wanted")
    return token


def _address(master: str) -> str:
    return master.removeprefix("sc://").partition("/")[0].lower()
