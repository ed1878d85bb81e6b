"""The token that a worker shows to the Spark Connect server of its cluster.

PySpark sends a token only over TLS, which its server does not speak by itself. In a cluster nobody
but workers reaches the server, so ours travels as plain text, in the header that the server reads.
It goes to the server of `ONYX_SPARK_MASTER` alone: a job may name any other. PySpark's own
variable, `SPARK_CONNECT_AUTHENTICATE_TOKEN`, is for servers behind TLS.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from onyx.errors import SettingsError
from onyx.settings import from_environment

FILE_VARIABLE = "ONYX_SPARK_TOKEN_FILE"
MASTER_VARIABLE = "ONYX_SPARK_MASTER"
OF_PYSPARK = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_CHARACTERS_MAX = 4_096


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
