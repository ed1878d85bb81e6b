"""Write the table of Spark's settings that `onyx validate` knows them by: from Spark's own jars.

    python -m tests.support.spark.settings

Spark has its settings as objects with a key and a converter, and no type that could be asked for. A
converter that is given nonsense says in its error what it wants.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.spark.session import local_spark

from onyx.model.spark_settings import FILE

NONSENSE = "x"
_DECLARES = re.compile(r"/(config/[^/]+|[A-Za-z]*(Conf|Config|SQLConf|Utils|Options))\$\.class$")
"""Classes that declare settings, when they are loaded."""
_TYPE = re.compile(r"It should be a/an '([^']+)' value")
_ONE_OF = re.compile(r"It should be one of '(.+?)'\. SQLSTATE")
_SHORT = {"boolean": "bool", "int": "int", "long": "int", "double": "number", "decimal": "number"}


def keys(spark: Any) -> set[str]:
    """Of all settings."""
    said = str(_known(spark.sparkContext._jvm).keySet().toString())  # one call, not thousands
    return set(said.strip("[]").split(", "))


def table(spark: Any) -> dict[str, list[str]]:
    """Keys by their type, both sorted."""
    found = defaultdict(list)
    for key, kind in _settings(spark.sparkContext._jvm):
        found[kind].append(key)
    return {kind: sorted(found[kind]) for kind in sorted(found)}


def text(found: dict[str, list[str]]) -> str:
    """As it is in the file."""
    lines = ["# Spark's settings by type: python -m tests.support.spark.settings"]
    for kind, keys in found.items():
        lines += [kind, *(f"  {key}" for key in keys)]
    return "\n".join(lines) + "\n"


def _settings(jvm: Any) -> Iterator[tuple[str, str]]:
    for entry in list(_known(jvm).values()):
        yield entry.key(), _kind(entry.valueConverter())


def _known(jvm: Any) -> Any:
    """All that are declared, by key."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in sorted(_classes()):
        jvm.java.lang.Class.forName(name, True, loader)
    holder = jvm.java.lang.Class.forName("org.apache.spark.internal.config.ConfigEntry$")
    fields = {field.getName(): field for field in holder.getDeclaredFields()}
    fields["knownConfigs"].setAccessible(True)
    return fields["knownConfigs"].get(fields["MODULE$"].get(None))


def _kind(converter: Any) -> str:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        converter.apply(NONSENSE)
    except (Py4JJavaError, PySparkException) as error:
        said = str(error)
    else:
        return "text"
    if (found := _TYPE.search(said)) is not None:
        return _SHORT.get(found[1], found[1].partition(" ")[0])
    if (found := _ONE_OF.search(said)) is not None:
        return "|".join(sorted({each.strip() for each in found[1].split(",")}))
    return "text"


def _classes() -> set[str]:
    import pyspark

    return {
        name.removesuffix(".class").replace("/", ".")
        for jar in (Path(pyspark.__file__).parent / "jars").glob("spark-*.jar")
        for name in zipfile.ZipFile(jar).namelist()
        if _DECLARES.search(name)
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, local_spark(Path(folder)) as session:
        FILE.write_text(text(table(session)), encoding="utf-8")
