"""A board as far as it is ours to divide: less the places that others hold."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from migrator.core.catalogue import Board, MigProfile
from migrator.gpu.driver import Place


def board_beside(board: Board, others: Collection[Place]) -> Board:
    """The same board without the starts that others are in the way of."""
    if not others:
        return board
    taken = 0
    for each in others:
        taken |= _mask(each.start, board.profile(each.profile).memory_slices)
    profiles = tuple(_beside(each, taken) for each in board.profiles)
    return replace(board, profiles=profiles)


def _beside(profile: MigProfile, taken: int) -> MigProfile:
    width = profile.memory_slices
    free = tuple(start for start in profile.starts if not _mask(start, width) & taken)
    return replace(profile, starts=free)


def _mask(start: int, width: int) -> int:
    return ((1 << width) - 1) << start
