"""What serves before any plan: the board split evenly."""

from __future__ import annotations

from collections.abc import Iterable

from migrator.core.catalogue import Board
from migrator.core.instance import Kind
from migrator.core.share import Holding
from migrator.live.tenant_run import TenantRun
from migrator.live.window_clock import WindowClock
from migrator.policies.equal_shares import EqualMps, equal_allocation
from migrator.policies.policy import Observation, Sharing


def even_split(
    sharing: Sharing, board: Board, tenants: Iterable[TenantRun], clock: WindowClock
) -> tuple[Holding, ...]:
    """Inference for everybody who is planned for, on shares where the policy divides by them."""
    views = tuple(each.view() for each in tenants if each.planned)
    if not views:
        return ()
    nothing = Observation(board, clock.slot_s, clock.slots, 0, views, ())
    if sharing is Sharing.MIG:
        found: tuple[Holding, ...] = equal_allocation(nothing)
    else:
        found = EqualMps().decide(nothing).slots[0]
    return tuple(each for each in found if each.task and each.task.kind is Kind.INFERENCE)
