"""Secrets in a manifest, by the shape of a key or a value: one rule for all plugins.

A job is stored beside the log and shown to everybody who may see it, so it names where a secret is
and does not hold it. Keys are looked at in the maps that a plugin passes on to somebody else
(headers, settings of a client, options of a format), values in every text of its options. Keys of
segments and columns may be called as they like. The rule errs on the side of refusing: what is no
secret, and is called like one, goes through a variable too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from onyx.errors import Problem
from onyx.model.report import at

PASSED_ON = ("headers", "config", "formatOptions", "options", "sparkConf")
"""Options that are maps with names of others."""
_WITH_VARIABLES = ("url", "headers", "config", "formatOptions", "options")
"""Options that have one for variables beside them."""
_NAME = re.compile(
    r"passw(or)?d|passphrase|passcode|secret|jaas\.config|oauthbearer\.config|accountkey"
    r"|((^|[._-])(pwd|auth|key|sig|sas|jwt)|key[._-]?pem|authoriz?ation|authentication|cookie"
    r"|signature|token|credentials?|bearer|(private|api|access|shared|encryption)[._-]?key)$",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(r"(location|field|path|file|url|uri|type|class|column|env)$", re.IGNORECASE)
"""Where a secret is, or what kind of one."""
_USER = re.compile(r"(?<=[a-z0-9+.:-])://[^/?#@\s:]*:[^/?#@\s]+@", re.IGNORECASE)
"""It begins behind the scheme, each letter of which could begin one, and the user ends at the first
colon. All patterns here take a time in proportion to a text: the webhook reads those of strangers.
"""
_ORACLE = re.compile(r"jdbc:[a-z0-9:][a-z0-9]*:[^/@\s]+/[^/@\s]+@", re.IGNORECASE)
_PARAMETER = re.compile(r"[?&;#]\s*([^=&;#?\s]+)\s*=\s*[^&;#\s]")
_URL = re.compile(r"\s*(jdbc:|[a-z][a-z0-9+.-]*://)", re.IGNORECASE)
_HOLDS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|^\s*(Bearer|Basic)\s+[A-Za-z0-9+/=._~-]{8,}\s*$"
    r"|\b(AKIA|ASIA)[0-9A-Z]{16}\b|[\w-]{10}\.eyJ[\w-]{10,}\.",
)
"""A key in PEM, the value of a header, a key of Amazon's, a JSON web token from its payload on."""


def is_secret_name(name: str) -> bool:
    """Whether what is called so is a secret."""
    return _NAME.search(name) is not None and _NO_SECRET.search(name) is None


def secret_in(value: str) -> str | None:
    """What in a text is a secret, in words that do not show it; None if nothing is."""
    if _HOLDS.search(value) is not None:
        return "a key, a token or a password"
    if _URL.match(value) is None:
        return None
    if _USER.search(value) is not None or _ORACLE.match(value) is not None:
        return "a URL with a password"
    names = (unquote(each) for each in _PARAMETER.findall(value))
    found = next((name for name in names if is_secret_name(name)), None)
    return None if found is None else f"a URL with {found!r}"


def secrets_in(options: Mapping[str, Any]) -> Iterator[Problem]:
    """Secrets in the options of a plugin, each at its option."""
    for option, value in options.items():
        yield from _found(option, option, value)


def _found(path: str, option: str, value: Any) -> Iterator[Problem]:
    if isinstance(value, str):
        what = secret_in(value)
        if what is not None:
            yield Problem(path, f"has {what}, which is a secret", _hint(option, ""))
    elif isinstance(value, Mapping) and (option in PASSED_ON or option == "write"):
        for key, each in value.items():
            name = str(key)
            if option in PASSED_ON and is_secret_name(name):
                yield Problem(path, f"has {name!r}, which is a secret", _hint(option, name))
            else:
                inner = name if option == "write" else option
                yield from _found(at(path, name), inner, each)


def _hint(option: str, name: str) -> str:
    named = f": {{{name}: NAME}}" if name else ": NAME"
    if option == "sparkConf":
        return "whoever starts the workers sets it in Spark's spark-defaults.conf"
    if option in _WITH_VARIABLES:
        return f"name a variable of the workers that holds it with {option}Env{named}"
    return "take it out of the job, which is stored and shown"
