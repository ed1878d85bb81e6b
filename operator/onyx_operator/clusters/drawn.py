"""What the operator puts into Secrets of clusters, each of which it makes once and cannot read.

The token of a Spark server is drawn at random: another one is as good. The account of a tenancy
opens what was stored under it, so it follows from the name of the tenancy and the operator's own
account: when the Secret is deleted, or the cluster is made again, it is the same one.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from typing import Any

from onyx.errors import SettingsError, Unavailable
from onyx.log.zookeeper.access import account_of
from onyx.settings import Settings
from onyx_operator.clusters.mounts import SPARK_TOKEN_KEY
from onyx_operator.clusters.resources import ACCOUNT_TYPE


def content(secret: Mapping[str, Any], log: Settings) -> dict[str, str]:
    """What a Secret of a cluster is to hold, as the API takes it.

    Raises:
        Unavailable: the operator's own password cannot be read.
    """
    drawn = {SPARK_TOKEN_KEY: secrets.token_urlsafe()}
    if secret["type"] == ACCOUNT_TYPE:
        try:
            user, password = account_of(log.tenancy_id, log.zookeeper)
        except SettingsError as error:
            raise Unavailable(str(error)) from error
        drawn = {"user": user, "password": password}
    return {key: base64.b64encode(text.encode()).decode() for key, text in drawn.items()}
