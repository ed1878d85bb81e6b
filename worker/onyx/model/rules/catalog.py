"""Rules of the catalog."""

from __future__ import annotations

from onyx.model import names, plugins
from onyx.model.keys.section import Draft
from onyx.model.locations import HINT, carries_credentials
from onyx.model.report import Report, at, listed, nearest, show
from onyx.model.rules.looking import entries, good, is_grouped

"""The default of an input without the key."""


def check_path(draft: Draft, path: str, report: Report) -> None:
    """No credentials stand in a path. The message does not show the path itself."""
    options = good(draft, "options")
    paths = options.get("path") if options else None
    for found in paths if isinstance(paths, list | tuple) else (paths,):
        if isinstance(found, str) and carries_credentials(found):
            report.add(at(at(path, "options"), "path"), "is a URL with credentials in it", HINT)


def check_peers(draft: Draft, path: str, report: Report) -> None:
    """minPeers, maxPeers and nPeers fit together."""
    low, high = good(draft, "min_peers"), good(draft, "max_peers")
    if "n_peers" in draft and ("min_peers" in draft or "max_peers" in draft):
        report.add(
            at(path, "nPeers"),
            "is given together with minPeers or maxPeers",
            "nPeers sets both: keep it, or keep the others",
        )
    if low is not None and high is not None and low > high:
        report.add(at(path, "minPeers"), f"is {low}, above maxPeers, which is {high}")


def check_grouping(draft: Draft, path: str, report: Report) -> None:
    """Grouping has one key or function, and its peers allow its flux policy."""
    grouped = [key for key in ("group_by_key", "group_by_fn") if key in draft]
    if len(grouped) == 2:
        report.add(at(path, "groupByFn"), "is given together with groupByKey", "keep one of them")
    if not is_grouped(draft) and "flux_policy" in draft:
        report.add(
            at(path, "fluxPolicy"),
            "is given, but the task is not grouped",
            "add groupByKey or groupByFn, or remove it",
        )
    if "on_missing_key" in draft and "group_by_key" not in draft:
        report.add(
            at(path, "onMissingKey"),
            "is given, but the task has no groupByKey",
            "add groupByKey, or remove it",
        )
    _check_policy(draft, path, report)


def _check_policy(draft: Draft, path: str, report: Report) -> None:
    policy = good(draft, "flux_policy")
    if "n_peers" in draft:
        return
    if policy in ("kill", "recover") and "min_peers" not in draft:
        problem = f"is {policy}, which needs minPeers or nPeers"
        report.add(at(path, "fluxPolicy"), problem, "add one")


def check_use(draft: Draft, path: str, report: Report) -> None:
    """Params exist; a built-in plugin is used in the direction that it has."""
    _check_params(draft, path, report)
    plugin, kind = good(draft, "plugin"), good(draft, "type")
    if plugin not in plugins.NAMES:
        return
    able = plugins.BY_TYPE
    if kind in able and plugin not in able[kind]:
        verb = _VERBS[kind]
        report.add(
            at(path, "plugin"), f"{plugin} cannot {verb}", f"for {kind}: {listed(able[kind])}"
        )


_VERBS = {"input": "read", "output": "write", "table": "be read to an end for a table"}
STAGES = ("spark_stage", "spark_sql")
"""Keys that give a task a Spark stage."""
_NOT_WITH_A_STAGE = ("fn", "sql", "params", "batch_fn", "batch_format", "schema", "required")
_NOT_WITH_SQL = ("fn", "params", "batch_fn")


def check_stage(draft: Draft, path: str, report: Report) -> None:
    """A Spark stage is all that its task does."""
    given = [field for field in STAGES if good(draft, field) is not None]
    if not given:
        return
    for field in (*_NOT_WITH_A_STAGE, *(given[:1] if len(given) > 1 else ())):
        if field in draft:
            report.add(
                at(path, names.yaml_key(field)),
                f"is given together with {names.yaml_key(given[-1])}, which is all that the task "
                "does",
                "remove it, or do it in a task before or after this one",
            )


def check_sql(draft: Draft, path: str, report: Report) -> None:
    """A select is all that its task does, and it is over columns."""
    if good(draft, "sql") is None:
        if "sql_timeout" in draft and "sql" not in draft:
            report.add(at(path, "sqlTimeout"), "is given without sql", "remove it, or give sql")
        return
    for field in _NOT_WITH_SQL:
        if field in draft:
            report.add(
                at(path, names.yaml_key(field)),
                "is given together with sql, which is all that the task does",
                "remove it, or do it in a task before or after this one",
            )
    if draft.get("batch_format") == "dicts":
        what = "is dicts, and sql is over columns; segments are converted where they are dicts"
        report.add(at(path, "batchFormat"), what, "remove it")


