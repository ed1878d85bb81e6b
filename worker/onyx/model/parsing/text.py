"""From text to plain values: a strict reader of YAML (JSON is a subset).

The events of libyaml are used, not its loaders: no tag is ever acted on, an alias is the events of
what it names once more, duplicate keys are seen, and depth and number of values are bounded while
reading, so that aliases of aliases do not expand for long. Scalars follow YAML 1.2; those that YAML
1.1 reads differently (`on`, `no`, `012`, `1:30`, a date) are refused unless quoted, because kubectl
reads the same file by the older rules. `y` and `n`, which are names of fields in many a job, are
text and warned of (`ambiguities`). Rejected: `yaml.safe_load`, which silently keeps the last of two
equal keys and coerces all these.

Aliases become events one by one (`_expanded`), so whoever counts them can stop: an alias of aliases
of aliases costs no more than what was read of it. What is kept is bounded by that too, for a node
is kept once for each anchor around it. An alias that stands for nothing, or for a node that it is
in, is handed on as it is. A value does not remember that it came from an alias; its line is that of
the anchor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml
from msgspec import field
from msgspec.structs import replace

from onyx.errors import Problem
from onyx.model.plain import DEPTH_MAX, MANIFEST_BYTES_MAX, VALUES_MAX
from onyx.model.report import INVALID, ROOT, Report, at, placed, show

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "map", "seq")}
_MISSING, _MERGE = object(), object()

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z")
_WORDS = {"null": None, "Null": None, "NULL": None, "~": None, "": None} | {
    form: word == "true"
    for word in ("true", "false")
    for form in (word, word.title(), word.upper())
}
_ONE_LETTER = {"y": "true", "Y": "true", "n": "false", "N": "false"}
"""What kubectl takes for a boolean, and most readers of YAML, this one too, for text."""
_ENTRY = re.compile(r"spec\.(catalog|windows|lifecycles|flowConditions)\[([0-9]+)\]")
_TASK_KEYS = {"catalog": "name", "windows": "task", "lifecycles": "task", "flowConditions": "from"}
_COERCED = (
    (re.compile(r"(?i:on|off|yes|no)\Z"), "a boolean", "true or false"),
    (re.compile(r"[-+]?0[0-9_]+\Z"), "an octal number", "a number without leading zeros"),
    (re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?\Z"), "a base-60 number", "a plain number"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?\Z"), "a date", "it in quotes"),
    (re.compile(r"[-+]?(0[bBoOxX][0-9a-fA-F_]+|[0-9][0-9_]*_[0-9_.]*)\Z"),
     "a number", "plain digits"),
    (re.compile(r"=\Z"), "a default key", "the key itself"),
)  # fmt: skip
_BEGINS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class _OpenNode(msgspec.Struct):
    """A mapping or list that is being read."""

    value: dict[str, Any] | list[Any]
    path: str
    key: Any = _MISSING
    """Key whose value comes next, in a mapping."""
    first_lines: dict[str, int] = field(default_factory=dict)
    merges: list[Any] = field(default_factory=list)
    """Values of merge keys, with their lines."""
    merged: bool = False
    """It is the value of a merge key, or in it: its keys have the path of the mapping above."""


class _Reader:
    def __init__(self, report: Report) -> None:
        self.report = report
        self.lines: dict[str, int] = {}
        self.stack: list[_OpenNode] = []
        self.root: Any = _MISSING
        self.ambiguous: dict[str, Problem] = {}
        """What is text here and a boolean to kubectl: of each letter the first."""

    def read(self, events: Iterator[Any]) -> bool:
        """Take events until the end. False when going on, or using the part, makes no sense."""
        values = documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.report.add("", "holds more than one document", "one job a file")
                    return False
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                self._merge(self.stack.pop())
            elif isinstance(event, yaml.NodeEvent):
                values += 1
                if values > VALUES_MAX or len(self.stack) > DEPTH_MAX:
                    self._too_big(values)
                    return False
                self._node(event)
        return True

    def _too_big(self, values: int) -> None:
        if values > VALUES_MAX:
            self.report.unreadable("", f"has more than {VALUES_MAX} values")
        else:
            path = self.stack[-1].path
            self.report.unreadable(path, f"is nested more than {DEPTH_MAX} levels deep")

    def _alias(self, event: Any) -> None:
        """Report an alias that stands for nothing."""
        path = self._path(INVALID, event.start_mark.line + 1)
        what = f"is an alias (*{event.anchor}) of nothing"
        self.report.unreadable(path, what, f"write &{event.anchor} at a value above it")

    def _merge(self, ended: _OpenNode) -> None:
        """Take the keys of merge keys into a mapping that is complete: its own keys stand, then
        those of the first merge that has them."""
        for merge, line in ended.merges:
            for each in merge if isinstance(merge, list) else [merge]:
                if isinstance(each, dict):
                    assert isinstance(ended.value, dict), "only mappings have keys"
                    ended.value.update({k: v for k, v in each.items() if k not in ended.value})
                elif each is not INVALID:
                    self.lines[ended.path] = line
                    what = f"merges {show(each)} with <<, which takes mappings"
                    self.report.unreadable(ended.path, what, "write <<: *name, or <<: [*a, *b]")

    def _node(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, line)
            return
        empty: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        merged = self._in_merge
        path = self._path(empty, line)
        self.stack.append(_OpenNode(empty, path, merged=merged))
        self._check_tag(event, path)

    def _scalar(self, event: Any, line: int) -> None:
        coerced = None
        value: Any = event.value
        if not event.style and event.tag is None and self._is_merge_key(event.value):
            self.stack[-1].key = _MERGE
            return
        if not event.style and event.tag is None:
            coerced = next((each for each in _COERCED if each[0].match(value)), None)
            value = value if coerced else _resolve(value)
        path = self._path(value, line)
        self._check_tag(event, path)
        if not event.style and event.tag is None and event.value in _ONE_LETTER:
            self._one_letter(event.value, path, line)
        if coerced:
            self.report.unreadable(
                path,
                f"{show(event.value)} without quotes is {coerced[1]} to other readers of YAML",
                f'write "{event.value[:40]}" in quotes if it is text, else {coerced[2]}',
            )

    def _is_merge_key(self, text: str) -> bool:
        top = self.stack[-1] if self.stack else None
        return (
            text == "<<"
            and top is not None
            and isinstance(top.value, dict)
            and (top.key is _MISSING)
        )

    @property
    def _in_merge(self) -> bool:
        """Whether the next value is that of a merge key, or an item of it."""
        top = self.stack[-1] if self.stack else None
        if top is None:
            return False
        return top.key is _MERGE or (top.merged and isinstance(top.value, list))

    def _one_letter(self, letter: str, path: str, line: int) -> None:
        what = f"{letter} without quotes is text here, but {_ONE_LETTER[letter]} to kubectl"
        found = Problem(path or ROOT, what, f'write "{letter}", everywhere', str(line))
        self.ambiguous.setdefault(letter, found)

    def _check_tag(self, event: Any, path: str) -> None:
        if event.tag is not None and event.tag not in _CORE_TAGS:
            self.report.unreadable(path, f"has the tag {show(event.tag)}", "tags are not supported")

    def _path(self, value: Any, line: int) -> str:
        """Put a value, or a key, where it belongs. Returns its path."""
        if not self.stack:
            self.root = value
            self.lines[""] = line
            return ""
        top = self.stack[-1]
        if isinstance(top.value, list):
            path = top.path if top.merged else at(top.path, len(top.value))
            top.value.append(value)
        elif top.key is _MERGE:
            top.merges.append((value, line))
            top.key = _MISSING
            return top.path
        elif top.key is _MISSING:
            return self._key(top, value, line)
        else:
            path = at(top.path, top.key) if isinstance(top.key, str) else top.path
            if isinstance(top.key, str) and top.key not in top.value:
                top.value[top.key] = value
            top.key = _MISSING
        self.lines.setdefault(path, line)
        return path

    def _key(self, top: _OpenNode, key: Any, line: int) -> str:
        path = at(top.path, key) if isinstance(key, str) else top.path
        top.key = key if isinstance(key, str) else INVALID
        if not isinstance(key, str):
            shown = "a mapping or list" if isinstance(key, (dict, list)) else show(key)
            self.report.add(top.path, f"has the key {shown}, but keys are text", "quote it")
        elif key in top.first_lines:
            first = top.first_lines[key]
            self.report.unreadable(path, f"is given twice, first in line {first}", "keep one")
        else:
            top.first_lines[key] = line
            if top.merged:
                self.lines.setdefault(path, line)
            else:
                self.lines[path] = line
        return path


def _resolve(text: str) -> Any:
    """A plain scalar by the core schema of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        return _integer(text)
    if _FLOAT.match(text):
        return float(text)
    # Python writes infinity and not-a-number without YAML's dot.
    return float(text.replace(".", "")) if _SPECIAL.match(text) else text


