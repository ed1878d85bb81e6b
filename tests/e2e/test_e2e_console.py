"""What is measured reaches whoever looks: the status of a job, and the console of the chart."""

from __future__ import annotations

import base64
import re
from typing import Any

from tests.e2e.kube import until
from tests.e2e.release import Release

VALUES = ("--set", "console.enabled=true")


def test_the_status_of_a_job_says_how_far_it_is_behind(release: Release) -> None:
    squares = release.start_squares("behind", per_second=100)
    squares.await_some()

    lag = until(lambda: _lag(release, "behind"), "the job has a lag")

    assert lag["segments"] > 0
    assert lag["text"] in release.kube.kubectl("get", "oj", "behind")


def test_the_console_shows_the_job_to_who_has_the_token(release: Release) -> None:
    release.start_squares("shown", per_second=100).await_some()
    release.kube.kubectl("rollout", "status", "deployment/onyx-console", "--timeout=120s")
    secret = release.kube.get("secret", "onyx-console")["data"]["token"]
    token = base64.b64decode(secret).decode().split()[0]

    refused = _page(release, "/", "")
    found = until(lambda: _with_rates(_page(release, "/", token)), "the page has rates")

    assert refused.startswith("401")
    assert found.startswith("200")
    assert "shown" in found


def _lag(release: Release, job: str) -> Any:
    return release.kube.get("oj", job).get("status", {}).get("lag")


def _with_rates(page: str) -> str | None:
    """The page, once the workers have said how fast they are."""
    return page if re.search(r"\d ?k?/s", page) else None


def _page(release: Release, path: str, token: str) -> str:
    """Status and text of a page, asked for in the pod of a worker."""
    address = f"http://onyx-console.{release.kube.namespace}.svc{path}"
    return release.kube.tool(release.worker(), "page", address, token)
