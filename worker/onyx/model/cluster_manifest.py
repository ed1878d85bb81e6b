"""The keys of an OnyxCluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import field

from onyx.model.cluster import Cluster
from onyx.model.job import EMPTY
from onyx.model.keys.fields import section_of

CLUSTER = section_of(Cluster)


class _ClusterManifest(msgspec.Struct, frozen=True):
    api_version: Literal["onyx.dev/v1alpha1"]
    kind: Literal["OnyxCluster"]
    metadata: Mapping[str, Any]
    spec: Cluster
    status: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Written by the operator; ignored here."""


CLUSTER_MANIFEST = section_of(_ClusterManifest, "manifest")
