"""Rules of a cluster."""

from __future__ import annotations

from typing import Any

from onyx.errors import SettingsError
from onyx.model.cluster import SET_BY_OPERATOR, SPARK_SET_BY_OPERATOR
from onyx.model.keys.kubernetes import amount_of
from onyx.model.keys.section import Draft
from onyx.model.report import Report, at, nearest
from onyx.model.rules.looking import entries, good
from onyx.settings import from_environment, variables

_OWN_FOLDER = "/tmp"  # noqa: S108 - the name of a mount, not a file
_TAKEN_PATHS = (_OWN_FOLDER, "/etc/onyx", "/opt/onyx")
_STATE = "ONYX_STATE_URL"
_REFERENCES = {
    "configMapRef": ("name", "optional"),
    "secretRef": ("name", "optional"),
    "configMapKeyRef": ("name", "key", "optional"),
    "secretKeyRef": ("name", "key", "optional"),
    "fieldRef": ("apiVersion", "fieldPath"),
    "resourceFieldRef": ("containerName", "divisor", "resource"),
}
"""Where values of variables come from, with the keys that say it. There is no namespace: a pod sees
only what is in its own."""
_NAMED_LISTS = ("containers", "initContainers", "volumes")


def check_cluster(spec: Draft, path: str, report: Report) -> None:
    """Rules that concern several keys of a cluster, or the contents of one."""
    _check_settings(spec, at(path, "settings"), report)
    _check_variables(spec, path, report)
    _check_sources(spec, path, report)
    _check_mount(good(spec, "data"), at(path, "data"), report)
    _check_spark(good(spec, "spark"), at(path, "spark"), report)
    _check_spark_memory(spec, at(path, "sparkMemory"), report)
    _check_policy(good(spec, "network_policy"), at(path, "networkPolicy"), report)
    _check_clients(spec, path, report)
    _check_processes(spec, at(path, "processesPerWorker"), report)
    _check_template(spec, path, "worker", "use spec.serviceAccount.name", report)


def _check_settings(spec: Draft, path: str, report: Report) -> None:
    known = variables()
    for name, value in (good(spec, "settings") or {}).items():
        if name in SET_BY_OPERATOR:
            _taken(name, at(path, name), report)
        elif name not in known:
            hint = nearest(name, known) or "a variable of your own goes under env"
            report.add(at(path, name), "is not a setting of a worker", hint)
        else:
            _check_setting(name, value, at(path, name), report)


def _check_setting(name: str, value: str, path: str, report: Report) -> None:
    try:
        from_environment({name: value})
    except SettingsError as error:
        report.add(path, f"cannot be read: {error}")
    if name == _STATE and f"{value}/".startswith(f"{_OWN_FOLDER}/"):
        report.add(
            path,
            f"is {value}, but each worker has a {_OWN_FOLDER} of its own",
            "name a folder of the volume that spec.data mounts, or s3://bucket/prefix",
        )


def _check_variables(spec: Draft, path: str, report: Report) -> None:
    seen: dict[str, str] = {}
    settings = good(spec, "settings") or {}
    for draft, where in entries(spec, "env", path, "env"):
        name = good(draft, "name")
        if name is None:
            continue
        if name in SET_BY_OPERATOR:
            _taken(name, where, report)
        if name in settings:
            report.add(where, f"{name} is given under settings too", "keep one")
        if name in seen:
            report.add(where, f"{name} is given twice, first at {seen[name]}", "keep one")
        origin = good(draft, "value_from") or {}
        if draft.get("value") and origin:
            report.add(at(where, "valueFrom"), "is given together with value", "keep one of them")
        for key, reference in origin.items():
            _check_reference(key, reference, at(at(where, "valueFrom"), key), report)
        seen.setdefault(name, where)


def _check_spark(draft: Draft | None, path: str, report: Report) -> None:
    for name in (good(draft, "conf") or ()) if draft else ():
        if name in SPARK_SET_BY_OPERATOR:
            key = SPARK_SET_BY_OPERATOR[name]
            hint = f"use spec.spark.{key}" if key else "remove it"
            report.add(at(at(path, "conf"), name), "is set by the operator", hint)
    _check_template(draft, path, "spark", "remove it", report)
    executors = good(draft, "executors") if draft else None
    _check_template(executors, at(path, "executors"), "spark", "remove it", report)


def _check_policy(draft: Draft | None, path: str, report: Report) -> None:
    if draft and good(draft, "egress") is not None and good(draft, "enabled") is False:
        report.add(
            at(path, "egress"), "limits nothing while enabled is false", "remove one of them"
        )


