"""JSON at the edge: files read strictly, every fault told in one sentence that names its key.

What the problem file and the plan file share: reading (encoding, syntax, duplicate keys) and
turning what pydantic finds into `KEY: what is wrong; the remedy`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from migrator.core.errors import InputError
from migrator.core.instance import Instance, Task

Location = tuple[int | str, ...]
"""Keys and list positions from the root of a file to a value."""

MAX_COUNT = 10**9
MAX_NUMBER = 1e12
"""Beyond these, sums over a window would lose single requests or overflow in the planners."""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Position = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Number = Annotated[float, Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False)]

_Entry = TypeVar("_Entry", bound="Entry")
_Parsed = TypeVar("_Parsed")


class Entry(BaseModel):
    """An object of a file: exact types, no unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Parts = Mapping[tuple[str, ...], type[Entry]]
"""Which kind of object stands at which path of a file, list positions left out."""


class InstanceEntry(Entry):
    """An instance as both files write it."""

    start: Position = Field(description="its first memory slice, an integer of at least 0")
    gpcs: Count = Field(description="its size in GPCs, an integer of at least 1")
    task: str | None = Field(description='"TENANT/inference", "TENANT/retraining" or null')

    def instance(self, location: Location) -> Instance:
        """The instance; `location` is where this entry stands in its file."""
        return Instance(self.start, self.gpcs, self._task((*location, "task")))

    def _task(self, location: Location) -> Task | None:
        if self.task is None:
            return None
        try:
            return Task.parse(self.task)
        except ValueError:
            refuse(
                location,
                f"{shown(self.task)} is not a task",
                'write "TENANT/inference", "TENANT/retraining" or null',
            )


def instance_to_json(instance: Instance) -> dict[str, object]:
    """The instance as both files write it."""
    task = None if instance.task is None else str(instance.task)
    return {"start": instance.start, "gpcs": instance.gpcs, "task": task}


def refuse(location: Location, wrong: str, remedy: str) -> NoReturn:
    """Raise the InputError for what is wrong at `location`."""
    raise InputError(f"{key_path(location)}: {wrong}; {remedy}")


def read_json_file(path: Path, parse: Callable[[object], _Parsed]) -> _Parsed:
    """What `parse` makes of the file's JSON; every fault names the file first."""
    try:
        return parse(_load(_text(path)))
    except InputError as error:
        name = str(path)
        raise InputError(f"{name if name.isprintable() else ascii(name)}: {error}") from error


def validated(model: type[_Entry], data: object, parts: Parts, what: str) -> _Entry:
    """`data` as a `model`; InputError tells the first fault.

    `what` names the whole where there is no key to name.
    """
    if not isinstance(data, dict):
        raise InputError(f"{what} is {shown(data)}; give a JSON object with {_keys(model)}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        sentences = _sentences(error.errors(include_url=False, include_context=True), parts)
    more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
    raise InputError(sentences[0] + more)


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
    """A value for use in a sentence: JSON's words, on one line, never long."""
    if value is None or isinstance(value, bool | float):
        return json.dumps(value)
    if isinstance(value, dict | list):
        article, name = ("an", "object") if isinstance(value, dict) else ("a", "list")
        return f"{article} {name}" if value else f"an empty {name}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}..."


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid word that `word` was probably meant to be."""
    folded = {each.lower(): each for each in valid}
    near = difflib.get_close_matches(word.lower()[:100], folded, n=1, cutoff=0.5)
    return folded[near[0]] if near else None


def listed(words: Sequence[object], last: str = "or") -> str:
    """The words as an enumeration: a, b or c."""
    *head, tail = [str(each) for each in words]
    return f"{', '.join(head)} {last} {tail}" if head else tail


def _text(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError("there is no such file; check the path") from None
    except IsADirectoryError:
        raise InputError("this is a directory; give the JSON file itself") from None
    except OSError as error:
        raise InputError(
            f"the file cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8; save the file as JSON in UTF-8"
        ) from error
    if not text.strip():
        raise InputError("the file is empty; give a JSON object")
    return text


class _Duplicated(dict[str, object]):
    """An object in which `key` stood more than once."""

    key: str = ""


def _load(text: str) -> object:
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise InputError(
            f"malformed JSON at line {error.lineno} column {error.colno} "
            f"({error.msg}); correct it there"
        ) from error
    except RecursionError:
        raise InputError("lists or objects are nested too deeply; flatten the file") from None
    _refuse_duplicates(data)
    return data


def _integer(text: str) -> int | float:
    # Python refuses to read very long integers; as an infinite float it is refused by its key.
    return int(text) if len(text) <= 300 else float(text)


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


_WRONG: dict[str, tuple[str, str]] = {
    "finite_number": ("is not finite", "a finite number"),
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
"""Pydantic's error type -> what is wrong with the value, and what to give in its place."""


def _sentences(errors: list[ErrorDetails], parts: Parts) -> list[str]:
    """One sentence per fault, unknown keys first: a misspelt key explains the missing one."""
    unknown = [each for each in errors if each["type"] == "extra_forbidden"]
    missing = [each["loc"] for each in errors if each["type"] == "missing"]
    sentences = []
    for each in unknown:
        *parent, key = each["loc"]
        absent = [str(loc[-1]) for loc in missing if loc[:-1] == tuple(parent)]
        meant = nearest(str(key), absent)
        if meant is not None:
            missing.remove((*parent, meant))
        sentences.append(_unknown_key(each["loc"], meant, parts))
    for each in errors:
        if each["type"] == "missing" and each["loc"] in missing:
            sentences.append(_missing_key(each["loc"], parts))
        elif each["type"] not in ("missing", "extra_forbidden"):
            sentences.append(_wrong_value(each, parts))
    return sentences


def _unknown_key(location: Location, meant: str | None, parts: Parts) -> str:
    model = parts[_names(location[:-1])]
    meant = meant or nearest(str(location[-1]), model.model_fields)
    remedy = f"did you mean {meant}?" if meant else f"the keys here are {_keys(model)}"
    return f"{key_path(location)}: unknown key; {remedy}"


def _missing_key(location: Location, parts: Parts) -> str:
    return f"{key_path(location)}: the key is missing; give {_description(location, parts)}"


def _wrong_value(error: ErrorDetails, parts: Parts) -> str:
    location = _without_choices(error["loc"])
    wrong, instead = _WRONG.get(error["type"], (f"is refused ({error['msg']})", "another value"))
    model = parts.get(_names(location))
    context = {**error.get("ctx", {}), "keys": _keys(model) if model else ""}
    give = _description(location, parts) or instead.format(**context)
    return f"{key_path(location)}: {shown(error['input'])} {wrong.format(**context)}; give {give}"


def _description(location: Location, parts: Parts) -> str | None:
    """What the file's field at `location` holds; None for an entry inside a field."""
    *parent, key = location or ("",)
    model = parts.get(_names(tuple(parent)))
    field = model.model_fields.get(str(key)) if model else None
    return field.description if field else None


def _names(location: Location) -> tuple[str, ...]:
    return tuple(each for each in location if isinstance(each, str))


def _without_choices(location: Location) -> Location:
    """Without the `<...>` tags by which pydantic names the kind of list it took a value for."""
    return tuple(
        each
        for each, after in zip_longest(location, location[1:])
        if not (isinstance(each, str) and each.startswith("<") and isinstance(after, int))
    )


def _keys(model: type[Entry]) -> str:
    return listed(list(model.model_fields), last="and")
