"""From an OnyxCluster to a value: all problems at once, or a frozen cluster.

The same steps as for a job (`parse`), with the table and the rules of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onyx.model.cluster import CLUSTER, CLUSTER_MANIFEST, Cluster
from onyx.model.keys.section import Draft
from onyx.model.names import is_cluster_name
from onyx.model.parsing.drafts import NameRule, draft_of, read_name
from onyx.model.parsing.text_drafts import draft_of_text
from onyx.model.report import Report
from onyx.model.rules.cluster import check_cluster
from onyx.model.rules.looking import good

_NAMES = NameRule(
    "cluster",
    is_cluster_name,
    "lower case letters, digits and -, at most 45, first a letter, last a letter or digit",
)


def parse_cluster_manifest(text: str | bytes, source: str = "manifest") -> Cluster:
    """The cluster in the text of a manifest, YAML or JSON.

    Raises:
        ManifestError: with every problem, each with its path, file and line.
    """
    return _build(draft_of_text(text, source, _draft))


def parse_cluster(mapping: Mapping[str, Any]) -> Cluster:
    """The cluster in a manifest that was read already: a Kubernetes object, or a Python dict.

    Raises:
        ManifestError: with every problem, each with its path.
    """
    return _build(draft_of(mapping, _draft))


def _draft(value: Any, report: Report) -> Draft:
    draft = CLUSTER_MANIFEST.read(value, "", report) or {}
    name = read_name(good(draft, "metadata"), _NAMES, report)
    spec = good(draft, "spec")
    if spec is not None:
        check_cluster(spec, "spec", report)
    return {"name": name, "spec": spec}


def _build(draft: Draft) -> Cluster:
    cluster = CLUSTER.build(draft["spec"], name=draft["name"])
    assert isinstance(cluster, Cluster)
    return cluster
