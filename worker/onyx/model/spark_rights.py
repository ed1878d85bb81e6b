"""Which settings of Spark a job may set: those that tune it.

A list of what is allowed, and not of what is not: Spark has a thousand settings, among them options
of the JVM, class paths, jars and programs that it starts, and each release brings more. All else is
the business of who starts the worker: `spark-defaults.conf`, or patterns in
`ONYX_SPARK_CONF_ALLOWED` for what jobs may set besides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from onyx.errors import Problem
from onyx.model.report import at

_TUNES = re.compile(
    r"spark\.((memory|reducer|speculation|locality|dynamicAllocation|excludeOnFailure|broadcast)"
    r"\..+|speculation|rdd\.compress|cores\.max|default\.parallelism|app\.name|network\.timeout|log\.level"
    r"|(driver|executor)\.(memory|memoryOverhead|memoryOverheadFactor|minMemoryOverhead|cores)"
    r"|driver\.(maxResultSize|host|bindAddress|port)|(driver\.)?blockManager\.port"
    r"|executor\.(instances|heartbeatInterval|pyspark\.memory)|python\.worker\.(reuse|memory)"
    r"|task\.(cpus|maxFailures)|stage\.maxConsecutiveAttempts"
    r"|scheduler\.(mode|(min|max)Registered\w+)|rpc\.(message\.maxSize|askTimeout|lookupTimeout)"
    r"|kryoserializer\.buffer(\.max)?|io\.compression\.\w+\.(blockSize|level|bufferSize)"
    r"|files\.(maxPartitionBytes|openCostInBytes)|cleaner\.periodicGC\.interval"
    r"|ui\.(enabled|port|showConsoleProgress|retained\w+)"
    r"|hadoop\.fs\.s3a\.(bucket\.[a-z0-9.-]+\.)?(endpoint(\.region)?|path\.style\.access"
    r"|connection\.(maximum|timeout|establish\.timeout|request\.timeout|ssl\.enabled)"
    r"|multipart\.(size|threshold)|block\.size|threads\.max|max\.total\.tasks|attempts\.maximum"
    r"|retry\.(limit|interval)|readahead\.range))"
)
_MOSTLY_TUNES = ("spark.sql.", "spark.shuffle.")
_CARRIES_CODE = re.compile(
    r"class|jars|extensions|listener|plugin|provider|serializer|maven|reflect|transpiler|committer"
    r"|commitprotocol|catalogimplementation|\.catalog\.|\.hive\.|\.udt\.|pyspark\.python|redaction"
    r"|warehouse|checkpointlocation|disallowed|schemaurl|jdbc|thriftserver|variable\.substitute"
    r"|artifact|shuffle\.(manager|service|mapstatus)",
    re.IGNORECASE,
)
"""Parts of names below these that name classes, jars, programs or folders, or are guards."""
_REFERENCE = "${"
"""Spark replaces `${env:NAME}` in a value by a variable of its process."""
CHANNEL = "ONYX_SPARK_CONF_ALLOWED"


def may_set(key: str, allowed: tuple[str, ...] = ()) -> bool:
    """Whether a job may set a setting of Spark. `allowed`: patterns of the worker's owner."""
    if any(fnmatchcase(key, pattern) for pattern in allowed):
        return True
    if key.startswith(_MOSTLY_TUNES):
        return _CARRIES_CODE.search(key) is None
    return _TUNES.fullmatch(key) is not None


def refused_settings(
    path: str, settings: Mapping[str, str], allowed: tuple[str, ...] = ()
) -> Iterator[Problem]:
    """Settings that a job may not set, or not with such a value, at their keys below `path`."""
    for key, value in settings.items():
        if not may_set(key, allowed):
            what = "may not be set by a job: it is none of those that only tune Spark"
            hint = (
                f"who starts the workers sets it in spark-defaults.conf, or lists it in {CHANNEL}"
            )
            yield Problem(at(path, key), what, hint)
        elif _REFERENCE in str(value):
            what = f"has {_REFERENCE} in its value, which Spark would replace"
            yield Problem(at(path, key), what, "write the value itself")
