"""Strict JSON: duplicate keys are refused, and errors name the line."""

from __future__ import annotations

import json
from collections.abc import Iterable

from migrator.core.errors import InputError
from migrator.io.strict import Location, refuse

_MAX_DIGITS = 300


def integer(digits: str) -> int | float:
    """The number; infinity if it has too many digits, so that the error names its key."""
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


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
