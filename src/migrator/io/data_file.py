"""JSON and YAML files read strictly: each error is one sentence that names the file.

A file of another kind than expected is recognised by its content, and the sentence says what it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from migrator.core.errors import InputError
from migrator.io.file_kind import FileKind, is_special, may_never_end, wrong_kind
from migrator.io.strict import Location, refuse, shown
from migrator.io.yaml_text import integer, load_yaml

_Parsed = TypeVar("_Parsed")


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
    if is_special(folder / path):
        refuse(location, f"{shown(path)} is a FIFO, socket or device", "name a regular file")
    return folder / path


def _text(path: Path, form: str) -> str:
    if may_never_end(path):
        raise InputError("this is a FIFO, socket or device; give a regular file")
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


def read_yaml_file(path: Path, parse: Callable[[object], _Parsed], *expected: FileKind) -> _Parsed:
    """Read a YAML file and convert it with `parse`. Errors start with the file's name."""
    return read_file(path, "YAML", load_yaml, parse, *expected)


def read_data_file(path: Path, parse: Callable[[object], _Parsed], *expected: FileKind) -> _Parsed:
    """Read a file that is a JSON object or else YAML; large ones are read much faster as JSON."""

    def load(text: str) -> object:
        return load_json(text) if text.lstrip().startswith(("{", "[")) else load_yaml(text)

    return read_file(path, "JSON or YAML", load, parse, *expected)


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
