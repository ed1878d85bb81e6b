"""Connections to an object store, and its errors as errors of Onyx.

Address and credentials come from the environment, as for any program of AWS: keys, a web
identity (`AWS_WEB_IDENTITY_TOKEN_FILE`), the role of a container or machine, `AWS_ENDPOINT_URL`,
`AWS_REGION`. Requests are repeated a few times before a failure shows.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

from onyx.errors import OnyxError, SettingsError, Unavailable, UserError

ATTEMPTS_MAX = 5
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0
CONNECTIONS_MAX = 32
DEFAULT_REGION = "us-east-1"
_DENIED = {
    "403", "AccessDenied", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId",
    "InvalidToken", "SignatureDoesNotMatch", "XAdminUserNotFound",
}  # fmt: skip
_logger = logging.getLogger(__name__)


class ObjectMissing(UserError):
    """There is no object of this key, or no upload of this id."""


class ConditionFailed(UserError):
    """The object is not, or no longer, what the request asked for."""


class RangeMissing(UserError):
    """The object ends before the range that was asked for."""


def connect() -> Any:
    """A client of the store that the environment names, one for all tasks of this process.

    Raises:
        SettingsError: botocore is not installed, or a variable has a value that it refuses.
    """
    ours = [(name, value) for name, value in os.environ.items() if name.startswith("AWS_")]
    return _client(tuple(sorted(ours)))


@functools.lru_cache(maxsize=4)
def _client(variables: tuple[tuple[str, str], ...]) -> Any:
    """The library reads the same variables itself; here they tell one client from another."""
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ImportError as error:
        raise SettingsError("s3:// needs botocore: pip install 'onyx-on-kubernetes[s3]'") from error
    known = dict(variables)
    options: dict[str, Any] = {}
    # Many stores do not know the checksums that are sent by default since 2025.
    for name in ("request_checksum_calculation", "response_checksum_validation"):
        if f"AWS_{name.upper()}" not in known:
            options[name] = "when_required"
    try:
        return Session().create_client(
            "s3",
            region_name=known.get("AWS_REGION") or known.get("AWS_DEFAULT_REGION", DEFAULT_REGION),
            config=Config(
                # The other modes have a quota: when it is used up nothing waits between two tries.
                retries={"mode": "legacy", "total_max_attempts": ATTEMPTS_MAX},
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                max_pool_connections=CONNECTIONS_MAX,
                **options,
            ),
        )
    except (BotoCoreError, ValueError) as error:
        raise SettingsError(f"the AWS_ variables of this worker are wrong: {error}") from error


@contextlib.contextmanager
def our_errors(url: object) -> Iterator[None]:
    """What the library raises, as ours, with the URL.

    Raises:
        ObjectMissing: there is no such object or upload.
        ConditionFailed: the object is not what was asked for.
        RangeMissing: the object is shorter.
        UserError: no such bucket, no credentials, or they do not suffice.
        Unavailable: the store cannot be reached, or fails.
    """
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

    try:
        yield
    except ClientError as error:
        raise _refused(url, error.response) from error
    except (BotoCoreError, HTTPClientError, OSError) as error:
        raise _unreached(url, error) from error


def _refused(url: object, response: Mapping[str, Any]) -> OnyxError:
    reason = response.get("Error", {})
    code = str(reason.get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "NoSuchBucket":
        return UserError(f"{url}: there is no such bucket; make it, or mend the path")
    if code in ("NoSuchKey", "NoSuchUpload", "404"):
        return ObjectMissing(f"{url} is not there")
    if code in ("PreconditionFailed", "412"):
        return ConditionFailed(f"{url} has changed")
    if code in ("InvalidRange", "416"):
        return RangeMissing(f"{url} ends before")
    if code in _DENIED:
        return UserError(
            f"{url}: access is denied ({code}); give the workers credentials that may do this "
            "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role)"
        )
    text = f"{url}: the object store answers {status} {code}: {reason.get('Message', '')}"
    if status == 501 or (300 <= status < 500 and status not in (408, 409, 425, 429)):
        return UserError(f"{text}; see AWS_ENDPOINT_URL and AWS_REGION of the workers")
    return _unavailable(text)


def _unreached(url: object, error: Exception) -> OnyxError:
    from botocore import exceptions

    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return UserError(
            f"{url}: this worker has no credentials; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY in its environment, or give it a role"
        )
    if isinstance(error, exceptions.ParamValidationError | exceptions.InvalidRegionError):
        return UserError(f"{url} is not possible: {error}")
    return _unavailable(f"{url}: the object store cannot be reached: {error}")


def _unavailable(text: str) -> Unavailable:
    """Logged here, because callers repeat the request without a log line."""
    _logger.warning("%s", text)
    return Unavailable(text)
