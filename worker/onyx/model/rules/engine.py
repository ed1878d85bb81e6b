"""Rules of `spec.engine`: what its choice gives a meaning, and what it takes away.

Keys that only say how peers share the work stay allowed on Spark, so that the same manifest runs on
either engine. What Spark cannot express is found by its compiler, which `onyx.submission` asks.
"""

from __future__ import annotations

from collections.abc import Mapping

from onyx.model import names
from onyx.model.keys.section import Draft
from onyx.model.plugins import may_be_endless
from onyx.model.report import Report, at
from onyx.model.rules.looking import entries, good
from onyx.model.secrets import secrets_in
from onyx.model.spark_settings import malformed

_OF_PEERS = {
    "checkpoint_segments": "each micro-batch and each query is one commit: remove it",
    "segments_per_second_max": "a query reads all that there is, and a micro-batch what has come; "
    "remove it, or run the job on peers",
    "when_idle": "a micro-batch begins when something has come, and a query over bounded inputs "
    "fires all windows at its end; remove it, or run the job on peers",
}
"""Keys whose author relies on what Spark does not do, with what to do about it."""
_BOUNDED = "is not for engine: spark over inputs with an end, whose query is one commit"


def check_settings(spec: Draft, path: str, report: Report) -> None:
    """Spark can read the settings that it gets."""
    section = good(spec, "spark")
    conf = None if section is None else good(section, "spark_conf")
    given = [(at(at(path, "spark"), "sparkConf"), conf)]
    for problem in secrets_in({"sparkConf": conf}) if isinstance(conf, Mapping) else ():
        report.add(at(at(path, "spark"), problem.path), problem.message, problem.hint)
    for draft, where in entries(spec, "catalog", path, "catalog"):
        options = good(draft, "options") or {}
        given.append((at(at(where, "options"), "sparkConf"), options.get("sparkConf")))
    for where, settings in given:
        for problem in malformed(where, settings) if isinstance(settings, Mapping) else ():
            report.add(problem.path, problem.message, problem.hint)


def check_engine(spec: Draft, path: str, report: Report) -> None:
    """A query of Spark does not do what only peers do, and one with an end continues no job."""
    if good(spec, "engine") != "spark":
        return
    for draft, where in entries(spec, "catalog", path, "catalog"):
        for field, hint in _OF_PEERS.items():
            if good(draft, field) not in (None, False):
                report.add(at(where, names.yaml_key(field)), "is not for engine: spark", hint)
        if good(good(draft, "join") or {}, "state") is not None:
            hint = "the fragments of a query run one after the other: run the job on peers"
            report.add(at(at(where, "join"), "state"), "is not for engine: spark", hint)
    if not _may_be_endless(spec):
        if good(spec, "upgrade") is not None:
            hint = "remove it; kill the old job and submit this one, which reads all of its inputs"
            report.add(at(path, "upgrade"), _BOUNDED, hint)
        if good(spec, "upgrade_policy") == "KeepState":
            what = f"KeepState {_BOUNDED}"
            report.add(at(path, "upgradePolicy"), what, "choose another policy")


def _may_be_endless(spec: Draft) -> bool:
    """Whether an input may have no end; one that cannot be read is not blamed here."""
    return None in (good(spec, "catalog") or (None,)) or any(
        good(draft, "type") == "input"
        and may_be_endless(good(draft, "plugin") or "", good(draft, "options") or {})
        for draft, _ in entries(spec, "catalog", "", "catalog")
    )