def _check_clients(spec: Draft, path: str, report: Report) -> None:
    """A way in that is closed, or a door in no wall, is meant otherwise."""
    policy = good(spec, "network_policy") or {}
    enabled = good(policy, "enabled") is not False
    listed = good(policy, "clients_from") is not None
    grpc, http = good(spec, "grpc"), good(spec, "http")
    where = at(at(path, "networkPolicy"), "clientsFrom")
    if grpc is not None and enabled and not listed:
        what = "is closed: only workers reach the workers' transport"
        hint = "say in networkPolicy.clientsFrom who may, such as [{podSelector: {}}] for the pods "
        report.add(at(path, "grpc"), what, f"{hint}of this namespace")
    if listed and not enabled:
        report.add(where, "limits nothing while enabled is false", "remove one of them")
    if listed and grpc is None and http is None:
        report.add(
            where, "lets clients in, but workers take no requests", "add http: {} or grpc: {}"
        )


def _check_processes(spec: Draft, path: str, report: Report) -> None:
    processes, peers = good(spec, "processes_per_worker"), good(spec, "peers_per_worker")
    if processes is not None and peers is not None and processes > peers:
        what = (
            f"is {processes}, and a process without a peer does nothing: peersPerWorker is {peers}"
        )
        report.add(path, what, f"raise peersPerWorker to {processes} or more")


def _check_spark_memory(spec: Draft, path: str, report: Report) -> None:
    amount = good(spec, "spark_memory")
    if amount is not None and not amount_of(amount) and good(spec, "spark") is not None:
        what = "is 0, with which workers run no Spark, but spec.spark has a server for their jobs"
        report.add(path, what, "remove it, or give it what Python needs, such as 512Mi")


def _taken(name: str, path: str, report: Report) -> None:
    key = SET_BY_OPERATOR[name]
    report.add(path, f"{name} is set by the operator", f"use spec.{key}" if key else "remove it")


def _check_identity(env: Any, path: str, report: Report) -> None:
    """A template names no identity of a worker, and neither do variables."""
    for index, each in enumerate(env if isinstance(env, list) else ()):
        name = each.get("name") if isinstance(each, dict) else None
        if isinstance(name, str) and name in SET_BY_OPERATOR:
            _taken(name, at(path, index), report)


def _check_sources(spec: Draft, path: str, report: Report) -> None:
    for draft, where in entries(spec, "env_from", path, "envFrom"):
        if bool(draft.get("config_map_ref")) == bool(draft.get("secret_ref")):
            report.add(where, "needs exactly one of configMapRef and secretRef")
        for field, key in (("config_map_ref", "configMapRef"), ("secret_ref", "secretRef")):
            reference = good(draft, field)
            if reference:
                _check_reference(key, reference, at(where, key), report)
    secrets = [good(draft, "name") for draft, _ in entries(spec, "image_pull_secrets", path, "")]
    for index, name in enumerate(secrets):
        if name is not None and name in secrets[:index]:
            report.add(at(at(path, "imagePullSecrets"), index), f"{name} is given twice")


def _check_reference(kind: str, reference: Any, path: str, report: Report) -> None:
    keys = _REFERENCES.get(kind)
    if keys is None:
        hint = nearest(kind, _REFERENCES) or f"known: {', '.join(_REFERENCES)}"
        report.add(path, "is not a source of values", hint)
    elif not isinstance(reference, dict):
        report.add(path, f"must be a mapping with the keys {', '.join(keys)}")
    else:
        for key in reference:
            if key not in keys:
                hint = "what it names is in the cluster's own namespace"
                hint = hint if key == "namespace" else f"known keys: {', '.join(keys)}"
                report.add(at(path, key), f"is not a key of a {kind}", hint)


def _check_mount(data: Draft | None, path: str, report: Report) -> None:
    mount = good(data, "mount_path") if data else None
    if mount is None:
        return
    where = at(path, "mountPath")
    if any(part in (".", "..") for part in mount.split("/")):
        report.add(where, "contains . or ..", "write the resolved path")
    elif any(mount == taken or mount.startswith(f"{taken}/") for taken in _TAKEN_PATHS):
        report.add(where, f"is {mount}, which the operator uses", "choose another, such as /data")


def _check_template(
    owner: Draft | None, path: str, container: str, account_hint: str, report: Report
) -> None:
    """The shape that merging needs; what else a pod may say is for Kubernetes to judge.

    Args:
        owner: what has the key `podTemplate`.
        container: name of ours.
        account_hint: what to do in the place of another service account.
    """
    template = good(owner, "pod_template") if owner else None
    pod = (good(template, "spec") if template else None) or {}
    path = at(at(path, "podTemplate"), "spec")
    for key in _NAMED_LISTS:
        items = pod.get(key)
        if items is None:
            continue
        if not isinstance(items, list):
            report.add(at(path, key), "must be a list")
            continue
        for index, item in enumerate(items):
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                hint = f"our container is called {container}" if key == "containers" else ""
                report.add(at(at(path, key), index), "must be a mapping with a name", hint)
            elif key == "containers" and item["name"] == container:
                _check_identity(item.get("env"), at(at(at(path, key), index), "env"), report)
    if pod.get("serviceAccountName") is not None:
        report.add(at(path, "serviceAccountName"), "is set by the operator", account_hint)
