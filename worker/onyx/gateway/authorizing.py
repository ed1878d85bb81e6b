"""How a client without the right token is refused over HTTP."""

from __future__ import annotations

from onyx.requests.request import Answer, Status
from onyx.serving.replies import Rejected, after


def raise_refusal(refusal: Answer | None, token: bytes) -> None:
    """Raises Rejected if the client was refused because of the token that it has shown."""
    if refusal is None:
        return
    if refusal.status is Status.UNAUTHENTICATED:
        challenge = 'Bearer realm="onyx"' + (', error="invalid_token"' if token else "")
        raise Rejected(401, refusal.reason, {"WWW-Authenticate": challenge})
    raise Rejected(503, refusal.reason, after(refusal.retry_after_s or 0))
