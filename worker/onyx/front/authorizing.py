"""Whether the bearer token of a request opens what it asks for."""

from __future__ import annotations

from onyx.front.replies import Rejected, after
from onyx.plugins.requests.tokens import Tokens

AGAIN_S = 1.0


def authorize(tokens: Tokens, token: bytes | None, what: str) -> None:
    """Raises Rejected if the token is none of those that open `what`, if any has to."""
    if not tokens.wanted:
        return
    if not tokens.known():
        raise Rejected(503, f"the token of {what} cannot be read on this worker", after(AGAIN_S))
    challenge = 'Bearer realm="onyx"'
    if token is None:
        raise Rejected(401, f"{what} wants a bearer token", {"WWW-Authenticate": challenge})
    if not tokens.opened_by(token):
        challenge += ', error="invalid_token"'
        raise Rejected(401, "the token is another one", {"WWW-Authenticate": challenge})
