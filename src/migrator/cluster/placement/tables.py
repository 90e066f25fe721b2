"""Tables of kinds on one board: value per slot and pattern of instances, retrainings, needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.kinds import TenantKind
from migrator.cluster.scenario import ClusterScenario
from migrator.core.catalogue import Board, configurations, multisets
from migrator.core.problem import Tenant
from migrator.planning.exact.tables import NEVER, expected_throughput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BLOCKS = 40
"""Approximate number of blocks of slots when searching for prices."""


@dataclass(frozen=True, eq=False)
class BoardTable:
    """Tables of some kinds on one board; [kind, ...] throughout."""

    gpcs: Floats
    """[size]"""
    counts: Floats
    """[pattern, size]"""
    offered: Floats
    """[configuration, size]"""
    before: Floats
    """[kind, slot, pattern]: goodput of a slot before a retraining, with the kind's weight and what
    its floor counts; NEVER if not allowed."""
    after: Floats
    """The same after the retraining."""
    durations: Ints
    """[kind, size]: slots of a retraining, 0 if not possible."""
    needs: Ints
    """[kind, size]: 1 if the kind always needs an instance of at least that size."""
    able: NDArray[np.bool_]
    """[kind]: whether the board can serve it."""

    @cached_property
    def coarse(self) -> BoardTable:
        """The tables in blocks of slots, for a faster search of prices; not a bound."""
        slots = self.before.shape[1]
        per_block = next(
            length for length in range(-(-slots // BLOCKS), slots + 1) if slots % length == 0
        )
        blocks = slots // per_block
        shape = (len(self.before), blocks, per_block, -1)
        return replace(
            self,
            before=self.before.reshape(shape).sum(axis=2),
            after=self.after.reshape(shape).sum(axis=2),
            durations=-(-self.durations // per_block),
        )

    @cached_property
    def retrainings(self) -> tuple[Ints, NDArray[np.bool_]]:
        """[kind, size, end]: first slot of a retraining with that end; whether it can end there."""
        ends, taken = np.arange(self.before.shape[1] + 1), self.durations[:, :, None]
        return np.maximum(ends - taken, 0), (taken > 0) & (ends >= taken)

    def of_kinds(self, kinds: Ints) -> BoardTable:
        return replace(
            self,
            before=self.before[kinds],
            after=self.after[kinds],
            durations=self.durations[kinds],
            needs=self.needs[kinds],
            able=self.able[kinds],
        )


def tabulate(
    board: Board, slots: int, tenants: Sequence[Tenant | None], short_cost: float = 0.0
) -> BoardTable:
    """Tabulate one tenant of each kind; None for a kind that the board cannot serve.

    An answered request that a floor asks for is worth `short_cost` more.
    """
    patterns = multisets(board)
    counts = np.array([[p.count(size) for size in board.sizes] for p in patterns], np.float64)
    shape = (len(tenants), slots, len(patterns))
    before, after = np.full(shape, NEVER), np.full(shape, NEVER)
    durations = np.zeros((len(tenants), len(board.sizes)), np.int64)
    needs = np.zeros_like(durations)
    for kind, tenant in enumerate(tenants):
        if tenant is None:
            continue
        able = np.array([_may_hold(tenant, p) for p in patterns])
        capability = np.array([tenant.capability.get(size, 0.0) for size in board.sizes])
        served = expected_throughput(tenant, counts[able] @ capability)
        asked = tenant.floor * expected_throughput(tenant, np.full(1, np.inf))
        of_floor = short_cost * np.minimum(served, asked)
        before[kind][:, able] = tenant.weight * tenant.accuracy_pre * served + of_floor
        choice = tenant.configurations[0] if tenant.configurations else None
        accuracy = choice.accuracy if choice else tenant.accuracy_pre
        after[kind][:, able] = tenant.weight * accuracy * served + of_floor
        for size, taken in (choice.slots if choice else {}).items():
            durations[kind, board.sizes.index(size)] = taken
        least = min(size for size in tenant.capability if size >= tenant.min_gpcs)
        needs[kind] = [size <= least for size in board.sizes]
    return BoardTable(
        gpcs=np.array(board.sizes, np.float64),
        counts=counts,
        offered=np.array(
            [[p.count(size) for size in board.sizes] for p in configurations(board)], np.float64
        ),
        before=before,
        after=after,
        durations=durations,
        needs=needs,
        able=np.array([tenant is not None for tenant in tenants]),
    )


def _may_hold(tenant: Tenant, pattern: tuple[int, ...]) -> bool:
    return max(pattern) >= tenant.min_gpcs and all(size in tenant.capability for size in pattern)


def tabulate_kinds(
    scenario: ClusterScenario, kinds: Sequence[TenantKind]
) -> tuple[BoardTable, ...]:
    """The tables of these kinds on every board of the scenario."""
    slot_s, slots = scenario.slot_s, scenario.slots
    return tuple(
        tabulate(
            board,
            slots,
            [kind.tenant(board, slot_s, slots) for kind in kinds],
            scenario.short_cost,
        )
        for board in scenario.boards.values()
    )
