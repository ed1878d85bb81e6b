"""Jobs of the case files in the shape of our manifests. Translation only: nothing is checked here.

* `onyx/batch-fn?` becomes `batchFn`: the section's namespace and the question mark fall away.
* Keys of other namespaces, or of none, carry parameters: they go under `options`.
* A keyword that names a function (`my.ns/some-fn`) becomes `my.ns:some_fn`; what is built in
  (`onyx.triggers/timer`) becomes its short name. `language: clojure` says what needs no saying.
* A keyword becomes text. A *string* where a keyword is wanted is a value of the wrong type: it
  stays the tagged mapping that it is, since YAML has only one kind of text. Where Onyx takes
  strings (doc, keys of segments, parameters) it becomes text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onyx.model.names import yaml_key

SECTIONS = {
    "catalog": "onyx",
    "flow-conditions": "flow",
    "lifecycles": "lifecycle",
    "windows": "window",
    "triggers": "trigger",
}
_BUILT_IN = {
    "onyx.task-scheduler", "onyx.triggers", "onyx.refinements", "onyx.windowing.aggregation",
}  # fmt: skip
_FUNCTIONS = {
    "fn", "plugin", "group-by-fn", "calls", "post-transform", "on", "refinement", "sync", "emit",
    "pred", "assign-watermark-fn", "aggregation",
}  # fmt: skip
_TEXTS = {
    "doc", "group-by-key", "window-key", "uniqueness-key", "session-key", "init", "metadata",
}  # fmt: skip


def manifest(job: Mapping[str, Any]) -> dict[str, Any]:
    """The whole manifest of a job."""
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "case"},
        "spec": spec(job),
    }


def spec(job: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a job, or of a part of one."""
    return {camel(key.replace("/", "-")): _section(key, value) for key, value in job.items()}


def entry(section: str, value: Any) -> Any:
    """One entry of a section, named as in the case files (`flow-conditions`)."""
    if not isinstance(value, dict) or "$str" in value:
        return value
    written: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for key, each in value.items():
        namespace, _, name = key.rpartition("/")
        if namespace != SECTIONS[section]:
            options[key] = text(each)
        elif (name, each) == ("language", "clojure"):
            continue
        else:
            written[camel("type" if name == "on" else name)] = _value(name, each)
    return {**written, "options": options} if options else written


def camel(key: str) -> str:
    """`batch-fn?` as `batchFn`."""
    return yaml_key(key.removesuffix("?").replace("-", "_"))


def function(name: Any) -> Any:
    """The name of a function, or the short name of something built in."""
    if not isinstance(name, str) or "/" not in name:
        return name
    namespace, _, short = name.rpartition("/")
    if namespace in _BUILT_IN:
        return short
    return f"{namespace}:{short}".replace("-", "_")


def text(value: Any) -> Any:
    """A value in which strings are as good as keywords."""
    if isinstance(value, dict):
        return (
            value["$str"]
            if set(value) == {"$str"}
            else {key: text(each) for key, each in value.items()}
        )
    return [text(each) for each in value] if isinstance(value, list) else value


def _section(key: str, value: Any) -> Any:
    if key in SECTIONS and isinstance(value, list):
        return [entry(key, each) for each in value]
    if key == "task-scheduler":
        return function(value)
    return text(value) if key in _TEXTS else value


def _value(name: str, value: Any) -> Any:
    if name == "predicate":
        return _predicate(value)
    if name in _TEXTS:
        return text(value)
    if name not in _FUNCTIONS:
        return value
    return [function(value[0]), *text(value[1:])] if isinstance(value, list) else function(value)


def _predicate(value: Any) -> Any:
    if not isinstance(value, list) or not value:
        return function(value)
    if value[0] in ("and", "or", "not"):
        return [value[0], *(_predicate(each) for each in value[1:])]
    return [function(value[0]), *value[1:]]
