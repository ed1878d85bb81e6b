"""Names of images as Kubernetes reads them."""

from __future__ import annotations

import pytest
from tests.cluster.images import name_in_pods


@pytest.mark.parametrize(
    ("name", "in_pods"),
    [
        ("onyx-worker:0.1.0", "docker.io/library/onyx-worker:0.1.0"),
        ("team/onyx-worker:0.1.0", "docker.io/team/onyx-worker:0.1.0"),
        ("localhost/onyx-worker:dev", "localhost/onyx-worker:dev"),
        ("registry.example/onyx-worker:dev", "registry.example/onyx-worker:dev"),
        ("registry:5000/onyx-worker:dev", "registry:5000/onyx-worker:dev"),
    ],
)
def test_a_name_without_a_registry_is_one_of_the_hub(name: str, in_pods: str) -> None:
    assert name_in_pods(name) == in_pods
