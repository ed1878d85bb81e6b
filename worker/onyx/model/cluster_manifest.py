"""The keys of an OnyxCluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from onyx.model.cluster import Cluster
from onyx.model.job import EMPTY
from onyx.model.keys.fields import section_of

CLUSTER = section_of(Cluster)


@dataclass(frozen=True, slots=True)
class _ClusterManifest:
    api_version: Literal["onyx.dev/v1alpha1"]
    kind: Literal["OnyxCluster"]
    metadata: Mapping[str, Any]
    spec: Cluster
    status: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Written by the operator; ignored here."""


CLUSTER_MANIFEST = replace(section_of(_ClusterManifest), name="manifest")
