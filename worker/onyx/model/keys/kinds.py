"""Kinds of single values: one class a kind, which reads, describes and gives the JSON schema of it.

Kinds made of others are in `compound`. Reading, the CRD and the reference pages are three views of
the same statement, so each kind makes it once. A kind looks at one value only; rules between keys
are in `rules/`.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from onyx.base import path_names
from onyx.model import column_types, names
from onyx.model.plain import INTEGER_MAX, INTEGER_MIN
from onyx.model.report import INVALID, Report, at, listed, nearest, show

Schema = dict[str, Any]

TEXT_CHARACTERS_MAX = 4_096
PLACE = rf"(s3://[^/\s]+/|/)([^/]+/)*({path_names.PATH_NAME})"
_PLACE = re.compile(PLACE + r"\Z")
JOB_ID = "jobId"
"""Key of a job's own metadata that holds its id."""
ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}


class KeyKind(msgspec.Struct, frozen=True):
    """What a value must be. A subclass says when a value fits, or reads it in its own way."""

    def read(self, value: Any, path: str, report: Report) -> Any:
        """The value as the job holds it, or INVALID after reporting why not.

        Args:
            value: plain data; INVALID if it has been reported already.
            path: where it stands in the manifest.
        """
        return self._read(value, path, report)

    def schema(self) -> Schema:
        """Structural JSON schema, as a CRD takes it."""
        return self._schema()

    def describe(self) -> str:
        """What a value must be, in a few words: for messages and the reference."""
        return self._describe()

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if self._fits(value):
            return value
        return refuse(self, value, path, report, self._hint(value))

    def _fits(self, value: Any) -> bool:
        raise NotImplementedError

    def _hint(self, value: Any) -> str:
        return ""

    def _schema(self) -> Schema:
        raise NotImplementedError

    def _describe(self) -> str:
        raise NotImplementedError


def refuse(kind: KeyKind, value: Any, path: str, report: Report, hint: str = "") -> Any:
    """Report that `value` is not of `kind`."""
    if isinstance(value, bool) and kind.schema().get("type") == "string":
        hint = "to kubectl y, n, yes, no, on and off without quotes are booleans: quote them"
    if value is not INVALID:
        report.add(path, f"is {show(value)}, but must be {kind.describe()}", hint)
    return INVALID


class Text(KeyKind, frozen=True):
    """Any text."""

    empty: bool = False
    characters_max: int = TEXT_CHARACTERS_MAX

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, str) or (not value and not self.empty):
            return refuse(self, value, path, report)
        if len(value) > self.characters_max:
            report.add(path, f"has {len(value)} characters, more than {self.characters_max}")
            return INVALID
        return value

    def _schema(self) -> Schema:
        least = {} if self.empty else {"minLength": 1}
        return {"type": "string", **least, "maxLength": self.characters_max}

    def _describe(self) -> str:
        return "text"


class PartName(KeyKind, frozen=True):
    """Name of a task, a window or a trigger."""

    of: str
    words: tuple[str, ...] = ()
    """Words that may stand in place of a name (`all`)."""

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, str) or not names.is_name(value):
            hint = "letters, digits, - and _, at most 63, first and last a letter or digit"
            return refuse(self, value, path, report, hint)
        if value in names.RESERVED_NAMES and value not in self.words:
            report.add(path, f"{show(value)} is a reserved word, not {self.describe()}")
            return INVALID
        return value

    def _schema(self) -> Schema:
        return {"type": "string", "maxLength": 63, "pattern": f"^{names.NAME}$"}

    def _describe(self) -> str:
        return f"the name of a {self.of}" + "".join(f" or {word}" for word in self.words)


class PathName(KeyKind, frozen=True):
    """What becomes a part of paths in ZooKeeper and in stores."""

    of: str

    def _fits(self, value: Any) -> bool:
        return path_names.is_path_name(value)

    def _hint(self, value: Any) -> str:
        return path_names.ALPHABET

    def _schema(self) -> Schema:
        characters_max = path_names.CHARACTERS_MAX
        pattern = f"^({path_names.PATH_NAME})$"
        return {"type": "string", "maxLength": characters_max, "pattern": pattern}

    def _describe(self) -> str:
        return f"{self.of}, as text"


class PlaceOf(KeyKind, frozen=True):
    """A folder or prefix with a name, which workers see."""

    of: str

    def _fits(self, value: Any) -> bool:
        fits = isinstance(value, str) and len(value) <= TEXT_CHARACTERS_MAX
        return fits and _PLACE.match(value) is not None

    def _hint(self, value: Any) -> str:
        return f"its last part is its name: {path_names.ALPHABET}"

    def _schema(self) -> Schema:
        return {"type": "string", "maxLength": TEXT_CHARACTERS_MAX, "pattern": f"^{PLACE}$"}

    def _describe(self) -> str:
        return f"the place of {self.of}, /folder/NAME or s3://bucket/NAME"


