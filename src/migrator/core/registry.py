"""Registries by name, and classes by import path.

A registry collects a constant from every module of a package. Adding a policy or a forecaster
means adding a file that defines the constant.
"""

from __future__ import annotations

import difflib
import pkgutil
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeVar

from migrator.core.errors import InputError


class Named(Protocol):
    """An object with a name."""

    @property
    def name(self) -> str:
        """The name that users type."""


_Named = TypeVar("_Named", bound=Named)


def found_in(package: str, constant: str) -> dict[str, _Named]:
    """Name -> object, from `constant` of the package's modules, in the order of the files."""
    by_name: dict[str, _Named] = {}
    for module in pkgutil.iter_modules(import_module(package).__path__):
        offered: Iterable[_Named] = getattr(import_module(f"{package}.{module.name}"), constant, ())
        by_name.update({member.name: member for member in offered})
    return by_name


def pick(kind: str, name: str, members: Mapping[str, _Named]) -> _Named:
    """The object called `name`; InputError suggests the nearest names."""
    if name in members:
        return members[name]
    near = difflib.get_close_matches(name.lower()[:100], members, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(members)}"
    raise InputError(f"{kind}: there is no {name[:100]!r}; {hint}")


FORM = "package.module:Class"
LIBRARIES = ("hf:", "timm:")
"""Prefixes of models that a library has: hf:FOLDER_OR_ID and timm:NAME."""


def is_import_path(name: str) -> bool:
    """Whether a name is meant as the import path of a class."""
    return ":" in name and not name.startswith(LIBRARIES)


def parts_of(path: str) -> tuple[str, str] | None:
    """Module and class of an import path; None if it is not one. Nothing is imported."""
    module, _, name = path.partition(":")
    names = (*module.split("."), *name.split("."))
    return (module, name) if all(map(str.isidentifier, names)) else None


def import_class(kind: str, path: str) -> object:
    """The object that the path names. `kind` is the prefix of InputError messages."""
    parts = parts_of(path)
    if parts is None:
        raise InputError(f"{kind}: {path[:100]!r} is no import path; write {FORM}")
    module_name, name = parts
    target: object = _module(kind, module_name, path)
    try:
        for attribute in name.split("."):
            target = getattr(target, attribute)
    except AttributeError as error:
        raise InputError(
            f"{kind}: {module_name} has no {name}; check the name after the colon"
        ) from error
    return target


def make(kind: str, path: str, target: type) -> object:
    """An object of the class at an import path; InputError if it cannot be made."""
    try:
        made: object = target()
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{kind}: {path} cannot be made ({type(error).__name__}: {error}); it must take no "
            "arguments"
        ) from error
    return made


def refuse_file(kind: str, name: str) -> None:
    """InputError if `name` is that of a Python file instead of an import path."""
    if name.endswith(".py"):
        module = name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise InputError(f"{kind}: {name[:100]!r} is a file; name what is in it: {module}:NAME")


def _module(kind: str, name: str, path: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)  # modules in the current folder are found as by `python -m`
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{kind}: {error.name} cannot be imported; check the path {path[:100]} and where "
            "Python looks (the current folder, PYTHONPATH)"
        ) from error
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{kind}: importing {name} failed ({type(error).__name__}: {error}); correct the module"
        ) from error
