"""What every file about tenants asks: names of their own, sizes that the board has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from migrator.core.catalogue import Board
from migrator.io.strict import Location, listed, refuse, shown

_Value = TypeVar("_Value", int, float)


def require_names(names: Sequence[str]) -> None:
    """Refuse tenants without a printable name of their own."""
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        location = ("tenants", index, "name")
        if not name.strip():
            refuse(location, "the name is empty", "give every tenant a name")
        if not name.isprintable():
            refuse(location, f"{shown(name)} cannot be printed", "use letters and digits")
        if name in seen:
            refuse(
                location,
                f"{shown(name)} is already the name of tenants[{seen[name]}]",
                "give every tenant a name of its own",
            )
        seen[name] = index


def by_size(values: Mapping[str, _Value], location: Location, board: Board) -> dict[int, _Value]:
    """The values by instance size; a size that the board does not have is refused."""
    known = {str(gpcs): gpcs for gpcs in board.sizes}
    for size in values:
        if size not in known:
            refuse((*location, size), no_such_size(board, shown(size)), sizes_remedy(board))
    return {known[size]: values[size] for size in sorted(values)}


def no_such_size(board: Board, size: object) -> str:
    """What is wrong with a size."""
    return f"{board.name} has no instance size {size}"


def sizes_remedy(board: Board) -> str:
    """What to give in its place."""
    return f"use {listed(board.sizes)} GPCs"
