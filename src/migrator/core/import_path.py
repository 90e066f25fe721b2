"""A class named by `package.module:Class`: its form, and the class itself where it is asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from migrator.core.errors import InputError

FORM = "package.module:Class"


def parts_of(path: str) -> tuple[str, str] | None:
    """Module and class of an import path; None where it is none. Nothing is imported."""
    module, _, name = path.partition(":")
    words = (*module.split("."), *name.split("."))
    return (module, name) if all(each.isidentifier() for each in words) else None


def imported(kind: str, path: str) -> object:
    """What the path names; InputError begins with `kind`, what it was to be."""
    parts = parts_of(path)
    if parts is None:
        raise InputError(f"{kind}: {path[:100]!r} is no import path; write {FORM}")
    module_name, name = parts
    found: object = _module(kind, module_name, path)
    try:
        for each in name.split("."):
            found = getattr(found, each)
    except AttributeError as error:
        raise InputError(
            f"{kind}: {module_name} has no {name}; check the name after the colon"
        ) from error
    return found


def _module(kind: str, name: str, path: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # what is in the current folder is found as `python -m` finds it
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
