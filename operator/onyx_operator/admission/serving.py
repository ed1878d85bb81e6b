"""The webhook as a part of the operator: served while that runs, if it has a certificate."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

from onyx_operator.admission.certificates import Certificates
from onyx_operator.admission.server import Check, Webhook
from onyx_operator.context import Operator
from onyx_operator.parts import run_forever


async def serve_webhook(
    operator: Operator, checks: Mapping[str, Check], opened: AsyncExitStack
) -> None:
    """Serve the webhook while the operator runs, if it has a certificate."""
    settings = operator.settings.webhook
    if not settings.cert_file:
        return
    certificates = Certificates(settings.cert_file, settings.key_file)
    webhook = Webhook(settings, certificates, operator.metrics, checks)
    opened.push_async_callback(webhook.close)
    await webhook.start()
    following = certificates.follow(settings.reload_interval_s)
    run_forever(operator, opened, "the webhook's certificate", following)
