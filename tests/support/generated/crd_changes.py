"""Is a CRD's new schema good for everything that the old one was good for?

`breaking(old, new)` names each change that could refuse, prune or mean otherwise what users have
stored or what their files say. Pure; conservative where it cannot know: another pattern (unless it
only has more alternatives), another default, a new rule count as breaking, and a default that only
the parser knows any more unless the description names it.

`tests/support/generated/crds_released/` holds the CRDs of the last release, with which tests
compare those of now. `python -m tests.support.generated.crd_changes` renews them: a step of each
release, after its tests.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onyx.model.keys.section import shown_default

RELEASED = Path(__file__).parent / "crds_released"
CURRENT = Path(__file__).parents[3] / "crds"
Schema = Mapping[str, Any]
_LOWER = ("minimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "maxLength", "maxItems", "maxProperties")
_SAME = ("pattern", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "exclusiveMinimum")
_FOR_TYPES = re.compile(r"!has\(self\.(?P<key>\w+)\) \|\| self\.type in \[(?P<types>[^]]*)\]")
"""The rule that says for which types of an entry a key may be given."""
_INSTEAD = re.compile(r" \|\| has\(self\.\w+\)$")
"""The end of a rule that is met by one more key."""
_NEEDED_FOR = re.compile(r"!\(self\.type in \[(?P<types>[^]]*)\]\)")
"""The beginning of a rule that says for which types of an entry a key is needed."""
_WITHOUT_TYPE = "!has(self.type) || "
"""The beginning of a rule that says nothing about entries whose type the parser finds."""
_JOBS = ["has(self.workflow) != has(self.jobRef)", "has(self.workflow) == has(self.catalog)"]
_FOLLOWS = {
    "has(self.catalog) != has(self.jobRef)": _JOBS,
    "!has(self.workflow) || has(self.catalog)": _JOBS,
}
"""Rules that follow from others which were there."""
_OPEN = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "nullable")


def breaking(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Breaking changes from one CRD to another, each with its path; none: all is additive."""
    was, now = old["spec"], new["spec"]
    found = [
        f"{key}: was {was[key]!r}, is {now[key]!r}"
        for key in ("group", "scope")
        if was[key] != now[key]
    ]
    found += [
        f"names.{key}: was {was['names'].get(key)!r}, is {now['names'].get(key)!r}"
        for key in ("plural", "singular", "kind", "listKind")
        if was["names"].get(key) != now["names"].get(key)
    ]
    for key in ("shortNames", "categories"):
        gone = set(was["names"].get(key, ())) - set(now["names"].get(key, ()))
        found += [f"names.{key}: {each!r} is gone" for each in sorted(gone)]
    served = {each["name"]: each for each in now["versions"] if each["served"]}
    for version in was["versions"]:
        if version["served"] and version["name"] not in served:
            found.append(f"version {version['name']} is not served any more")
        elif version["served"]:
            found += _version(version, served[version["name"]])
    return found


