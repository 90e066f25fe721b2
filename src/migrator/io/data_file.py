"""Strict reading of JSON and YAML files. Each error is one sentence that names the file.

A wrong file is recognised by its content, so that the sentence says what it is.

Plain scalars of YAML follow version 1.2 (as in JSON: true, null, 1.5e3), not 1.1: `no`, `12:30`,
`010` and `2026-11-15` stay text. A wrong value is then rejected by its key and never converted to
another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from migrator.core.errors import InputError
from migrator.io.strict import Location, refuse, shown

_MOST_BYTES = 1 << 26
_HEAD_BYTES = 64
_Parsed = TypeVar("_Parsed")

_MAX_DIGITS = 300
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


@dataclass(frozen=True)
class FileKind:
    """A kind of file that MIGRator reads or writes."""

    words: str
    """What it is, with its article."""
    use: str
    """What to do with it; {file} stands for its path."""


PROBLEM = FileKind("a planning problem", "use `migrator plan {file}`")
PLAN = FileKind("a plan", "use `migrator check PROBLEM {file}`")
SCENARIO = FileKind("a scenario", "use `migrator simulate {file}` or `migrator serve {file}`")
CLUSTER = FileKind("a cluster scenario", "use `migrator cluster plan {file}`")
LAYOUT = FileKind("a layout of a GPU", "use `migrator gpu apply {file} --dry-run`")
PROFILES = FileKind("a profile file", "name it as `profile` of a tenant in a scenario")
PLACEMENT = FileKind("a placement", "use `migrator cluster plan SCENARIO --current {file}`")
RUN = FileKind("the JSON of a simulated run", "read it with your own programs")
RECORDS = FileKind("the records of a run", "use `migrator dashboard {file}`")
TRACE = FileKind("a trace of requests", "name it as `trace` in a scenario's arrivals")
MODULE = FileKind("a Python module", "name its policy or model as MODULE:NAME")
WEIGHTS = FileKind("a file of weights", "name it as `live.weights` of a tenant in a scenario")
PAGE = FileKind("a page", "open it in a browser")
PICTURE = FileKind("a picture", "open it in a viewer")

_HEADS = {
    b"SQLite format 3\0": RECORDS,
    b"\x89PNG": PICTURE,
    b"<!DOCTYPE html": PAGE,
    b"<!doctype html": PAGE,
}
_ENDINGS = {".py": MODULE, ".safetensors": WEIGHTS, ".html": PAGE, ".csv": TRACE, ".gz": TRACE}


def recognise(path: Path) -> FileKind | None:
    """The kind of the file; None if it cannot be read or is of no known kind."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            for start, kind in _HEADS.items():
                if head.startswith(start):
                    return kind
            text = head + file.read(_MOST_BYTES)
    except (OSError, ValueError):  # ValueError: a path with a null character
        return None
    data = None if path.suffix in _ENDINGS else _loaded(text)
    return _by_keys(data) if isinstance(data, Mapping) else _ENDINGS.get(path.suffix)


def wrong_kind(path: Path, expected: Collection[FileKind]) -> str | None:
    """The sentence for a file of another kind than expected; None if it may be as expected."""
    kind = recognise(path)
    if kind is None or not expected or kind in expected:
        return None
    wanted = " or ".join(kind.words for kind in expected)
    return f"this is {kind.words}, not {wanted}; {kind.use.format(file=path)}"


def _loaded(text: bytes) -> object:
    try:
        return json.loads(text)
    except ValueError:
        pass
    except RecursionError:
        return None
    try:
        # every value stays text, which is enough to recognise a file and runs no constructor
        return yaml.load(text.decode("utf-8-sig"), Loader=yaml.BaseLoader)
    except (ValueError, yaml.YAMLError, RecursionError):
        return None


def _by_keys(data: Mapping[str, Any]) -> FileKind | None:
    for kind, matches in _KEYS:
        if matches(data):
            return kind
    return None


def _has_models(data: Mapping[str, Any]) -> bool:
    tenants = data["tenants"] if isinstance(data["tenants"], list) else []
    return "window_s" in data or any(
        isinstance(tenant, Mapping)
        and not tenant.keys().isdisjoint(("model", "arrivals", "profile"))
        for tenant in tenants
    )


