"""What all handlers share: settings, the edges, metrics, liveness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onyx.log.interface import ClientLog
from onyx.settings import Settings
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
    connect: Callable[[Settings], ClientLog]
    """Opens the log of a cluster. Blocks; raises Unavailable when no ZooKeeper answers."""
