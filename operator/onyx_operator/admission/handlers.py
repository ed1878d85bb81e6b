"""Starting and stopping the validating webhook with the operator."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf

from onyx.errors import Unavailable
from onyx_operator.admission.certificates import Certificates
from onyx_operator.admission.server import Webhook
from onyx_operator.context import Operator


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Serve the webhook while the operator runs, if it has a certificate.

    Raises:
        SettingsError: the certificate cannot be used.
    """
    settings = operator.settings.webhook
    if not settings.cert_file:
        return
    certificates = Certificates(settings.cert_file, settings.key_file)
    webhook = Webhook(settings, certificates, operator.metrics)
    tasks: list[asyncio.Task[None]] = []

    @kopf.on.startup(registry=registry)
    async def serve(**_: Any) -> None:
        try:
            await webhook.start()
        except Unavailable as error:
            raise kopf.PermanentError(str(error)) from error
        tasks.append(asyncio.create_task(certificates.follow(settings.reload_interval_s)))

    @kopf.on.cleanup(registry=registry)
    async def close(**_: Any) -> None:
        for task in tasks:
            task.cancel()
        await webhook.close()
