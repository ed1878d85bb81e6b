"""The scale subresource: a small object with the two numbers that autoscalers know."""

from __future__ import annotations

from tests.operator.fake_api.errors import invalid
from tests.operator.fake_api.kinds import Kind
from tests.operator.fake_api.paths import put_at, value_at
from tests.operator.fake_api.registry import Change
from tests.operator.fake_api.store import Object


def scale_of(kind: Kind, value: Object) -> Object:
    """The Scale object of this object."""
    assert kind.scale
    metadata = value["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status = {"replicas": value_at(value, kind.scale.status) or 0}
    if kind.scale.selector and (selector := value_at(value, kind.scale.selector)):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": value_at(value, kind.scale.spec) or 0},
        "status": status,
    }


def scaled(kind: Kind, change: Change) -> Change:
    """A change of the Scale object as a change of the object itself."""

    def apply(value: Object) -> Object:
        assert kind.scale
        new = change(scale_of(kind, value))
        replicas = new.get("spec", {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            why = f"Invalid value: {replicas}: must be greater than or equal to 0"
            raise invalid(kind, value["metadata"]["name"], [("spec.replicas", why)])
        version = new.get("metadata", {}).get("resourceVersion")
        if version:
            value["metadata"]["resourceVersion"] = version
        put_at(value, kind.scale.spec, replicas)
        return value

    return apply
