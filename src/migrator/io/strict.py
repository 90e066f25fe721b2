"""Strict reading: pydantic's errors as `KEY: what is wrong; the remedy`.

Each of MIGRator's file formats is a tree of `Entry` classes. A reader checks the shape here and
then converts the entries to the types of `core`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, NoReturn, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from migrator.core.catalogue import Board
from migrator.core.errors import InputError

Location = tuple[int | str, ...]
"""Keys and list positions from the root of a file to a value."""

MAX_COUNT = 10**9
MAX_NUMBER = 1e12
"""Largest number in a file; MAX_COUNT is the largest count.

Above these, sums over a window lose single requests or overflow in the planners.
"""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Position = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Number = Annotated[float, Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False)]

NUMBERS, SCENARIOS, MODE, CONFIGURATIONS = KINDS_OF_VALUES = (
    "<numbers>",
    "<scenarios>",
    "<mode>",
    "<configurations>",
)
"""Tags of what a value with several forms is taken for."""

_Entry = TypeVar("_Entry", bound="Entry")
_Parts = Mapping[tuple[str, ...], "type[Entry]"]
_WRONG: dict[str, tuple[str, str]] = {
    "finite_number": ("is not finite", "a finite number"),
    "greater_than": ("is not above {gt:g}", "a number above {gt:g}"),
    "greater_than_equal": ("is less than {ge:g}", "a number of at least {ge:g}"),
    "less_than_equal": ("is more than {le:g}", "a number of at most {le:g}"),
    "int_type": ("is not an integer", "an integer, without quotes or decimals"),
    "int_from_float": ("is not an integer", "an integer, without quotes or decimals"),
    "float_type": ("is not a number", "a number, without quotes"),
    "string_type": ("is not text", "text in double quotes"),
    "string_unicode": ("is not valid Unicode text", "text without lone surrogates"),
    "list_type": ("is not a list", "a list of numbers"),
    "union_tag_not_found": ("is not a list", "a list"),
    "dict_type": ("is not an object", "an object"),
    "model_type": ("is not an object", "an object with {keys}"),
    "literal_error": ("is not known", "{expected}"),
    "too_short": ("is not enough", "at least one"),
}
"""Pydantic's error type -> what is wrong with the value, and what to provide instead."""


class Entry(BaseModel):
    """An object of a file: exact types, no unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


@cache
def entry_types(model: type[Entry]) -> dict[tuple[str, ...], type[Entry]]:
    """The kind of object at each path of a file, without list positions."""
    types: dict[tuple[str, ...], type[Entry]] = {(): model}
    for name, field in model.model_fields.items():
        for entry in _entries_in(field.annotation):
            types |= {(name, *path): kind for path, kind in entry_types(entry).items()}
    return types


def _entries_in(annotation: object) -> Iterator[type[Entry]]:
    if isinstance(annotation, type(Entry)) and issubclass(annotation, Entry):
        yield annotation
    for argument in get_args(annotation):
        yield from _entries_in(argument)


def refuse(location: Location, wrong: str, remedy: str) -> NoReturn:
    """Raise an InputError about the value at `location`."""
    raise InputError(f"{key_path(location)}: {wrong}; {remedy}")


def validated(model: type[_Entry], data: object, what: str, form: str = "JSON") -> _Entry:
    """`data` as a `model`. Raises InputError with the first error.

    `what` names the whole document if no key can be named. `form` is the format of the file.
    """
    if not isinstance(data, dict):
        raise InputError(f"{what} is {shown(data)}; give a {form} object with {_keys(model)}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        sentences = _sentences(error.errors(include_url=False, include_context=True), model)
    more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
    raise InputError(sentences[0] + more)


def require_version(data: object, version: int) -> None:
    """Reject another version first, because it may have other keys."""
    if not isinstance(data, dict) or "version" not in data:
        return
    written = data["version"]
    if type(written) is not int or written != version:
        refuse(
            ("version",),
            f"{shown(written)} is not supported",
            f"write the file in version {version}",
        )


def key_path(location: Location) -> str:
    """The location as users write it: tenants[0].capability.3."""
    text = ""
    for segment in location:
        if isinstance(segment, int):
            text += f"[{segment}]"
        elif re.fullmatch(r"[\w+-]{1,40}", segment):
            text += f".{segment}" if text else segment
        else:
            text += f"[{shown(segment)}]"
    return text or "the top level"


def shown(value: object) -> str:
    """A value for use in a sentence: as JSON, on one line, shortened."""
    if value is None or isinstance(value, bool | float):
        return json.dumps(value)
    if isinstance(value, dict | list):
        article, name = ("an", "object") if isinstance(value, dict) else ("a", "list")
        return f"{article} {name}" if value else f"an empty {name}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}..."


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid word that is probably meant by `word`; None if none is similar."""
    folded = {name.lower(): name for name in valid}
    near = difflib.get_close_matches(word.lower()[:100], folded, n=1, cutoff=0.5)
    return folded[near[0]] if near else None


