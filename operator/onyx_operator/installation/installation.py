"""The installation's own password and certificates: drawn before the operator starts, renewed while
it runs.

The operator draws them, and not Helm, which has no memory of what it drew. It reads them from the
API server into a folder of its own: a mounted Secret has to be there before the pod starts.
ZooKeeper and workers mount the Secrets, and wait for them. The webhook's certificate is each
process's own, signed when it starts, and in no Secret.

A Secret is made if it is absent, and changed only as the version that was read; who loses a race
reads what the winner has written. A Secret without the operator's label is its owner's: it is used
as it is. Nothing owns these Secrets, so that an uninstallation leaves them beside the data that
they protect.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from onyx.errors import OnyxError, SettingsError, Unavailable
from onyx_operator.installation.authority import (
    Authority,
    Pair,
    authority_is_due,
    certificate_is_due,
    is_usable,
    issue,
    new_authority,
)
from onyx_operator.installation.belongings import CONFIGURATIONS
from onyx_operator.kube import MANAGER, SECRETS, Conflict, Kube, NotFound, Object, Resource
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import InstallationSettings

logger = logging.getLogger(__name__)

USER = "onyx"
RETRY_S = 2.0
"""Between attempts before the operator has started."""
KIND = "Installation"
"""What metrics call this."""
_CA, _CERTIFICATE, _KEY = "ca.crt", "tls.crt", "tls.key"
_PASSWORD_BYTES = 32
ATTEMPTS_MAX = 10
"""Races that are lost in a row before something is wrong."""
_OWNER_LABEL = "app.kubernetes.io/managed-by"
Data = Mapping[str, bytes]


class InstallationSecrets:
    """The Secrets that settings name, and the files made of them."""

    def __init__(
        self,
        kube: Kube,
        settings: InstallationSettings,
        metrics: OperatorMetrics,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._kube, self._settings, self._metrics, self._now = kube, settings, metrics, now
        self._folder = Path(settings.folder)
        self._account: Data | None = None
        self._webhook = Pair(b"", b"")

    async def begin(self) -> None:
        """Look until everything is there; without it the operator reaches nothing."""
        while not await self._looked():
            await asyncio.sleep(RETRY_S)

    async def follow(self) -> None:
        """Renew the Secrets when they are due, for ever."""
        while True:
            await asyncio.sleep(self._settings.interval_s)
            await self._looked()

    async def look(self) -> None:
        """Make what is absent, renew what is due, and tell everybody.

        Raises:
            KubeError, Unavailable: the API server refuses, or cannot be reached.
            SettingsError: a Secret of somebody else lacks a key.
        """
        if not self._settings.namespace:
            return
        if self._settings.account_secret:
            await self._keep_account()
        if self._settings.console_secret:
            await self._keep(
                DueSecret(self._settings.console_secret, "Opaque", _token_due), "token"
            )
        if self._settings.authority_secret:
            authority = await self._keep_authority()
            if self._settings.tls_secret:
                await self._keep_certificate(authority)
            if self._settings.webhook_name:
                self._sign_for_webhook(authority)
            if self._settings.webhook_configuration:
                for each in CONFIGURATIONS:
                    await self._tell_api_server(each, authority.trusted)

    async def _looked(self) -> bool:
        begin_s, result = time.monotonic(), "ok"
        try:
            await self.look()
        except (OnyxError, OSError) as error:
            result = "error"
            logger.warning("Secrets of the installation: %s", error)
        if self._settings.namespace:
            self._metrics.reconciled(KIND, result, time.monotonic() - begin_s)
        return result == "ok"

    async def _keep_account(self) -> None:
        name = self._settings.account_secret
        wanted = DueSecret(name, "Opaque", self._account_due)
        self._account = await self._keep(wanted, "user", "password")
        if self._account["user"] != USER.encode():
            raise SettingsError(
                f"Secret {self._settings.namespace}/{name} is of another user than {USER}: let the "
                "chart's value zookeeper.authSecret name it"
            )
        put(self._folder / "zookeeper", {"password": self._account["password"]})

    def _account_due(self, found: Data | None) -> Data | None:
        """Once drawn, a password is never another: what is in ZooKeeper is closed by it."""
        if found is not None:
            return None
        drawn = secrets.token_urlsafe(_PASSWORD_BYTES).encode()
        return self._account or {"user": USER.encode(), "password": drawn}

    async def _keep_authority(self) -> Authority:
        name = self._settings.authority_secret
        keys = (_CA, _CERTIFICATE, _KEY)
        wanted = DueSecret(name, "kubernetes.io/tls", self._authority_due)
        authority = _authority(await self._keep(wanted, *keys))
        if not is_usable(authority):
            raise SettingsError(
                f"Secret {self._settings.namespace}/{name} holds no authority: its {_CA} has to "
                f"have {_CERTIFICATE}, and {_KEY} has to be the key of that"
            )
        return authority

    def _authority_due(self, found: Data | None) -> Data | None:
        before, now = None if found is None else _authority(found), self._now()
        if before is not None and is_usable(before) and not authority_is_due(before, now):
            return None
        made = new_authority(self._settings.authority_secret, now, before)
        return _files(made.signer, made.trusted)

    async def _keep_certificate(self, authority: Authority) -> None:
        names, life = self._settings.tls_names, self._life

        def due(found: Data | None) -> Data | None:
            pair, now = _pair(found or {}), self._now()
            if certificate_is_due(pair, authority, names, now):
                pair = issue(authority, names, life, now, client=True)
            new = _files(pair, authority.trusted)
            return None if new == found else new

        wanted = DueSecret(self._settings.tls_secret, "kubernetes.io/tls", due)
        found = await self._keep(wanted, _CA, _CERTIFICATE, _KEY)
        put(self._folder / "tls", {key: found[key] for key in (_CA, _CERTIFICATE, _KEY)})

    def _sign_for_webhook(self, authority: Authority) -> None:
        names, now = (self._settings.webhook_name,), self._now()
        if certificate_is_due(self._webhook, authority, names, now):
            self._webhook = issue(authority, names, self._life, now, client=False)
        put(self._folder / "webhook", _files(self._webhook, authority.trusted))

    async def _tell_api_server(self, kind: Resource, trusted: bytes) -> None:
        """Let the configuration of a kind trust the authority, and nobody else."""
        name, bundle = self._settings.webhook_configuration, base64.b64encode(trusted).decode()
        found = await self._kube.get(kind, None, name)
        change: list[dict[str, Any]] = []
        for index, each in enumerate((found or {}).get("webhooks", ())):
            if each["clientConfig"].get("caBundle") != bundle:
                at = f"/webhooks/{index}"
                change.append({"op": "test", "path": f"{at}/name", "value": each["name"]})
                where = f"{at}/clientConfig/caBundle"
                change.append({"op": "add", "path": where, "value": bundle})
        if change:
            await self._kube.patch(kind, None, name, change)

    async def _keep(self, wanted: DueSecret, *keys: str) -> Data:
        found = await _ensure(self._kube, self._settings.namespace, wanted)
        missing = [key for key in keys if not found.get(key)]
        if missing:
            raise SettingsError(
                f"Secret {self._settings.namespace}/{wanted.name} has no {', '.join(missing)}: add "
                "what is missing, or delete the Secret, and the operator makes one"
            )
        return found

    @property
    def _life(self) -> timedelta:
        return timedelta(days=self._settings.certificate_days)


def _token_due(found: Data | None) -> Data | None:
    """A token is drawn once; its owner may replace it."""
    return {"token": secrets.token_urlsafe(_PASSWORD_BYTES).encode()} if found is None else None


def _authority(found: Data) -> Authority:
    return Authority(_pair(found), found.get(_CA, b""))


def _pair(found: Data) -> Pair:
    return Pair(found.get(_CERTIFICATE, b""), found.get(_KEY, b""))


def _files(pair: Pair, trusted: bytes) -> dict[str, bytes]:
    return {_CA: trusted, _CERTIFICATE: pair.certificate, _KEY: pair.key}


def put(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Let a folder have these files and no others; whether that changed anything. It changes at
    once, as a mounted Secret does: whoever reads a certificate and its key while they are renewed
    must not get one of each."""
    if _content(folder) == files:
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    for name, content in files.items():
        with open(os.open(new / name, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(content)
    former = folder.resolve() if folder.is_symlink() else None
    link = new.with_suffix(".link")
    link.symlink_to(new.name)
    os.replace(link, folder)
    if former is not None:
        shutil.rmtree(former, ignore_errors=True)
    return True


def _content(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    return {each.name: each.read_bytes() for each in folder.iterdir()}


class DueSecret(msgspec.Struct, frozen=True):
    """What a Secret of the installation is to have."""

    name: str
    type: str
    due: Callable[[Data | None], Data | None]
    """New content in the place of this (None: of none), or None when nothing is due."""


async def _ensure(kube: Kube, namespace: str, wanted: DueSecret) -> Data:
    """The content of a Secret, after it was made or renewed if that was due.

    Raises:
        KubeError, Unavailable: the API server refuses, or cannot be reached.
    """
    for _ in range(ATTEMPTS_MAX):
        found = await kube.get(SECRETS, namespace, wanted.name)
        if found is not None and not _is_ours(found):
            return _decoded(found)
        before = None if found is None else _decoded(found)
        new = wanted.due(before)
        if new is None:
            assert before is not None
            return before
        with contextlib.suppress(Conflict, NotFound):  # somebody was first
            await _write(kube, namespace, wanted, found, new)
            logger.info("Secret %s is %s", wanted.name, "renewed" if found else "made")
            return new
    raise Unavailable(f"Secret {wanted.name} changes whenever it is to be changed")


async def _write(
    kube: Kube, namespace: str, wanted: DueSecret, found: Object | None, new: Data
) -> None:
    data = {key: base64.b64encode(value).decode() for key, value in new.items()}
    if found is None:
        labels = {_OWNER_LABEL: MANAGER, "app.kubernetes.io/part-of": "onyx"}
        metadata = {"name": wanted.name, "namespace": namespace, "labels": labels}
        await kube.create(SECRETS, {"metadata": metadata, "type": wanted.type, "data": data})
        return
    version = {"resourceVersion": found["metadata"]["resourceVersion"]}
    await kube.patch(SECRETS, namespace, wanted.name, {"metadata": version, "data": data})


def _is_ours(secret: Object) -> bool:
    return (secret["metadata"].get("labels") or {}).get(_OWNER_LABEL) == MANAGER


def _decoded(secret: Object) -> Data:
    found = {}
    for key, value in (secret.get("data") or {}).items():
        with contextlib.suppress(binascii.Error):
            found[key] = base64.b64decode(value)
    return found
