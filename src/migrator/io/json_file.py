"""JSON files, read strictly: syntax and duplicate keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from migrator.core.errors import InputError
from migrator.io.strict import Location, refuse
from migrator.io.text_file import integer, read_file

_Parsed = TypeVar("_Parsed")


def read_json_file(path: Path, parse: Callable[[object], _Parsed]) -> _Parsed:
    """What `parse` makes of the file's JSON; every fault names the file first."""
    return read_file(path, "JSON", _load, parse)


class _Duplicated(dict[str, object]):
    """An object in which `key` stood more than once."""

    key: str = ""


def _load(text: str) -> object:
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
    # A loop, not a recursion: the reader accepts deeper nesting than Python's stack may have left.
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
