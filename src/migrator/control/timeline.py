"""A decision laid on time: which sites are wanted when, read strictly before anything is done."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from migrator.control.units import Site, fits
from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.instance import Kind, Task
from migrator.core.share import Holding

Wanted = Mapping[Site, Task | None]
"""What each site is wanted for; None: it only has to exist."""

_TOLERANCE_S = 1e-6
"""A tick that comes this much before a slot belongs to it: sums of floats are not exact."""


@dataclass(frozen=True)
class Stretch:
    """Slots in a row that want the same."""

    begin_s: float
    wanted: Wanted
    mask: int
    """Memory slices of all of it."""
    retrains: bool
    """Whether a retraining is part of it."""


class Timeline:
    """A decision from `begin_s` on; its last slot goes on."""

    def __init__(
        self, board: Board, begin_s: float, slots: Sequence[tuple[Holding, ...]], slot_s: float
    ) -> None:
        if not slots or not slot_s > 0:
            raise InputError(
                "decision: has no slots, or slots without length; give what is held from now on"
            )
        self.slot_s = slot_s
        self._stretches: list[Stretch] = []
        number = 0
        for holdings, run in groupby(slots):
            self._add(begin_s + number * slot_s, _wanted(board, holdings))
            number += sum(1 for _ in run)
        self._begins_s = [each.begin_s for each in self._stretches]

    def at(self, now_s: float) -> Stretch:
        """What is wanted now."""
        return self._stretches[self._index(now_s)]

    def to_come(self, now_s: float) -> Iterator[Stretch]:
        """What is wanted after that, in order."""
        for index in range(self._index(now_s) + 1, len(self._stretches)):
            yield self._stretches[index]

    def _add(self, begin_s: float, wanted: Wanted) -> None:
        if self._stretches and self._stretches[-1].wanted == wanted:
            return
        mask = 0
        for site in wanted:
            mask |= site.mask
        retrains = any(task and task.kind is Kind.RETRAINING for task in wanted.values())
        self._stretches.append(Stretch(begin_s, wanted, mask, retrains))

    def _index(self, now_s: float) -> int:
        return max(0, bisect_right(self._begins_s, now_s + _TOLERANCE_S) - 1)


def _wanted(board: Board, holdings: tuple[Holding, ...]) -> Wanted:
    wanted: dict[Site, Task | None] = {}
    for holding in holdings:
        site = Site.of(board, holding)
        if site in wanted or not fits(board, site, wanted):
            raise InputError(
                f"decision: {holding} has no room beside {', '.join(map(str, wanted))}; "
                "check the plan"
            )
        wanted[site] = holding.task
    return dict(sorted(wanted.items()))
