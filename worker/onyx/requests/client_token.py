"""The token that a client shows to workers: from a file or a variable, and read again."""

from __future__ import annotations

import os
from collections.abc import Mapping

from onyx.base.seams import Clock
from onyx.errors import UserError
from onyx.requests.tokens import FILE_BYTES_MAX, LOOK_INTERVAL_S, tokens_in
from onyx.settings import ClientSettings


class ClientToken:
    """Safe from any thread."""

    def __init__(
        self, settings: ClientSettings, clock: Clock, env: Mapping[str, str] = os.environ
    ) -> None:
        """Nothing is read yet. Raises UserError when file and variable are named."""
        if settings.token_file and settings.token_env:
            raise UserError("a client takes its token from a file or a variable, and not from both")
        self._settings = settings
        self._clock = clock
        self._env = env
        self._read: tuple[float, str] | None = None

    def __call__(self) -> str:
        """The token of this moment; empty if none is named. Raises UserError if it is not there."""
        now_s = self._clock.monotonic_s()
        if self._read is None or now_s - self._read[0] >= LOOK_INTERVAL_S:
            self._read = (now_s, self._found())
        return self._read[1]

    def _found(self) -> str:
        file, variable = self._settings.token_file, self._settings.token_env
        if variable:
            return _checked(self._env.get(variable, ""), f"variable {variable}")
        if not file:
            return ""
        try:
            with open(file, encoding="utf-8") as opened:
                text = opened.read(FILE_BYTES_MAX)
        except (OSError, ValueError) as error:
            raise UserError(f"the token file {file} cannot be read: {error}") from error
        return _checked(text, f"the token file {file}")


def _checked(text: str, where: str) -> str:
    token = next(tokens_in(text), "")
    if not token:
        raise UserError(f"{where} holds no token")
    if not (token.isascii() and token.isprintable()):
        raise UserError(f"{where} holds a token with characters that are not printable ASCII")
    return token
