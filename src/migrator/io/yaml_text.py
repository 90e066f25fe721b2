"""Strict YAML 1.2: one document of plain values; errors name the line or the key.

Plain scalars are as in JSON (true, null, 1.5e3), not as in version 1.1: no, 12:30, 010 and
2026-11-15 stay text. A wrong value is then rejected by its key and never converted to another."""

from __future__ import annotations

import re
from typing import Any, NoReturn

import yaml

from migrator.core.errors import InputError
from migrator.io.strict import Location, refuse, shown

_MAX_DIGITS = 300
MAX_VALUES = 200_000
"""Most values in a file: a few lines of aliases can expand to billions."""
MAX_CHARACTERS = 2**23
"""Longest text that is read as YAML, which takes about a second per million characters."""
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


def integer(digits: str) -> int | float:
    """The number; infinity if it has too many digits, so that the error names its key."""
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def load_yaml(text: str) -> object:
    """The single document in `text`: objects with text keys, lists, text, numbers, true, null."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"the file holds more than {MAX_CHARACTERS} characters; shorten it")
    try:
        node = yaml.compose(text, Loader=_Loader)
        return None if node is None else _Values().value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1} column {mark.column + 1}" if mark else ""
        raise InputError(f"malformed YAML{where}: {_yaml_fault(error)}") from error
    except yaml.reader.ReaderError as error:
        raise InputError(
            f"malformed YAML: character {error.position + 1} may not stand in it; remove it"
        ) from error
    except RecursionError:
        raise InputError("lists or objects are nested too deeply; flatten the file") from None


_YAML_FAULTS = (
    ("'\\t'", "a tab stands where spaces are needed; indent with spaces"),
    (
        "mapping values are not allowed here",
        "a colon stands in a value, or the line is indented too far; put the text in double quotes "
        "or align the line with its neighbours",
    ),
    (
        "expected <block end>",
        "the line is not aligned with those before it; indent the entries of a list or object "
        "equally",
    ),
    ("could not find expected ':'", "a key lacks its colon; write `key: value`"),
    ("expected ',' or", "a list or object in brackets lacks a comma or its end; add it"),
    ("unexpected end of stream", "a quote is not closed; close it"),
    ("expected the node content", "a value is missing, or a bracket is not closed; add it"),
    ("expected a single document", "a second document begins; keep one per file"),
    ("that cannot start any token", "a value begins with @, ` or %; put it in double quotes"),
)
"""Part of PyYAML's description -> what it means, and what to do."""


def _yaml_fault(error: yaml.MarkedYAMLError) -> str:
    # quotes from the file may contain line breaks
    problem = " ".join(f"{error.context or ''}, {error.problem or ''}".strip(", ").split())
    meanings = (meaning for part, meaning in _YAML_FAULTS if part in problem)
    return next(meanings, f"{problem}; correct it there")


class _Loader(yaml.SafeLoader):
    """SafeLoader with the plain scalars of YAML 1.2, which stops where a file holds too much."""

    _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._nodes += 1
        if self._nodes > 2 * MAX_VALUES:  # keys are nodes, too
            _refuse_size()
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {}
for _kind, (_looks, _begins) in _WORDS.items():
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_looks.pattern})$"), _begins)


class _Values:
    """Conversion of YAML's nodes to plain values, with a count of the values."""

    def __init__(self) -> None:
        self._count = 0
        self._open: set[int] = set()

    def value(self, node: yaml.Node, location: Location) -> object:
        self._count += 1
        if self._count > MAX_VALUES:
            _refuse_size()
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node, location)
        if id(node) in self._open:
            refuse(location, "the alias stands for what contains it", "write the value out")
        self._open.add(id(node))
        value: object
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            value = [self.value(child, (*location, at)) for at, child in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            value = self._object(node, location)
        else:
            _refuse_tag(node, location)
        self._open.remove(id(node))
        return value

    def _object(self, node: yaml.MappingNode, location: Location) -> dict[str, object]:
        nodes: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            key = _key(key_node, location)
            if key in nodes:
                refuse((*location, key), "the key appears more than once", "keep one of them")
            nodes[key] = value_node
        merge = nodes.pop("<<", None)
        merged = {} if merge is None else self._merged(merge, (*location, "<<"))
        return merged | {key: self.value(child, (*location, key)) for key, child in nodes.items()}

    def _merged(self, node: yaml.Node, location: Location) -> dict[str, object]:
        """The entries that `<<` merges. If several objects have a key, the first one wins."""
        merged: dict[str, object] = {}
        for child in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            value = self.value(child, location)
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


def _refuse_size() -> NoReturn:
    raise InputError(
        f"the file holds more than {MAX_VALUES} values, aliases written out; shorten it"
    )


def _refuse_tag(node: yaml.Node, location: Location) -> NoReturn:
    kind = node.tag.removeprefix(_TAG)
    refuse(location, f"the tag {shown(kind)} is not allowed here", "leave it out")
