"""What is wrong with an object of ours, and what its owner should know: pure, one function a kind.

The same checks as `onyx validate` makes, so that a mistake reads the same wherever it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onyx.errors import ManifestError, Problem
from onyx.model.manifest import CLUSTER_KIND, JOB_KIND
from onyx.model.notices import misread_words, notices
from onyx.model.parsing.cluster import parse_cluster
from onyx.model.parsing.job import parse_declared
from onyx.submission.job_checks import wrong_options, wrong_sql

Object = Mapping[str, Any]


class Verdict(msgspec.Struct, frozen=True):
    """Problems refuse the object; warnings are shown to who applies it."""

    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


_STAYS = Problem(
    "spec.upgrade",
    "applies to each edit while it stands here",
    "take it out when the new version runs; that alone changes nothing",
)


def _job(job: Object) -> Verdict:
    try:
        declared, parsed = parse_declared(job)
    except ManifestError as error:
        return Verdict(error.problems, misread_words(job.get("spec")))
    if parsed is None:
        return Verdict()
    section, keeps_state = parsed.upgrade, declared.upgrade_policy == "KeepState"
    stays = keeps_state and section is not None and (section.tasks or section.windows)
    repeats = (_STAYS,) if stays else ()
    problems = (*wrong_options(parsed), *wrong_sql(parsed))
    warnings = (*misread_words(job.get("spec")), *repeats, *notices(parsed))
    return Verdict(problems, warnings)


def _cluster(cluster: Object) -> Verdict:
    warnings = misread_words(cluster.get("spec"))
    try:
        parsed = parse_cluster(cluster)
    except ManifestError as error:
        return Verdict(error.problems, warnings)
    if parsed.image is not None and not _names_a_version(parsed.image):
        hint = "add a tag, or better a digest"
        what = "names no version, so that workers may differ"
        warnings = (*warnings, Problem("spec.image", what, hint))
    return Verdict(warnings=warnings)


def _names_a_version(image: str) -> bool:
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return bool(digest) or tag not in ("", "latest")


class Rules(msgspec.Struct, frozen=True):
    """How objects of one kind are judged."""

    check: Callable[[Object], Verdict]
    immutable: tuple[str, ...]
    """Keys of the spec that cannot be changed."""


RULES: Mapping[str, Rules] = {
    JOB_KIND: Rules(_job, ("clusterRef",)),
    CLUSTER_KIND: Rules(_cluster, ("tenancyId", "jobScheduler")),
}


def judge(kind: str, body: Object, before: Object | None) -> Verdict:
    """The verdict on an object of a kind of `RULES`; `before`: the object that it replaces."""
    rules = RULES[kind]
    verdict = rules.check(body)
    if before is None:
        return verdict
    old, new = _spec(before), _spec(body)
    changed = tuple(
        Problem(f"spec.{key}", "cannot be changed", "make another object")
        for key in rules.immutable
        if old.get(key) != new.get(key)
    )
    return Verdict((*changed, *verdict.problems), verdict.warnings)


def _spec(body: Object) -> Object:
    spec = body.get("spec")
    return spec if isinstance(spec, Mapping) else {}
