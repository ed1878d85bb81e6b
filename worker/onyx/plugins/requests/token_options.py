"""The tokens that a worker has for what an option or a setting names."""

from __future__ import annotations

from collections.abc import Mapping

from onyx.base.seams import Clock
from onyx.plugins.requests.options import RequestsOptions
from onyx.requests.tokens import Tokens
from onyx.rights import Rights
from onyx.settings import Settings
from onyx.storage.opening import absolute


def tokens_of(
    options: RequestsOptions, rights: Rights, data_dir: str, clock: Clock, env: Mapping[str, str]
) -> Tokens:
    """The tokens of an input of a job. What the job may not name holds none."""
    path = options.token_file and absolute(options.token_file, data_dir)
    if path is not None and rights.why_not_path(path) is not None:
        return Tokens(clock, value="")
    value = options.token_env
    if value is not None:
        value = "" if rights.why_not_variable(value) else env.get(value, "")
    return Tokens(clock, path, value)


def tokens_of_states(settings: Settings, clock: Clock) -> Tokens:
    """The tokens of all states of a worker."""
    file = settings.state.token_file
    return Tokens(clock, absolute(file, settings.data_dir) if file else None)
