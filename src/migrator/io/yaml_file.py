"""Strict reading of YAML files: the values of JSON, with comments and aliases.

Plain scalars follow YAML 1.2 (as in JSON: true, null, 1.5e3), not 1.1: `no`, `12:30`, `010` and
`2026-11-15` stay text. A wrong value is then rejected by its key and never converted to another.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

import yaml

from migrator.core.errors import InputError
from migrator.io.file_kind import FileKind
from migrator.io.json_file import integer, load_json, read_file
from migrator.io.strict import Location, refuse, shown

_Parsed = TypeVar("_Parsed")

MAX_VALUES = 200_000
"""Most values in a file: a few lines of aliases can expand to billions."""

_TAG = "tag:yaml.org,2002:"
_WORDS = {
    "null": (re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF")),
    "int": (re.compile(r"[-+]?(0|[1-9][0-9]*)"), list("-+0123456789")),
    "float": (
        re.compile(
            r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan"
        ),
        list("-+.0123456789"),
    ),
}
"""Kind of scalar -> its pattern, and the characters it can begin with."""


def read_yaml_file(path: Path, parse: Callable[[object], _Parsed], *expected: FileKind) -> _Parsed:
    """Read a YAML file and convert it with `parse`. Errors start with the file's name."""
    return read_file(path, "YAML", load_yaml, parse, *expected)


def read_data_file(path: Path, parse: Callable[[object], _Parsed], *expected: FileKind) -> _Parsed:
    """Read a file that is a JSON object or else YAML; large ones are read much faster as JSON."""

    def load(text: str) -> object:
        return load_json(text) if text.lstrip().startswith(("{", "[")) else load_yaml(text)

    return read_file(path, "JSON or YAML", load, parse, *expected)


def load_yaml(text: str) -> object:
    """The single document in `text`: objects with text keys, lists, text, numbers, true, null."""
    try:
        node = yaml.compose(text, Loader=_Loader)
        return None if node is None else _Values().value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1} column {mark.column + 1}" if mark else ""
        # quotes from the file may contain line breaks
        words = " ".join(f"{error.context or ''}, {error.problem or ''}".strip(", ").split())
        raise InputError(f"malformed YAML{where} ({words}); correct it there") from error
    except yaml.reader.ReaderError as error:
        raise InputError(
            f"malformed YAML: character {error.position + 1} may not stand in it; remove it"
        ) from error
    except RecursionError:
        raise InputError("lists or objects are nested too deeply; flatten the file") from None


class _Loader(yaml.SafeLoader):
    """SafeLoader with the plain scalars of YAML 1.2."""


_Loader.yaml_implicit_resolvers = {}
for _kind, (_looks, _begins) in _WORDS.items():
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_looks.pattern})$"), _begins)


class _Values:
    """Conversion of YAML's nodes to plain values, with a count of the values."""

    def __init__(self) -> None:
        self._count = 0
        self._open: set[int] = set()

    def value(self, node: yaml.Node, location: Location) -> object:
        """The value of `node`, which is at `location`."""
        self._count += 1
        if self._count > MAX_VALUES:
            raise InputError(
                f"the file holds more than {MAX_VALUES} values, aliases written out; shorten it"
            )
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node, location)
        if id(node) in self._open:
            refuse(location, "the alias stands for what contains it", "write the value out")
        self._open.add(id(node))
        found: object
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            found = [self.value(each, (*location, at)) for at, each in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            found = self._object(node, location)
        else:
            _refuse_tag(node, location)
        self._open.remove(id(node))
        return found

    def _object(self, node: yaml.MappingNode, location: Location) -> dict[str, object]:
        nodes: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            key = _key(key_node, location)
            if key in nodes:
                refuse((*location, key), "the key appears more than once", "keep one of them")
            nodes[key] = value_node
        merge = nodes.pop("<<", None)
        merged = {} if merge is None else self._merged(merge, (*location, "<<"))
        return merged | {key: self.value(each, (*location, key)) for key, each in nodes.items()}

    def _merged(self, node: yaml.Node, location: Location) -> dict[str, object]:
        """The entries that `<<` merges. If several objects have a key, the first one wins."""
        merged: dict[str, object] = {}
        for each in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            value = self.value(each, location)
            if not isinstance(value, dict):
                refuse(location, f"{shown(value)} is not an object", "merge objects only")
            merged = {**value, **merged}
        return merged


def _key(node: yaml.Node, location: Location) -> str:
    """A key as text. Sizes such as 1 may be written without quotes."""
    if not isinstance(node, yaml.ScalarNode):
        refuse(location, "a list or an object is no key", "use text as keys")
    if node.tag not in (f"{_TAG}str", f"{_TAG}int"):
        refuse(location, f"the key {shown(node.value)} is not text", "put it in double quotes")
    return str(node.value)


def _scalar(node: yaml.ScalarNode, location: Location) -> object:
    kind, text = node.tag.removeprefix(_TAG), str(node.value)
    if kind == "str":
        return text
    if kind not in _WORDS or not _WORDS[kind][0].fullmatch(text):
        _refuse_tag(node, location)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return integer(text)
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _refuse_tag(node: yaml.Node, location: Location) -> NoReturn:
    kind = node.tag.removeprefix(_TAG)
    refuse(location, f"the tag {shown(kind)} is not allowed here", "leave it out")
