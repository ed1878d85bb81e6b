"""A job as a value, a module for each of its sections; every field is a key of the manifest."""

from onyx.model.job.catalog import CatalogEntry
from onyx.model.job.flow_conditions import FlowCondition, Predicate
from onyx.model.job.job import DEPTH_MAX, Job
from onyx.model.job.joins import LookupJoin
from onyx.model.job.lifecycles import Lifecycle
from onyx.model.job.spark import Spark
from onyx.model.job.stream_joins import JoinSide, Within
from onyx.model.job.triggers import Trigger
from onyx.model.job.types import Targets
from onyx.model.job.upgrade import Upgrade
from onyx.model.job.windows import Window
from onyx.model.keys.key import EMPTY

__all__ = [
    "DEPTH_MAX",
    "EMPTY",
    "CatalogEntry",
    "FlowCondition",
    "Job",
    "JoinSide",
    "Lifecycle",
    "LookupJoin",
    "Predicate",
    "Spark",
    "Targets",
    "Trigger",
    "Upgrade",
    "Window",
    "Within",
]