_SCENARIO_KEYS = ("forecaster", "gpu", "policy", "tenants", "window_s", "windows")
"""Keys of a scenario, which may lack others: one of them is enough if nothing else matches."""
_KEYS: tuple[tuple[FileKind, Callable[[Mapping[str, Any]], bool]], ...] = (
    (PLAN, lambda data: "upper_bound" in data and "slots" in data),
    (PROBLEM, lambda data: "tenants" in data and ("slots" in data or "charge" in data)),
    (PLACEMENT, lambda data: "placement" in data),
    (CLUSTER, lambda data: "cluster" in data),
    (RUN, lambda data: "goodput" in data and "windows" in data),
    (SCENARIO, lambda data: "tenants" in data and _has_models(data)),
    (LAYOUT, lambda data: "instances" in data or "mig-configs" in data),
    (PROFILES, lambda data: "profiles" in data or "latency_ms" in data),
    (PROBLEM, lambda data: "slots" in data or "charge" in data),
    (SCENARIO, lambda data: not data.keys().isdisjoint(_SCENARIO_KEYS)),
)
"""Kind -> whether an object's keys are of it; the first that matches counts."""


def read_file(
    path: Path,
    form: str,
    load: Callable[[str], object],
    parse: Callable[[object], _Parsed],
    *expected: FileKind,
) -> _Parsed:
    """Read a file of a `form` with `load`, then `parse`; errors start with its name.

    If that fails and the file is of another kind than `expected`, the error says which.
    """
    try:
        return parse(load(_text(path, form)))
    except InputError as error:
        name = str(path)
        reason = wrong_kind(path, expected) or error
        raise InputError(f"{name if name.isprintable() else ascii(name)}: {reason}") from error


def beside(folder: Path, path: str, location: Location) -> Path:
    """The path of a file that another file in `folder` names at `location`."""
    if not path.strip() or not path.isprintable():
        refuse(location, f"{shown(path)} is no path", "name a file, relative to this one")
    return folder / path


def integer(digits: str) -> int | float:
    """The number; infinity if it has too many digits, so that the error names its key."""
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _text(path: Path, form: str) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError("there is no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(f"this is a directory; give the {form} file itself") from None
    except OSError as error:
        raise InputError(
            f"the file cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8; save the file as {form} in UTF-8"
        ) from error
    if not text.strip():
        raise InputError(f"the file is empty; give a {form} object")
    return text


def read_json_file(path: Path, parse: Callable[[object], _Parsed], *expected: FileKind) -> _Parsed:
    """Read a JSON file and convert it with `parse`. Errors start with the file's name."""
    return read_file(path, "JSON", load_json, parse, *expected)


class _Duplicated(dict[str, object]):
    """An object that contains `key` more than once."""

    key: str = ""


def load_json(text: str) -> object:
    """The value in `text`; InputError names the line of what is wrong."""
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_int=integer)
    except json.JSONDecodeError as error:
        raise InputError(
            f"malformed JSON at line {error.lineno} column {error.colno} "
            f"({error.msg}); correct it there"
        ) from error
    except RecursionError:
        raise InputError("lists or objects are nested too deeply; flatten the file") from None
    _refuse_duplicates(data)
    return data


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    data = dict(pairs)
    if len(data) == len(pairs):
        return data
    keys = [key for key, _ in pairs]
    duplicated = _Duplicated(data)
    duplicated.key = next(key for key in keys if keys.count(key) > 1)
    return duplicated


def _refuse_duplicates(data: object) -> None:
    # A loop instead of a recursion, because the reader accepts deeper nesting than Python's stack.
    waiting: list[tuple[Location, object]] = [((), data)]
    while waiting:
        location, value = waiting.pop()
        if isinstance(value, _Duplicated):
            refuse((*location, value.key), "the key appears more than once", "keep one of them")
        items: Iterable[tuple[int | str, object]] = ()
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list):
            items = enumerate(value)
        waiting.extend(
            ((*location, key), value) for key, value in items if isinstance(value, dict | list)
        )


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


def _refuse_tag(node: yaml.Node, location: Location) -> NoReturn:
    kind = node.tag.removeprefix(_TAG)
    refuse(location, f"the tag {shown(kind)} is not allowed here", "leave it out")
