"""Checks an OnyxCluster against the API server before it is stored: a dry run of all that has pods,
workers, Spark server and executors.

Only a dry run can decide this: what `podTemplate` may contain is Kubernetes' own, and differs from
version to version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from onyx.errors import Problem, Unavailable
from onyx_operator.clusters.resources import ChildObject, trials
from onyx_operator.clusters.spec import ClusterRefusal, as_declared, read_spec, taken
from onyx_operator.context import OperatorProcess
from onyx_operator.kube import KubeError

TRIAL_TIMEOUT_S = 3.0
"""Longest wait for the dry run; whoever applies an object waits for it."""
_NO_UID = "00000000-0000-0000-0000-000000000000"
_INVALID = (400, 422)
"""HTTP codes that are about the object; others are about the caller or the API server."""


async def check(
    operator: OperatorProcess, cluster: Mapping[str, Any]
) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """Problems and warnings of an OnyxCluster that is valid by itself. A dry run that cannot be
    made is a warning."""
    body = {**cluster, "metadata": {"uid": _NO_UID, **cluster["metadata"]}}
    code = {"metadata": {"name": "code"}}  # which files it has changes nothing here
    pool = read_spec(body, code, operator.settings)
    if isinstance(pool, ClusterRefusal):
        return pool.problems, () if pool.problems else (Problem("spec", pool.message),)
    holder = operator.tenancies.holder(body)
    warnings = [Problem("spec.tenancyId", taken(pool, holder).message)] if holder else []
    found = await asyncio.gather(*(_tried(operator, each) for each in trials(pool)))
    warnings += [each for each, wrong in found if each is not None and not wrong]
    return [each for each, wrong in found if each is not None and wrong], warnings


async def _tried(operator: OperatorProcess, child: ChildObject) -> tuple[Problem | None, bool]:
    """What is wrong with the pods of an object, or why nobody knows; whether it is wrong."""
    try:
        async with asyncio.timeout(TRIAL_TIMEOUT_S):
            await operator.kube.apply(child.resource, child.body, dry_run=True)
    except KubeError as error:
        if error.status in _INVALID:
            said = as_declared(str(error), child.pods_key)
            return Problem(_key(child), f"Kubernetes refuses it: {said}"), True
        return _untried(child, str(error)), False
    except (Unavailable, TimeoutError) as error:
        return _untried(child, str(error) or "it does not answer"), False
    return None, False


def _key(child: ChildObject) -> str:
    return child.pods_key or "spec.networkPolicy"


def _untried(child: ChildObject, why: str) -> Problem:
    message = f"could not be tried, because of the API server: {why}"
    return Problem(_key(child), message, "kubectl describe oc says whether it works")
