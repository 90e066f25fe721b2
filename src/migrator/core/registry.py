"""Things found by name: every module of a package that offers some is asked for them.

Adding a policy or a forecaster is therefore adding a file: it defines the constant its
package looks for, and the name shows up wherever names are listed.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Protocol, TypeVar

from migrator.core.errors import InputError


class Named(Protocol):
    """Something with a name of its own."""

    @property
    def name(self) -> str:
        """What people type."""
        ...


_Named = TypeVar("_Named", bound=Named)


def found_in(package: str, constant: str) -> dict[str, _Named]:
    """Name -> what the package's modules offer under `constant`, in the order of the files."""
    found: dict[str, _Named] = {}
    for module in pkgutil.iter_modules(import_module(package).__path__):
        offered: Iterable[_Named] = getattr(import_module(f"{package}.{module.name}"), constant, ())
        found.update({each.name: each for each in offered})
    return found


def pick(kind: str, name: str, known: Mapping[str, _Named]) -> _Named:
    """The one called `name`; InputError offers the nearest names."""
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name.lower()[:100], known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    raise InputError(f"{kind}: there is no {name[:100]!r}; {hint}")
