"""Strict reading of text and JSON files. Each error is one sentence that names the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from migrator.core.errors import InputError
from migrator.io.file_kind import FileKind, wrong_kind
from migrator.io.strict import Location, refuse, shown

_Parsed = TypeVar("_Parsed")

_MAX_DIGITS = 300


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
        words = wrong_kind(path, expected) or error
        raise InputError(f"{name if name.isprintable() else ascii(name)}: {words}") from error


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
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    keys = [key for key, _ in pairs]
    duplicated = _Duplicated(found)
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
            ((*location, key), each) for key, each in items if isinstance(each, dict | list)
        )
