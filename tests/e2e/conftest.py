"""An installed release for the tests of a module, or a namespace to install in; and all that one
wants to see of it when a test fails."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pytest
from tests.e2e.kube import WAIT_S, CommandError, Kube, run, tool
from tests.e2e.release import CRDS, Release

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark comes last: it takes a fifth of the time, and where there is too little of that, most
    features have been tested."""
    items.sort(key=lambda item: item.path.name == "test_e2e_spark.py")


@pytest.fixture(scope="session")
def definitions() -> None:
    """The definitions of this version, which Helm installs but never changes."""
    server_side = ["--server-side", "--force-conflicts"]
    run([tool("kubectl"), "apply", *server_side, "--filename", str(CRDS)])
    for name in ("onyxjobs.onyx.dev", "onyxclusters.onyx.dev"):
        run([tool("kubectl"), "wait", f"crd/{name}", "--for=condition=Established"])


@pytest.fixture(scope="session")
def nodes(definitions: None) -> None:
    """A cluster that can run pods."""
    if not run([tool("kubectl"), "get", "nodes", "--output", "name"]).strip():
        pytest.skip("this cluster has no node (see `python -m tests.cluster status`)")


_LEAVING: list[str] = []
"""Namespaces that end while other tests run."""


@pytest.fixture(scope="session", autouse=True)
def _none_stays() -> Iterator[None]:
    """In the end all namespaces are gone."""
    yield
    for each in _LEAVING:
        command = [tool("kubectl"), "wait", each, "--for=delete", f"--timeout={WAIT_S:.0f}s"]
        run(command, timeout_s=2 * WAIT_S)


@contextlib.contextmanager
def _namespace() -> Iterator[Kube]:
    """A namespace under the restricted Pod Security standard, deleted in the end."""
    kube = Kube(f"onyx-e2e-{uuid.uuid4().hex[:6]}")
    kube.kubectl("create", "namespace", kube.namespace)
    try:
        label = "pod-security.kubernetes.io/enforce=restricted"
        kube.kubectl("label", "namespace", kube.namespace, label)
        yield kube
    finally:
        kube.kubectl("delete", "namespace", kube.namespace, "--wait=false")
        _LEAVING.append(f"namespace/{kube.namespace}")


@pytest.fixture
def kube(definitions: None, request: pytest.FixtureRequest) -> Iterator[Kube]:
    """An empty namespace for one test."""
    with _namespace() as kube:
        yield kube
        _show_after_failure(kube, request)


@pytest.fixture(scope="module")
def values(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Arguments of `helm install`: the `VALUES` of the module, if it has any, in which NAMESPACE is
    the one of the release."""
    return tuple(getattr(request.module, "VALUES", ()))


@pytest.fixture(scope="module")
def installed(
    nodes: None, values: tuple[str, ...], request: pytest.FixtureRequest
) -> Iterator[Release]:
    """The chart with two workers, shared by the tests of a module. What a module has to `prepare`
    is there before."""
    with _namespace() as kube:
        getattr(request.module, "prepare", lambda _: None)(kube)
        release = Release(kube)
        try:
            try:
                release.install(*(each.replace("NAMESPACE", kube.namespace) for each in values))
            except (AssertionError, CommandError):
                print(kube.describe_everything())
                raise
            yield release
        finally:
            release.remove()


@pytest.fixture
def release(installed: Release, request: pytest.FixtureRequest) -> Iterator[Release]:
    """The release of the module, whole again after a test that failed."""
    yield installed
    _show_after_failure(installed.kube, request)
    if request.node.stash.get(FAILED, False):
        installed.scale_operator(1)
        installed.kube.kubectl("scale", "oc/onyx", "--replicas=2")
        _remove_jobs(installed.kube)


def _remove_jobs(kube: Kube) -> None:
    """Delete the jobs, which nothing holds."""
    with contextlib.suppress(CommandError):
        kube.kubectl("delete", "oj", "--all", "--timeout=60s")


def _show_after_failure(kube: Kube, request: pytest.FixtureRequest) -> None:
    if request.node.stash.get(FAILED, False):
        print(kube.describe_everything())
