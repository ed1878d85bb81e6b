"""The pages under docs/reference: one for each section of a job, one for each nested object.

The entries of a job's sections have many keys with long texts: a table of all, then a part for each
key. What is nested (a declaration, a cluster) has many small sections: a table for each, by path.
"""

from __future__ import annotations

from onyx.model.cluster import CLUSTER
from onyx.model.keys.key import Key
from onyx.model.keys.section import Section, SectionEntries, SectionEntry, shown_default
from onyx.model.manifest import API_VERSION, CLUSTER_KIND, DECLARATION, JOB_KIND, SECTIONS, SPEC

_PAGES = {
    "spec": "job",
    "catalog": "catalog",
    "flowConditions": "flow-conditions",
    "lifecycles": "lifecycles",
    "windows": "windows",
    "triggers": "triggers",
    "upgrade": "upgrade",
    "spark": "spark",
    "join": "table-join",
    "left": "join-side",
    "right": "join-side",
    "within": "within",
}
"""Pages of a job, by the key under `spec` that they describe."""
_HEAD = "Generated from `worker/onyx/model` by `python -m onyx.model.generate`."
_TABLE = "| key | value | default | meaning |\n|---|---|---|---|\n"
_JOB = f"""
A job is a file with the keys of this page under `spec`. Beside it stand `apiVersion:
{API_VERSION}`, `kind: {JOB_KIND}` and the name of the job under `metadata.name` (lower case
letters, digits and `-`), which only Kubernetes asks for: by default the name is that of the file.
On Kubernetes, the keys of its [declaration](declaration.md) say how the operator runs it.
`onyx validate --explain` prints a job with all that it leaves out.
"""
_CLUSTER = f"""A cluster is a pool of workers that run jobs; the operator keeps it running. It is an
object with `apiVersion: {API_VERSION}`, `kind: {CLUSTER_KIND}`, a name (lower case letters, digits
and `-`, at most 45, first a letter), and the keys of this page under `spec`.
[How to use it](../operations/clusters.md)
"""
_ON_SPARK = "../guide/spark-jobs.md#a-whole-job-on-spark"
_ORIGIN = """
`Onyx` is the corresponding key of the original Onyx, with the versions that have it.
"""


def pages() -> dict[str, str]:
    """The text of every page by its file name."""
    upgrade = SPEC.by_yaml["upgrade"].kind
    spark = SPEC.by_yaml["spark"].kind
    assert isinstance(upgrade, SectionEntry)
    assert isinstance(spark, SectionEntry)
    guide = "It stands under `spec.upgrade`; see [upgrading a job](../guide/upgrading.md)."
    return {
        **{f"{_PAGES[name]}.md": _page(name, section) for name, section in SECTIONS.items()},
        "declaration.md": _nested_page(
            "Declaration", f"{DECLARATION.doc} They stand under `spec` too.", "spec", DECLARATION
        ),
        "upgrade.md": _nested_page(
            "Upgrade", f"{upgrade.section.doc} {guide}", "spec.upgrade", upgrade.section
        ),
        "spark.md": _nested_page(
            "Spark",
            f"{spark.section.doc} It stands under `spec.spark`; see [its guide]({_ON_SPARK}).",
            "spec.spark",
            spark.section,
        ),
        "table-join.md": _of_a_join("Table join", "join"),
        "join-side.md": _of_a_join("Join side", "left", "right"),
        "within.md": _of_a_join("Within", "within"),
        "cluster.md": _nested_page("Cluster", _CLUSTER.strip(), "spec", CLUSTER),
    }


def _of_a_join(title: str, *keys: str) -> str:
    """A page for what stands under keys of the catalog that are about joins."""
    kind = SECTIONS["catalog"].by_yaml[keys[0]].kind
    assert isinstance(kind, SectionEntry)
    under = " or ".join(f"`{key}`" for key in keys)
    where = f"It stands under {under} in an entry of `spec.catalog`"
    doc = f"{kind.section.doc} {where}; see [its guide](../guide/joins.md)."
    return _nested_page(title, doc, f"spec.catalog[].{keys[0]}", kind.section)


def _page(name: str, section: Section) -> str:
    where = "" if section is SPEC else f" Entries of `spec.{name}`."
    title = section.name[0].upper() + section.name[1:]
    parts = [f"# {title}\n\n{_HEAD}\n\n{section.doc}{where}\n"]
    if section is SPEC:
        parts.append(_JOB)
    parts.append("\n| key | value | required | default |\n|---|---|---|---|\n")
    parts.extend(_row(key) for key in section.keys)
    parts.append(_ORIGIN)
    parts.extend(_part(key) for key in section.keys)
    return "".join(parts)


def _row(key: Key) -> str:
    link = f"[`{key.yaml}`](#{key.yaml.lower()})"
    value = key.kind.describe()
    if isinstance(key.kind, SectionEntries):
        value = f"a list: [{key.kind.section.name}]({_PAGES[key.yaml]}.md)"
    elif isinstance(key.kind, SectionEntry):
        value = f"a mapping: [{key.kind.section.name}]({_PAGES[key.yaml]}.md)"
    needed = key.required_for and not key.filled
    required = f"for type {', '.join(key.required_for)}" if needed else ""
    required += "".join(f", or `{other}`" for other in key.unless)
    return f"| {link} | {value} | {'yes' if key.is_mandatory else required} | {_default(key)} |\n"


def _part(key: Key) -> str:
    lines = [f"\n## {key.yaml}\n\n{key.doc}\n"]
    if key.allowed_for:
        lines.append(f"\nOnly for type {', '.join(key.allowed_for)}.\n")
    if key.restriction:
        lines.append(f"\n{key.restriction}\n")
    if key.origin:
        era = "" if key.era == "both" else f" ({key.era})"
        lines.append(f"\nOnyx: `{key.origin}`{era}\n")
    return "".join(lines)


def _nested_page(title: str, doc: str, path: str, section: Section) -> str:
    rows = "".join(_nested_row(path, key) for key in section.keys)
    head = f"# {title}\n\n{_HEAD}\n\n{doc}\n\n## {path}\n\n{_TABLE}{rows}"
    return head + "".join(_nested_tables(path, section))


def _nested_tables(path: str, section: Section) -> list[str]:
    """The tables of all sections within this one, each under its path."""
    parts = []
    for key in section.keys:
        if isinstance(key.kind, SectionEntry | SectionEntries):
            inner = f"{path}.{key.yaml}" + ("[]" if isinstance(key.kind, SectionEntries) else "")
            rows = "".join(_nested_row(inner, each) for each in key.kind.section.keys)
            parts.append(f"\n## {inner}\n\n{key.kind.section.doc}\n\n{_TABLE}{rows}")
            parts += _nested_tables(inner, key.kind.section)
    return parts


def _nested_row(path: str, key: Key) -> str:
    value = key.kind.describe()
    if isinstance(key.kind, SectionEntry | SectionEntries):
        anchor = f"{path}{key.yaml}".replace(".", "").replace("[]", "").lower()
        value = f"[{key.kind.section.name}](#{anchor})"
        value = f"a list: {value}" if isinstance(key.kind, SectionEntries) else value
    default = "required" if key.is_mandatory else _default(key)
    return f"| `{key.yaml}` | {value} | {default} | {f'{key.doc} {key.restriction}'.strip()} |\n"


def _default(key: Key) -> str:
    if key.filled:
        return key.filled
    shown = shown_default(key.default)
    return f"`{shown}`" if shown else ""