class Function(KeyKind, frozen=True):
    """A registered function, or the short name of something built in."""

    short: tuple[str, ...] = ()

    def _fits(self, value: Any) -> bool:
        return isinstance(value, str) and (value in self.short or names.is_function(value))

    def _hint(self, value: Any) -> str:
        if not isinstance(value, str):
            return ""
        module, colon, name = value.partition(":")
        if colon and name.startswith("_"):
            return "a name with a leading underscore is private"
        if colon and "." in name:
            return "only a function of the module itself, without dots after the colon"
        if not colon and "." in module and names.is_function(":".join(module.rsplit(".", 1))):
            return f"did you mean {':'.join(module.rsplit('.', 1))}?"
        return nearest(value, self.short) if self.short else ""

    def _schema(self) -> Schema:
        return {
            "type": "string",
            "maxLength": names.FUNCTION_CHARACTERS_MAX,
            "pattern": f"^({'|'.join((*self.short, names.FUNCTION))})$",
        }

    def _describe(self) -> str:
        short = f"{listed(self.short)}, or " if self.short else ""
        return f"{short}a function as package.module:name"


class Choice(KeyKind, frozen=True):
    """One of a few words."""

    words: tuple[str, ...]

    def _fits(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.words

    def _hint(self, value: Any) -> str:
        return nearest(value, self.words) if isinstance(value, str) else ""

    def _schema(self) -> Schema:
        return {"type": "string", "enum": list(self.words)}

    def _describe(self) -> str:
        return listed(self.words)


class TypeName(KeyKind, frozen=True):
    """The type of a column."""

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, str):
            return refuse(self, value, path, report)
        try:
            column_types.parse_type(value)
        except ValueError as error:
            hint = nearest(value, column_types.SIMPLE)
            report.add(path, f"is {show(value)}, which {error}", hint)
            return INVALID
        return value

    def _schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": column_types.CHARACTERS_MAX}

    def _describe(self) -> str:
        return (
            f"the type of a column: {listed(column_types.SIMPLE)}, decimal(10, 2), list<...> or "
            "struct<name: ...>"
        )


class Flag(KeyKind, frozen=True):
    """True or false."""

    def _fits(self, value: Any) -> bool:
        return isinstance(value, bool)

    def _schema(self) -> Schema:
        return {"type": "boolean"}

    def _describe(self) -> str:
        return "true or false"


class Integer(KeyKind, frozen=True):
    """An integer within bounds, both inclusive."""

    minimum: int = INTEGER_MIN
    maximum: int = INTEGER_MAX
    unit: str = ""

    def _fits(self, value: Any) -> bool:
        # bool is a subclass of int, but `batchSize: true` is a mistake.
        integer = isinstance(value, int) and not isinstance(value, bool)
        return integer and self.minimum <= value <= self.maximum

    def _schema(self) -> Schema:
        bounds: Schema = {"type": "integer", "format": "int64"}
        if self.minimum != INTEGER_MIN:
            bounds["minimum"] = self.minimum
        if self.maximum != INTEGER_MAX:
            bounds["maximum"] = self.maximum
        return bounds

    def _describe(self) -> str:
        unit = f" of {self.unit}" if self.unit else ""
        if self.minimum == INTEGER_MIN:
            return f"an integer{unit}"
        if self.maximum == INTEGER_MAX:
            return f"an integer{unit}, at least {self.minimum}"
        return f"an integer{unit} from {self.minimum} to {self.maximum}"


class Fraction(KeyKind, frozen=True):
    """A number from 0 to 1."""

    def _read(self, value: Any, path: str, report: Report) -> Any:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if number and 0 <= value <= 1 else refuse(self, value, path, report)

    def _schema(self) -> Schema:
        return {"type": "number", "minimum": 0, "maximum": 1}

    def _describe(self) -> str:
        return "a number from 0 to 1"


class FreeMapping(KeyKind, frozen=True):
    """A mapping of the user's own."""

    def _fits(self, value: Any) -> bool:
        return isinstance(value, dict)

    def _schema(self) -> Schema:
        return {"type": "object", **ANYTHING}

    def _describe(self) -> str:
        return "a mapping"


class Metadata(KeyKind, frozen=True):
    """A mapping of the user's own, of which `jobId` has a meaning."""

    job_id: PathName = PathName("the id of a job")

    def _read(self, value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, dict):
            return refuse(self, value, path, report)
        if JOB_ID in value and self.job_id.read(value[JOB_ID], at(path, JOB_ID), report) is INVALID:
            return INVALID
        return value

    def _schema(self) -> Schema:
        described = {**self.job_id.schema(), "description": "The id of the job."}
        return {"type": "object", "properties": {JOB_ID: described}, **ANYTHING}

    def _describe(self) -> str:
        return "a mapping"


class Anything(KeyKind, frozen=True):
    """Any plain value."""

    def _fits(self, value: Any) -> bool:
        return True

    def _schema(self) -> Schema:
        return dict(ANYTHING)

    def _describe(self) -> str:
        return "any value"
