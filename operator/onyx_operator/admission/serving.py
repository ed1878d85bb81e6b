"""The webhook as a part of the operator: served while that runs, if it has a certificate."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

from onyx_operator.admission.server import Check, Webhook
from onyx_operator.context import Operator


async def serve_webhook(
    operator: Operator, checks: Mapping[str, Check], opened: AsyncExitStack
) -> None:
    """Serve the webhook while the operator runs, if it has a certificate."""
    settings = operator.settings.webhook
    if not settings.cert_file:
        return
    webhook = Webhook(settings, operator.metrics, operator.authors, checks)
    opened.push_async_callback(webhook.close)
    await webhook.start()