def _version(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name, paths in old.get("subresources", {}).items():
        if new.get("subresources", {}).get(name) != paths:
            yield f"subresource {name} has changed or is gone"
    yield from _schema(old["schema"]["openAPIV3Schema"], new["schema"]["openAPIV3Schema"], "")


def _schema(old: Schema, new: Schema, path: str) -> Iterator[str]:
    at = path or "<root>"
    yield from (f"{at}: {text}" for text in _node(old, new))
    if new.get(_OPEN[0]) and "type" not in new:
        return  # it takes anything, and so all that was below
    for name, inner in old.get("properties", {}).items():
        below = f"{path}.{name}".lstrip(".")
        if name in new.get("properties", {}):
            yield from _schema(inner, new["properties"][name], below)
        elif not new.get(_OPEN[0]):
            yield f"{below}: is gone"
    if isinstance(old.get("items"), Mapping):
        yield from _schema(old["items"], new.get("items", {}), f"{path}[]")
    if isinstance(old.get("additionalProperties"), Mapping):
        values = new.get("additionalProperties")
        if isinstance(values, Mapping):
            yield from _schema(old["additionalProperties"], values, f"{path}.*".lstrip("."))
        elif not new.get(_OPEN[0]):
            yield f"{at}: takes no keys of one's own any more"


def _node(old: Schema, new: Schema) -> Iterator[str]:
    """Breaking changes of one node, without those below it."""
    if old.get("type") != new.get("type") and "type" in new:
        yield f"type: was {old.get('type')}, is {new['type']}"
    for key in _OPEN:
        if old.get(key) and not new.get(key):
            yield f"{key} is gone"
    for key in _LOWER:
        if key in new and new[key] > old.get(key, float("-inf")):
            yield f"{key}: was {old.get(key, 'open')}, is {new[key]}"
    for key in _UPPER:
        if key in new and new[key] < old.get(key, float("inf")):
            yield f"{key}: was {old.get(key, 'open')}, is {new[key]}"
    for key in _SAME:
        if key in new and old.get(key) != new[key] and not _allows_more(key, old, new):
            yield f"{key}: was {old.get(key, 'open')}, is {new[key]}"
    if "default" in old and old["default"] != new.get("default"):
        # Left to the parser, it still is what a missing key means; the description says so.
        reported = f"Default: {shown_default(old['default'])}."
        if "default" in new or reported not in new.get("description", ""):
            yield f"default: was {old['default']!r}, is {new.get('default')!r}"
    yield from _choices(old, new)
    for key in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
        if "default" not in new.get("properties", {}).get(key, {}):
            yield f"{key} is required now"
    for rule in new.get("x-kubernetes-validations", ()):
        if not _is_harmless(rule["rule"], old):
            yield f"new rule: {rule['rule']}"


def _allows_more(key: str, old: Schema, new: Schema) -> bool:
    """Whether a pattern is a list of alternatives that has all those that it had."""
    if key != "pattern" or key not in old:
        return False
    before = _alternatives(old[key])
    return bool(before) and before <= _alternatives(new[key])


def _alternatives(pattern: str) -> set[str]:
    """Those of `^(one|two|...)$`; none of a pattern of another form."""
    if not (pattern.startswith("^(") and pattern.endswith(")$")):
        return set()
    found, depth = [""], 0
    for part in _PARTS.findall(pattern[2:-2]):
        depth += (part == "(") - (part == ")")
        if depth < 0:  # the first parenthesis is not closed by the last one
            return set()
        if part == "|" and depth == 0:
            found.append("")
        else:
            found[-1] += part
    return set(found)


_PARTS = re.compile(r"\\.|\[(?:\\.|[^]\\])*\]|.", re.DOTALL)
"""Of a pattern: an escape, a class of characters, or a character."""


def _is_harmless(rule: str, old: Schema) -> bool:
    """Whether a rule was there, also without types that are new or with keys that may be given
    instead; is about types or a key that were not there, or allows a key for more types."""
    known = [each["rule"] for each in old.get("x-kubernetes-validations", ())]
    rule = rule.removeprefix(_WITHOUT_TYPE)
    if all(each in known for each in _FOLLOWS.get(rule, [""])):
        return True
    shorter = _of_old_types(rule, old)
    while shorter not in known and _INSTEAD.search(shorter):
        shorter = _INSTEAD.sub("", shorter)
    if shorter in known:
        return True
    about = _FOR_TYPES.fullmatch(rule)
    if about is None:
        return shorter.startswith("!(self.type in [])")
    before = [each for text in known if (each := _FOR_TYPES.fullmatch(text))]
    types = [_types(each) for each in before if each["key"] == about["key"]]
    is_new_key = about["key"] not in old.get("properties", {})
    return is_new_key or any(each <= _types(about) for each in types)


def _of_old_types(rule: str, old: Schema) -> str:
    """A rule without the types for which it needs a key that no entry could have."""
    needed = _NEEDED_FOR.match(rule)
    choices = old.get("properties", {}).get("type", {}).get("enum")
    if needed is None or choices is None:
        return rule
    types = [each for each in re.findall(r"'[^']+'", needed["types"]) if each[1:-1] in choices]
    return f"!(self.type in [{', '.join(types)}]){rule[needed.end() :]}"


def _types(rule: re.Match[str]) -> set[str]:
    return set(re.findall(r"'([^']+)'", rule["types"]))


def _choices(old: Schema, new: Schema) -> Iterator[str]:
    if "enum" not in new:
        return
    if "enum" not in old:
        yield f"only {new['enum']} now"
    for value in old.get("enum", ()):
        if value not in new["enum"]:
            yield f"{value!r} is no choice any more"


def main() -> int:
    for file in sorted(CURRENT.glob("*.yaml")):
        shutil.copy(file, RELEASED / file.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
