"""Where Spark may run: which masters there are, and what is wrong with others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from onyx.errors import Problem

_CONNECT = "sc://"
_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?")
_STANDALONE = re.compile(r"spark://[^\s/,:]+:\d+(,[^\s/,:]+:\d+)*")
_SERVER = re.compile(r"sc://[^\s/:;]+(:\d+)?(/(;[^\s;=]+=[^\s;]*)*;?)?")
_MASTERS = "local[N], spark://host:port and sc://host:port can be used"
_SECRETS = re.compile(r";\s*(token|x-[^=]*|authorization)\s*=", re.IGNORECASE)
OF_SESSIONS = "spark.sql."
"""How settings begin that a session of a Connect server may have of its own."""


def is_local(master: str) -> bool:
    """Whether Spark runs in the child's own process."""
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Whether it is a Spark Connect server."""
    return master.startswith(_CONNECT)


def places_of(master: str) -> list[tuple[str, int]]:
    """Where the masters of a Spark cluster listen; none of other masters."""
    if not _STANDALONE.fullmatch(master):
        return []
    pairs = (each.rpartition(":") for each in master.removeprefix("spark://").split(","))
    return [(host, int(port)) for host, _, port in pairs]


def wrong_master(master: str) -> Iterator[Problem]:
    """What is wrong with a master, at the key `master`."""
    if master.startswith("k8s://"):
        what = "cannot be k8s://: Onyx starts no Spark executors on Kubernetes yet"
        hint = (
            "run a Spark Connect server in the cluster and give sc://host:15002, or take local[*]"
        )
        yield Problem("master", what, hint)
    elif is_connect(master) and _SECRETS.search(master):
        what = "holds a secret, and a job is for many eyes"
        hint = "set SPARK_CONNECT_AUTHENTICATE_TOKEN for the workers"
        yield Problem("master", what, hint)
    elif not any(form.fullmatch(master) for form in (_LOCAL, _STANDALONE, _SERVER)):
        yield Problem("master", f"is {master!r}, which is no master that is known here", _MASTERS)


def not_of_a_session(conf: Mapping[str, str]) -> Iterator[Problem]:
    """Settings that a session of a Connect server cannot have, at the keys `sparkConf.*`."""
    for key in conf:
        if key.startswith("spark.") and not key.startswith(OF_SESSIONS):
            what = "is set where a Spark Connect server is started, not by who uses it"
            yield Problem(f"sparkConf.{key}", what, f"only {OF_SESSIONS}* with a master sc://")
