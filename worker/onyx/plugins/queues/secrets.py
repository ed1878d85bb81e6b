"""Secrets of queues, from the environment or files of the worker."""

from __future__ import annotations

from onyx.errors import Unavailable
from onyx.plugins.options import variable_of
from onyx.plugins.protocol import PluginContext
from onyx.plugins.queues.options import QueueOptions


def password_of(context: PluginContext, options: QueueOptions) -> str | None:
    """The password; None without one. Read whenever a connection is made, so it may change.

    Raises:
        UserError: the variable is not set, or jobs may not name it or the file.
        Unavailable: the file cannot be read.
    """
    if options.password_env is not None:
        return variable_of(context, "passwordEnv", options.password_env)
    if options.password_file is None:
        return None
    path = context.located(options.password_file)
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        raise Unavailable(
            f"{context.where}: passwordFile {path} cannot be read: {error}"
        ) from error