def read_text(text: str | bytes, report: Report) -> tuple[Any, dict[str, int]]:
    """The value that `text` holds, INVALID if it has none, and the line of each path in it."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    if len(data) > MANIFEST_BYTES_MAX:
        report.add(
            "",
            f"has {len(data)} bytes, more than {MANIFEST_BYTES_MAX} (1 MiB)",
            "data belongs in files that a task reads, not in the manifest",
        )
        return INVALID, {}
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        report.add("", f"is not UTF-8 text (byte {error.start})")
        return INVALID, {}
    value = _read_json(decoded)
    if value is _MISSING:
        return _read_yaml(decoded, report)
    return value, _read_yaml(decoded, Report())[1]


def kind_of(text: str | bytes) -> object:
    """The `kind` that the text of a manifest says, good or bad; None: it says none."""
    value, _ = read_text(text, Report())
    return value.get("kind") if isinstance(value, dict) else None


def located(problems: Sequence[Problem], text: str | bytes, source: str) -> list[Problem]:
    """Problems that were found in the job of a manifest, with file and line as those of its text
    have them, and with the task that each is of."""
    value, lines = read_text(text, Report())
    found = [replace(each, message=each.message + _task(each.path, value)) for each in problems]
    return placed(found, lines, source)


def _task(path: str, value: Any) -> str:
    """The task that a part of a job is of, to end a message with."""
    match = _ENTRY.match(path)
    if match is None:
        return ""
    section, index = match.groups()
    try:
        task = value["spec"][section][int(index)][_TASK_KEYS[section]]
    except (KeyError, IndexError, TypeError):
        return ""
    return f" [task {task}]" if isinstance(task, str) else ""


def ambiguities(text: str | bytes, source: str) -> list[Problem]:
    """What a manifest that can be read says to kubectl otherwise than here: warnings."""
    decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
    if _read_json(decoded) is not _MISSING:
        return []
    reader = _Reader(Report())
    reader.read(_expanded(yaml.parse(decoded, Loader=_LOADER)))
    return [replace(each, where=f"{source}:{each.where}") for each in reader.ambiguous.values()]


def _read_yaml(text: str, report: Report) -> tuple[Any, dict[str, int]]:
    reader = _Reader(report)
    try:
        whole = reader.read(_expanded(yaml.parse(text, Loader=_LOADER)))
    except yaml.YAMLError as error:
        _syntax_error(error, text, reader, report)
        return INVALID, reader.lines
    if whole and reader.root is _MISSING:
        report.add("", "is empty", "a job begins with spec: (onyx init writes one)")
    return reader.root if whole and reader.root is not _MISSING else INVALID, reader.lines


def _read_json(text: str) -> Any:
    """The value of a JSON object; _MISSING when it is none, or has equal keys.

    YAML does not contain all of JSON (surrogate pairs, control characters, line separators), so
    that what is JSON is read as such, and by the reader of YAML only to number the lines.
    """
    if not text.lstrip().startswith("{"):
        return _MISSING
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_int=_integer)
    except (ValueError, RecursionError):
        return _MISSING


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("equal keys")
    return mapping


def _integer(text: str) -> int:
    """An integer, or a stand-in that is refused later: Python converts no more than 4300 digits."""
    return int(text) if len(text) <= 40 else 10**40


def _syntax_error(error: yaml.YAMLError, text: str, reader: _Reader, report: Report) -> None:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    if mark is None:
        report.add("", f"is not YAML: {problem}")
        return
    reader.lines[""] = mark.line + 1
    line = text.split("\n")[mark.line : mark.line + 1]
    if any("\t" in each[: len(each) - len(each.lstrip())] for each in line):
        what = f"is not YAML: a tab in line {mark.line + 1}"
        report.add("", what, "YAML is indented with spaces")
        return
    report.add("", f"is not YAML: {problem} in line {mark.line + 1}, column {mark.column + 1}")


class _AnchoredNode(msgspec.Struct):
    """A node with an anchor, while it is read."""

    anchor: str
    events: list[Any] = field(default_factory=list)
    depth: int = 0


def _expanded(events: Iterator[Any]) -> Iterator[Any]:
    """The events of a document without aliases that stand for something."""
    known: dict[str, list[Any]] = {}
    reading: list[_AnchoredNode] = []
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            inside = any(each.anchor == event.anchor for each in reading)
            again = known.get(str(event.anchor))
            for each in [event] if inside or again is None else again:
                _keep(each, reading, known)
                yield each
            continue
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            reading.append(_AnchoredNode(event.anchor))
        _keep(event, reading, known)
        yield event


def _keep(event: Any, reading: list[_AnchoredNode], known: dict[str, list[Any]]) -> None:
    for each in reading:
        each.events.append(event)
        each.depth += isinstance(event, _BEGINS) - isinstance(event, _ENDS)
    while reading and reading[-1].depth == 0:
        ended = reading.pop()
        known[ended.anchor] = ended.events
