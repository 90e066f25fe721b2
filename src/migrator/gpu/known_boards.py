"""Which board of the catalogue a GPU is, by what it calls itself and by its memory."""

from __future__ import annotations

import re

from migrator.core.catalogue import Board, boards

_NEAR = 0.06
"""How far a GPU's memory may be off the gigabytes in a board's name."""


def board_named(name: str, memory_mib: float) -> Board | None:
    """The catalogue's board that a GPU of this name and memory is, or None."""
    said = words(name)
    near = {
        board.name: (len(said & words(board.name)), -distance)
        for board in boards().values()
        for kind, distance in [_nominal(board.name, memory_mib)]
        if kind <= said and distance <= _NEAR
    }
    return boards()[max(near, key=lambda each: near[each])] if near else None


def words(name: str) -> set[str]:
    """The parts of a name, however they are set apart."""
    return set(re.split(r"[^A-Z0-9]+", name.upper()))


def _nominal(board: str, memory_mib: float) -> tuple[set[str], float]:
    """The words before a board's memory (what follows is not told by every driver), and how far
    off that memory is."""
    parts = board.upper().split("-")
    memory = next(each for each in parts if each.endswith("GB"))
    gigabytes = float(memory.removesuffix("GB"))
    return set(parts[: parts.index(memory)]), abs(memory_mib / 1024 - gigabytes) / gigabytes