def listed(values: Sequence[object], last: str = "or") -> str:
    """The values as an enumeration: a, b or c."""
    *head, tail = [str(value) for value in values]
    return f"{', '.join(head)} {last} {tail}" if head else tail


def _sentences(errors: list[ErrorDetails], model: type[Entry]) -> list[str]:
    """One sentence per error, unknown keys first, because a misspelt key explains a missing one."""
    parts = entry_types(model)
    errors = [{**error, "loc": _without_choices(error["loc"])} for error in errors]
    unknown = [error for error in errors if error["type"] == "extra_forbidden"]
    missing = [error["loc"] for error in errors if error["type"] == "missing"]
    sentences = []
    for error in unknown:
        *parent, key = error["loc"]
        absent = [str(loc[-1]) for loc in missing if loc[:-1] == tuple(parent)]
        meant = nearest(str(key), absent)
        if meant is not None:
            missing.remove((*parent, meant))
        model = parts[_names(tuple(parent))]
        meant = meant or nearest(str(key), model.model_fields)
        remedy = f"did you mean {meant}?" if meant else f"the keys here are {_keys(model)}"
        sentences.append(f"{key_path(error['loc'])}: unknown key; {remedy}")
    for error in errors:
        if error["type"] == "missing" and error["loc"] in missing:
            give = _description(error["loc"], parts)
            sentences.append(f"{key_path(error['loc'])}: the key is missing; give {give}")
        elif error["type"] not in ("missing", "extra_forbidden"):
            sentences.append(_wrong_value(error, parts))
    return sentences


def _wrong_value(error: ErrorDetails, parts: _Parts) -> str:
    location = error["loc"]
    wrong, instead = _WRONG.get(error["type"], (f"is refused ({error['msg']})", "another value"))
    model = parts.get(_names(location))
    context = {**error.get("ctx", {}), "keys": _keys(model) if model else ""}
    give = _description(location, parts) or instead.format(**context)
    return f"{key_path(location)}: {shown(error['input'])} {wrong.format(**context)}; give {give}"


def _description(location: Location, parts: _Parts) -> str | None:
    """Description of the field at `location`; None for an entry inside a field."""
    *parent, key = location or ("",)
    model = parts.get(_names(tuple(parent)))
    field = model.model_fields.get(str(key)) if model else None
    return field.description if field else None


def _names(location: Location) -> tuple[str, ...]:
    return tuple(part for part in location if isinstance(part, str))


def _without_choices(location: Location) -> Location:
    """The location without the tags that pydantic adds for the assumed kind of value."""
    return tuple(part for part in location if part not in KINDS_OF_VALUES)


def _keys(model: type[Entry]) -> str:
    return listed(list(model.model_fields), last="and")


_Value = TypeVar("_Value", int, float)


def require_names(
    names: Sequence[str], listed_at: Location = ("tenants",), what: str = "tenant"
) -> None:
    """Reject tenants, or what else is listed there, without a unique printable name."""
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        location = (*listed_at, index, "name")
        if not name.strip():
            refuse(location, "the name is empty", f"give every {what} a name")
        if not name.isprintable():
            refuse(location, f"{shown(name)} cannot be printed", "use letters and digits")
        if name in seen:
            refuse(
                location,
                f"{shown(name)} is already the name of {key_path((*listed_at, seen[name]))}",
                f"give every {what} a name of its own",
            )
        seen[name] = index


def by_size(values: Mapping[str, _Value], location: Location, board: Board) -> dict[int, _Value]:
    """The values by instance size. Rejects a size that the board does not have."""
    sizes = {str(gpcs): gpcs for gpcs in board.sizes}
    for size in values:
        if size not in sizes:
            refuse_size((*location, size), shown(size), board)
    return {sizes[size]: values[size] for size in sorted(values)}


def refuse_size(location: Location, size: object, board: Board) -> NoReturn:
    """Raise an InputError about an instance size that the board does not have."""
    wrong = f"{board.name} has no instance size {size}"
    refuse(location, wrong, f"use {listed(board.sizes)} GPCs")
