"""Where shares of MPS are drawn: they have no place on the board, so they are stacked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from migrator.core.catalogue import Board
from migrator.records.rows import UnitRecord
from migrator.report.live_slices import width_of

_NEVER_S = float("inf")


def starts_of(units: Iterable[UnitRecord], board: Board) -> Mapping[str, float]:
    """The first slice of every unit by its name; a share gets the lowest stretch that is free.

    While shares overlap because the new ones get warm beside the old, the topmost are drawn over
    what is there: the board has no more to give.
    """
    starts: dict[str, float] = {}
    lives: dict[str, list[UnitRecord]] = {}
    for each in sorted(units, key=lambda unit: unit.from_s):
        lives.setdefault(each.unit, []).append(each)
    there: list[tuple[float, float, float]] = []
    for name, states in lives.items():
        first, until_s = states[0], _until_s(states[-1])
        there = [each for each in there if each[0] > first.from_s]
        width = slices_of(first, board)
        if first.start is None:
            start = _lowest([(low, high) for _, low, high in there], width, board.memory_slices)
        else:
            start = float(first.start)
        starts[name] = start
        there.append((until_s, start, start + width))
    return starts


def slices_of(unit: UnitRecord, board: Board) -> float:
    """How many memory slices wide it is drawn."""
    if unit.start is None:
        return unit.gpcs * board.memory_slices / board.compute_slices
    return float(width_of(board, unit.gpcs))


def size_of(unit: UnitRecord, board: Board) -> str:
    """Its size in words: of an instance the GPCs, of a share the percentage."""
    if unit.start is None:
        return f"{100 * unit.gpcs / board.compute_slices:.3g}%"
    return f"{unit.gpcs:g}g"


def _until_s(unit: UnitRecord) -> float:
    return _NEVER_S if unit.to_s is None else unit.to_s


def _lowest(taken: list[tuple[float, float]], width: float, slices: int) -> float:
    at = 0.0
    for low, high in sorted(taken):
        if low - at >= width - 1e-6:
            break
        at = max(at, high)
    return max(0.0, min(at, slices - width))
