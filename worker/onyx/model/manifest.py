"""The files that people write: objects of Kubernetes, of which two kinds are ours. The keys of
clusters are in `cluster`: what runs jobs needs none of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import field
from msgspec.structs import replace

from onyx.model.declaration import Declaration
from onyx.model.job import EMPTY, Job
from onyx.model.keys.fields import section_of
from onyx.model.keys.section import Section, SectionEntries, SectionEntry

ApiVersion = Literal["onyx.dev/v1beta1", "onyx.dev/v1alpha1"]
"""The version of the keys; then the names under which the same keys stood before, as Kubernetes,
logs and files may still hold them."""
API_VERSION: ApiVersion
API_VERSION, *FORMER_VERSIONS = get_args(ApiVersion)
JOB_KIND = "OnyxJob"
CLUSTER_KIND = "OnyxCluster"

SPEC = section_of(Job)
DECLARATION = section_of(Declaration)

SECTIONS = {"spec": SPEC} | {
    key.yaml: key.kind.section for key in SPEC.keys if isinstance(key.kind, SectionEntries)
}
"""The sections of a job by the key under which their entries stand."""

OBJECT_SPEC = Section(
    SPEC.name,
    SPEC.doc,
    lambda: (*(replace(key, required=False) for key in SPEC.keys), *DECLARATION.keys),
)
"""What stands under `spec`: a job, or a reference to one, and how it is to be run."""


class _JobManifest(msgspec.Struct, frozen=True):
    spec: Annotated[Mapping[str, Any], SectionEntry(OBJECT_SPEC)]
    api_version: ApiVersion = API_VERSION
    kind: Literal["OnyxJob"] = "OnyxJob"
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    status: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Written by the operator; ignored here."""


JOB_MANIFEST = section_of(_JobManifest, "manifest")
