"""A namespace is deleted, and with it an installation: nothing of it stays elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration
from msgspec.structs import replace
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.server import CRDS, FakeApi
from tests.operator.harness import installation, settings
from tests.support.generated.chart import NAMESPACE, objects, outside

from onyx.errors import SettingsError
from onyx_operator.installation.belongings import Belongings
from onyx_operator.kube import Kube
from onyx_operator.settings import InstallationSettings, KubeSettings

WATCHED = {"watchNamespaces": ["team"], "cluster": {"create": False}, "rbac": {"aggregate": True}}
Object = dict[str, Any]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """An API server with an installation that looks after another namespace."""
    with FakeApi(*CRDS) as server:
        for name in (NAMESPACE, "team"):
            server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for each in outside(objects(WATCHED)):
            server.create(each, each["metadata"].get("namespace", ""))
        yield server


def chosen(values: Object) -> InstallationSettings:
    return replace(settings(**installation(Path(), **values)).installation, interval_s=0.0)


def own(api: FakeApi, values: Object = WATCHED) -> None:
    configuration = Configuration()
    configuration.host = api.url
    with closing(Kube(KubeSettings(), configuration)) as kube:
        asyncio.run(Belongings(kube, chosen(values)).own())


def there(api: FakeApi) -> set[tuple[str, str]]:
    """What there is of the installation outside of its namespace."""
    kinds = {each["kind"] for each in outside(objects(WATCHED))}
    plurals = {f"{kind.lower()}s" for kind in kinds}
    return {
        (each["kind"], each["metadata"]["name"])
        for plural in plurals
        for each in api.list(plural, "team" if plural in ("roles", "rolebindings") else "")
    }


def test_nothing_is_left_when_the_namespace_is_deleted(api: FakeApi) -> None:
    assert len(there(api)) == 8
    own(api)
    api.delete("namespaces", NAMESPACE, "")

    assert there(api) == set()


def test_without_an_owner_all_of_it_would_stay(api: FakeApi) -> None:
    api.delete("namespaces", NAMESPACE, "")

    assert len(there(api)) == 8


def test_what_is_owned_is_left_alone_and_keeps_its_other_owners(api: FakeApi) -> None:
    team = api.get("namespaces", "team", "")
    assert team is not None
    other = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "name": "team",
        "uid": team["metadata"]["uid"],
    }
    kind, name = "validatingwebhookconfigurations", "onyx-onyx"
    api.patch(kind, name, {"metadata": {"ownerReferences": [other]}})
    own(api)
    before = len(api.requests)
    own(api)
    assert {each.target.verb for each in api.requests[before:]} == {"get"}

    hook = api.get(kind, name, "")
    assert hook is not None
    assert [each["name"] for each in hook["metadata"]["ownerReferences"]] == ["team", NAMESPACE]


def test_a_refusal_is_said_once_and_ends_nothing(
    api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.faults.add(Fault(verb="patch", resource="clusterroles", code=403, times=1_000))
    configuration = Configuration()
    configuration.host = api.url

    async def follow() -> None:
        with closing(Kube(KubeSettings(), configuration)) as kube:
            part = asyncio.create_task(Belongings(kube, chosen(WATCHED)).follow())
            while sum(each.code == 403 for each in api.requests) < 3:
                await asyncio.sleep(0)
            assert not part.done()
            part.cancel()
            await asyncio.wait([part])

    with caplog.at_level(logging.WARNING):
        asyncio.run(follow())
    said = [each.getMessage() for each in caplog.records]
    assert len([each for each in said if "objects of this installation outside of it" in each]) == 1


@pytest.mark.parametrize("wrong", ["onyx", "Secret/onyx", "Role/a/b/c", "ClusterRole/"])
def test_only_what_may_be_owned_is_named(wrong: str) -> None:
    with pytest.raises(SettingsError, match="expected Kind/name"):
        Belongings(Kube(KubeSettings(), Configuration()), InstallationSettings("onyx", (wrong,)))
