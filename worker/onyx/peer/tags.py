"""Tags of a worker's peers: those of its settings, and `spark` where Spark can run.

PySpark is looked for, not imported: the import costs a second and 60 MB. Java is not looked for:
PySpark's child finds one, or the package brings it.
"""

from __future__ import annotations

from importlib.util import find_spec

from onyx.replica.spec import SPARK_TAG
from onyx.settings import Settings


def tags_of(settings: Settings) -> tuple[str, ...]:
    """The tags that the peers of this worker offer, each once."""
    able = settings.spark and find_spec("pyspark") is not None
    return tuple(dict.fromkeys((*settings.tags, *((SPARK_TAG,) if able else ()))))
