"""What the owner of a worker lets jobs name.

A job is data, and its author need not be trusted with the worker: code, files and variables of the
process are its owner's. What a job names of these is looked at where it is used, in the worker,
because only the worker knows what its owner has allowed.

Paths are compared as the file system resolves them, so that neither `..` nor a link leads out.
Rejected: a list of what is secret. A pod has more of that than anybody remembers: environments in
`/proc`, tokens of service accounts, keys of other programs.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import PurePath

import msgspec
from msgspec.structs import replace

from onyx.base.structs import prepared
from onyx.base.variables import flatten
from onyx.settings import Settings

_NEVER = ("/proc", "/sys", "/dev/fd", "/etc/onyx", "/run/secrets", "/var/run/secrets")
"""What no job may name, whatever lists say: processes, keys of Onyx, tokens of service accounts."""
_FOR_ALL = (
    "/etc/ssl/certs", "/usr/share/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust",
)  # fmt: skip
"""Certificates of authorities, which are no secret."""
_PATTERN = frozenset("*?[{")


@prepared
class Rights(msgspec.Struct, frozen=True):
    """What jobs may name of the worker that runs them."""

    spark_conf: tuple[str, ...] = ()
    """Patterns of settings of Spark that they may set besides harmless ones."""
    paths: tuple[str, ...] = ()
    """Folders that they may name, with all that is in them."""
    secrets: tuple[str, ...] = ()
    """Files that they may not name, wherever these lie."""
    variables: tuple[str, ...] = ()
    """Patterns of names of variables that they may name."""

    def why_not_path(self, path: str) -> str | None:
        """Why a job may not name a path or a pattern of paths; None if it may."""
        parts = PurePath(path).parts
        fixed = next((n for n, part in enumerate(parts) if _PATTERN & set(part)), len(parts))
        place = os.path.realpath(os.path.join("", *parts[:fixed]))
        if any(_is_in(place, each) for each in (*_NEVER, *self.secrets)):
            return f"{path} may be named by no job: it holds secrets of the worker"
        folders = (*self.paths, *(_FOR_ALL if os.path.isfile(place) else ()))  # only to be read
        if os.pardir in parts[fixed:] or not any(_is_in(place, each) for each in folders):
            named = ", ".join(self.paths) or "none"
            return (
                f"{path} lies outside of the folders that jobs may name on this worker ({named}): "
                "its owner can list another one in ONYX_JOB_PATHS"
            )
        return None

    def why_not_variable(self, name: str) -> str | None:
        """Why a job may not name a variable; None if it may."""
        if any(fnmatchcase(name, pattern) for pattern in self.variables):
            return None
        return (
            f"names variable {name!r}, and the owner of this worker has not listed it in "
            "ONYX_JOB_VARIABLES"
        )


EVERYTHING = Rights(spark_conf=("*",), paths=(os.sep,), variables=("*",))
"""For jobs of whoever starts this process: their author writes its code too."""


def of_its_author(settings: Settings) -> Settings:
    """Settings of a worker whose jobs are written by whoever writes its code: they may name
    everything, unless the settings say what."""
    return replace(
        settings,
        job_paths=settings.job_paths or EVERYTHING.paths,
        job_variables=settings.job_variables or EVERYTHING.variables,
        spark_conf_allowed=settings.spark_conf_allowed or EVERYTHING.spark_conf,
    )


def rights_of(settings: Settings) -> Rights:
    """What jobs may name of a worker with these settings."""
    folders = settings.job_paths or (settings.data_dir or os.curdir,)
    return Rights(
        spark_conf=settings.spark_conf_allowed,
        paths=tuple(os.path.abspath(each) for each in folders),
        secrets=tuple(
            os.path.abspath(value)
            for name, value in flatten(settings, "ONYX")
            if name.endswith("_FILE") and value
        ),
        variables=settings.job_variables,
    )


def _is_in(place: str, folder: str) -> bool:
    folder = os.path.realpath(folder)
    return place == folder or place.startswith(folder.rstrip(os.sep) + os.sep)
