"""Memory slices of a live run in characters: what sits on them now, and slot by slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from migrator.core.catalogue import Board
from migrator.core.instance import Instance, Kind
from migrator.records.rows import UnitRecord
from migrator.records.standing import UnitStanding
from migrator.records.views import LiveRun, LiveWindow
from migrator.report.plan_blocks import short

_NARROWEST, _WIDEST = 6, 11
"""Columns of a memory slice."""
_EMPTY, _COMING, _UNUSED = "·", "+", "-"
_COLUMNS = 92
_FILLS = {"training": "/", "warming": "+", "creating": "+"}
"""Around the names of units that do not serve."""
KEY = (
    "capital: serves, small: retrains, + being made or warmed, - unused or being emptied, "
    "· no instance"
)


def width_of(board: Board, gpcs: float) -> int:
    """Memory slices of an instance or of a share as large as one."""
    known = board.plain_profiles.get(round(gpcs))
    return known.memory_slices if known else max(1, round(gpcs))


def drawn_units(board: Board, units: Sequence[UnitStanding]) -> str:
    """The memory slices from left to right and whose they are; / retrains, + gets warm."""
    placed = [each for each in units if each.start is not None]
    owners = {each: _owner(each) for each in placed}
    needed = [-(-(len(name) + 5) // width_of(board, each.gpcs)) for each, name in owners.items()]
    columns = min(_WIDEST, max([_NARROWEST, *needed]))
    row = "." * (columns * board.memory_slices)
    for each, owner in owners.items():
        at, room = (each.start or 0) * columns, width_of(board, each.gpcs) * columns
        size = f" {each.gpcs:g}g"
        label = short(owner, room - 2 - len(size)) + size
        fill = _FILLS.get(each.state, " ")
        row = row[:at] + f"[{label:{fill}^{room - 2}}]" + row[at + room :]
    numbers = "".join(f"{each:^{columns}}" for each in range(board.memory_slices))
    return f"slice {numbers.rstrip()}\n      {row}"


def _owner(unit: UnitStanding) -> str:
    return unit.task.rpartition("/")[0] if unit.task else unit.state


def letters_of(tenants: Sequence[str]) -> dict[str, str]:
    """A letter per tenant."""
    return {name: chr(ord("A") + at % 26) for at, name in enumerate(tenants)}


def planned_lines(run: LiveRun, window: LiveWindow, board: Board) -> list[str]:
    """The plan, a line per memory slice and a letter per slot."""
    letters = letters_of(run.tenants)
    columns = [_planned(slot, board, letters) for slot in window.planned]
    return _lines(columns, board)


def held_lines(run: LiveRun, window: LiveWindow, board: Board) -> list[str]:
    """What was really held in the middle of every slot."""
    letters, began_s = letters_of(run.tenants), window.row.began_s
    slots = round((window.until_s - began_s) / run.slot_s)
    columns = []
    for slot in range(slots):
        at_s = began_s + (slot + 0.5) * run.slot_s
        present = [e for e in run.records.units if e.from_s <= at_s < (e.to_s or window.until_s)]
        columns.append(_held(present, board, letters))
    return _lines(columns, board)


def _planned(slot: Iterable[Instance], board: Board, letters: Mapping[str, str]) -> dict[int, str]:
    cells: dict[int, str] = {}
    for each in slot:
        letter = _UNUSED
        if each.task is not None:
            letter = letters.get(each.task.tenant, "?")
            letter = letter.lower() if each.task.kind is Kind.RETRAINING else letter
        cells |= dict.fromkeys(_slices(each.start, each.gpcs, board), letter)
    return cells


def _held(units: Iterable[UnitRecord], board: Board, letters: Mapping[str, str]) -> dict[int, str]:
    cells: dict[int, str] = {}
    for each in units:
        if each.start is None:
            continue  # a share has no place
        letter = letters.get(each.tenant or "", "?")
        signs = {
            "ready": letter,
            "training": letter.lower(),
            "creating": _COMING,
            "warming": _COMING,
        }
        cells |= dict.fromkeys(
            _slices(each.start, each.gpcs, board), signs.get(each.state, _UNUSED)
        )
    return cells


def _slices(start: int, gpcs: float, board: Board) -> range:
    return range(start, start + width_of(board, gpcs))


def _lines(columns: Sequence[Mapping[int, str]], board: Board) -> list[str]:
    stride = max(1, -(-len(columns) // _COLUMNS))
    shown = columns[::stride]
    return [
        f"slice {at} |{''.join(each.get(at, _EMPTY) for each in shown)}|"
        for at in range(board.memory_slices - 1, -1, -1)
    ]
