"""What all handlers share: settings, the edge to the API server, metrics, liveness."""

from __future__ import annotations

from dataclasses import dataclass

from onyx_operator.kube import Kube
from onyx_operator.liveness import Liveness
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator process. `kube` belongs to the event loop that the handlers run on."""

    settings: OperatorSettings
    kube: Kube
    metrics: OperatorMetrics
    liveness: Liveness
