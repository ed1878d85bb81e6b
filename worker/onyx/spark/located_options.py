"""Options of a format of Spark that lead to files of the worker.

Formats of Spark know options of any name, so a value is looked at as well as its key: what is
written as a path or as a URL of a file is one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TypeVar

from onyx.plugins.options import option_error, variable_of
from onyx.plugins.protocol import PluginContext
from onyx.storage.opening import is_remote

T = TypeVar("T")
_PATHS = frozenset({"path", "paths", "basepath", "location", "checkpointlocation"})
_STORES = re.compile(r"(s3|s3a|s3n|hdfs|abfss?|gs|oss|wasbs?)://[^/]", re.IGNORECASE)
_OF_A_FILE = re.compile(r"\s*(/\w|(file|local|jar|har|viewfs):|~)", re.IGNORECASE)
_OF_A_SERVER = re.compile(r"jdbc:[a-z0-9]+://", re.IGNORECASE)
"""A database in the process, as of Derby or H2, reads and writes files of the worker."""


def given_options(
    context: PluginContext, option: str, given: Mapping[str, T], from_variables: Mapping[str, str]
) -> dict[str, T | str]:
    """Options of a format, those from variables of this worker with them.

    Raises:
        UserError: as `located_options`, or a variable is not there or none that jobs may name.
    """
    return {
        **located_options(context, option, given),
        **{
            key: variable_of(context, f"{option}Env.{key}", variable)
            for key, variable in from_variables.items()
        },
    }


def located_options(context: PluginContext, option: str, given: Mapping[str, T]) -> dict[str, T]:
    """Options of a format, with paths as paths of this worker.

    Raises:
        UserError: one leads to where jobs may not, or there is no telling where.
    """
    found = dict(given)
    for key, value in given.items():
        if not isinstance(value, str):
            continue
        if value.lower().lstrip().startswith("jdbc:"):
            if not _OF_A_SERVER.match(value.lstrip()) and context.rights.why_not_path(os.sep):
                what = (
                    "leads to a database within Spark, which may write any file, and jobs may not "
                    "name all files of this worker; jdbc:NAME://host/... leads to a server"
                )
                raise option_error(context, f"{option}.{key}", what)
        elif (key.lower() in _PATHS or _OF_A_FILE.match(value)) and not _STORES.match(value):
            found[key] = _located(context, f"{option}.{key}", value)  # type: ignore[assignment]
    return found


def _located(context: PluginContext, option: str, value: str) -> str:
    path = value.strip()
    if path.startswith("["):
        raise option_error(context, option, "is a list; give one path, which may be a pattern")
    path = path.removeprefix("file:") if re.match("file:/(?!/)", path) else path
    if is_remote(path) or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path.removeprefix("file:///")):
        what = f"is {value!r}, which is neither a path nor a store that is known here"
        raise option_error(context, option, what)
    return context.located(path)