def check_stages(spec: Draft, path: str, report: Report) -> None:
    """Tasks with a Spark stage account for segments, and have no state but their bundles."""
    windowed = {good(draft, "task") for draft, _ in entries(spec, "windows", path, "windows")}
    for draft, where in entries(spec, "catalog", path, "catalog"):
        given = [field for field in STAGES if good(draft, field) is not None]
        if not given or good(draft, "type") != "function":
            continue
        where = at(where, names.yaml_key(given[0]))
        if good(spec, "guarantee") == "at-most-once":
            hint = "choose at-least-once or exactly-once"
            report.add(where, "is not for guarantee at-most-once, which keeps nothing", hint)
        if good(draft, "name") in windowed:
            hint = "give the windows to a task before or after this one"
            report.add(where, "is not for a task with windows", hint)
        if good(spec, "upgrade") is not None or good(spec, "upgrade_policy") == "KeepState":
            what = "cannot be carried over: bundles that wait for the stage belong to one job"
            report.add(where, what, "submit the job without upgrade and without KeepState")


def check_format(draft: Draft, path: str, report: Report) -> None:
    """Keys about columns are given where there are columns."""
    columns = draft.get("batch_format") == "arrow" or "sql" in draft
    if columns and "sql" not in draft and good(draft, "batch_fn"):
        report.add(
            at(path, "batchFn"),
            "is given together with batchFormat: arrow",
            "a function over columns always takes a whole batch: remove it",
        )
    schema = good(draft, "schema")
    for index, key in enumerate(good(draft, "required") or ()):
        if schema is None or key not in schema:
            where = at(at(path, "required"), index)
            hint = nearest(key, schema or {}) or f"add schema: {{{key}: ...}}"
            report.add(where, f"{show(key)} is not in the schema of the task", hint)


def _check_params(draft: Draft, path: str, report: Report) -> None:
    options = draft.get("options", {})
    if not isinstance(options, dict):
        return
    for index, param in enumerate(good(draft, "params") or ()):
        if param not in options:
            where = at(at(path, "params"), index)
            report.add(where, f"{show(param)} is not a key of options", "add it to options")


def check_watermarks(draft: Draft, path: str, report: Report) -> None:
    """Event time comes from one key, and what is said about it needs it."""
    if good(draft, "when_idle") == "clock" and "idle_timeout" not in draft:
        report.add(
            at(path, "whenIdle"),
            "is clock, but without idleTimeout no partition is ever idle",
            "add idleTimeout, or remove it",
        )
    if "assign_watermark_fn" in draft and "watermark_key" in draft:
        report.add(
            at(path, "watermarkKey"), "is given together with assignWatermarkFn", "keep one of them"
        )
    if "assign_watermark_fn" in draft or "watermark_key" in draft:
        return
    for field in ("allowed_disorder", "idle_timeout", "when_idle"):
        if field in draft:
            report.add(
                at(path, names.yaml_key(field)),
                "is given, but the task assigns no watermarks",
                "add watermarkKey or assignWatermarkFn, or remove it",
            )


def check_drift(spec: Draft, path: str, report: Report) -> None:
    """Inputs can only wait for each other where one says what time its segments have."""
    drafts = [draft for draft, _ in entries(spec, "catalog", path, "catalog")]
    if "max_drift" not in spec or not drafts:
        return
    if not any("assign_watermark_fn" in each or "watermark_key" in each for each in drafts):
        report.add(
            at(path, "maxDrift"),
            "is given, but no input assigns watermarks",
            "give inputs watermarkKey or assignWatermarkFn, or remove it",
        )


def check_names(spec: Draft, path: str, report: Report) -> None:
    """No two tasks have the same name."""
    seen: dict[str, str] = {}
    for draft, where in entries(spec, "catalog", path, "catalog"):
        name = good(draft, "name")
        if name in seen:
            report.add(at(where, "name"), f"{show(name)} is also the name of {seen[name]}")
        elif name is not None:
            seen[name] = where


def check_percentages(spec: Draft, path: str, report: Report) -> None:
    """Under the percentage task scheduler every task has a share; they are no more than the whole,
    and peers are dealt in proportion to them."""
    if good(spec, "task_scheduler") != "percentage":
        return
    drafts = [
        (draft, where)
        for draft, where in entries(spec, "catalog", path, "catalog")
        if good(draft, "type") != "table"
    ]
    missing = [where for draft, where in drafts if "percentage" not in draft]
    for where in missing:
        report.add(
            at(where, "percentage"),
            "is missing, but the task scheduler is percentage: the task would have no peers",
            "give its share of the job's peers, 1 to 99",
        )
    shares = [good(draft, "percentage") for draft, _ in drafts]
    total = sum(share for share in shares if share is not None)
    if total > 100:
        what = f"has percentages that add up to {total}, more than 100"
        report.add(at(path, "catalog"), what)
