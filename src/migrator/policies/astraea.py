"""Astraea (ASPLOS'22): MPS, meets the quality of service of what comes, blind to what retraining
is worth.

Every second inference gets the smallest shares that serve the observed rates within the
objectives; where they do not fit, the smallest ratio of capacity to load is made as large as
possible. Capacities are predicted over the share, with the batch that the objective allows and
with the bandwidth that everything on the other SMs would take.

What is ours:
- The observed rate is the mean of the last three seconds, chosen among 1 to 20 in this policy's
  favour, in trials on real traces; there is no margin on it but the rounding up.
- Retrainings split what is left in proportion to their compute, which is FLOPs times samples:
  the SM-seconds of their whole work. Where nothing is left they wait.
- All shares lie on a grid, so that a small change of rate restarts no process.
- Where nothing is to be retrained the rest is unused, so inference gets it, by the same
  rule as under overload.
- Before anything has been seen a tenant needs as much as an equal share of all tasks serves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from migrator.core.catalogue import Board
from migrator.core.profile import INTERFERING_PART
from migrator.core.service import Service
from migrator.core.share import Share
from migrator.policies import mps_workers
from migrator.policies.mps_workers import PerService
from migrator.policies.policy import Decision, Observation, Routing, Sharing, Sight, TenantView

GRID_PERCENT = 5.0
SEEN_S = 3.0
"""How far back the observed rate looks."""
_STEPS = round(100 / GRID_PERCENT)


class Astraea:
    """The smallest shares that do, every second."""

    name = "astraea"
    summary = "Astraea: every second the smallest MPS shares that serve the observed rates"
    sharing = Sharing.MPS
    sight = Sight.NOTHING
    routing = Routing.EARLIEST
    every_s: float | None = 1.0
    on_completion = True

    def decide(self, observation: Observation) -> Decision:
        """Inference first, retraining by compute."""
        menus = [_menu(view.service, observation.board) for view in observation.tenants]
        waiting = [view for view in observation.tenants if view.retraining]
        tasks = len(menus) + len(waiting)
        loads_rps = [
            _load_rps(view, menu, observation.slot_s, tasks)
            for view, menu in zip(observation.tenants, menus, strict=True)
        ]
        levels = _levels(menus, loads_rps, enough=1 - 1e-9 if waiting else math.inf)
        serving = [menu.levels[level] for menu, level in zip(menus, levels, strict=True)]
        left = _STEPS - sum(each.steps for each in serving)
        shares = [share for each in serving for share in each.shares]
        return Decision(((*shares, *_training(waiting, left)),))


@dataclass(frozen=True)
class _Level:
    """A share that serves more than every smaller one."""

    steps: int
    capability_rps: float
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class _Menu:
    """What a tenant can be given, ascending, beside a GPU that is busy elsewhere."""

    service: Service
    board: Board
    levels: tuple[_Level, ...]


def _made(service: Service, board: Board) -> _Menu:
    levels: list[_Level] = []
    for steps in range(1, _STEPS + 1):
        level = _level(service, board, steps)
        if not levels or level.capability_rps > levels[-1].capability_rps * (1 + 1e-9):
            levels.append(level)
    return _Menu(service, board, tuple(levels))


_menu = PerService(_made)


def _level(service: Service, board: Board, steps: int) -> _Level:
    percent = steps * GRID_PERCENT
    beside = (1 - percent / 100) / INTERFERING_PART
    slowdown = 1 + service.profile.interference * beside
    # a batch that takes longer by a factor is one against an objective shorter by it
    slowed = replace(service, slo_s=service.slo_s / slowdown)
    capability_rps = mps_workers.capability_rps(slowed, board, percent) / slowdown
    return _Level(steps, capability_rps, mps_workers.serving(slowed, board, percent))


def _load_rps(view: TenantView, menu: _Menu, slot_s: float, tasks: int) -> float:
    """The observed rate."""
    seen = view.history[-max(1, round(SEEN_S / slot_s)) :]
    if len(seen):
        return float(seen.mean()) / slot_s
    within = [each for each in menu.levels if each.steps <= max(1, _STEPS // tasks)]
    return within[-1].capability_rps


def _levels(menus: Sequence[_Menu], loads_rps: Sequence[float], enough: float) -> list[int]:
    """Which level each tenant gets: the worst off is raised until all have `enough`.

    Raising the worst off by the smallest step that helps makes the smallest ratio as large as
    can be; ending at `enough` makes the shares as small as can be.
    """
    chosen = [0] * len(menus)
    left = _STEPS - sum(menu.levels[0].steps for menu in menus)
    able = list(range(len(menus)))
    while able:
        ratio, worst = min(
            (_ratio(menus[each], chosen[each], loads_rps[each]), each) for each in able
        )
        if ratio >= enough:
            break
        levels, level = menus[worst].levels, chosen[worst]
        if level + 1 < len(levels) and levels[level + 1].steps - levels[level].steps <= left:
            left -= levels[level + 1].steps - levels[level].steps
            chosen[worst] += 1
        else:
            able.remove(worst)
    return chosen


def _ratio(menu: _Menu, level: int, load_rps: float) -> float:
    """Capacity over load."""
    capability_rps = menu.levels[level].capability_rps
    if load_rps > 0:
        return capability_rps / load_rps
    return math.inf if capability_rps > 0 else 0.0


def _training(waiting: Sequence[TenantView], steps: int) -> list[Share]:
    """The rest by compute, step by step to the tenant that is furthest below its part.

    One step more or less then changes the share of one retraining only.
    """
    given = [0] * len(waiting)
    compute = [_compute(view) for view in waiting]
    for _ in range(steps if waiting else 0):
        to = max(range(len(given)), key=lambda each: compute[each] / max(given[each], 1e-12))
        given[to] += 1
    return [
        mps_workers.training(view.name, many * GRID_PERCENT)
        for view, many in zip(waiting, given, strict=True)
        if many
    ]


def _compute(view: TenantView) -> float:
    """SM-seconds of the whole retraining, at the largest measured size."""
    assert view.retraining is not None
    sms, seconds = view.retraining.seconds.points[-1]
    return sms * seconds


POLICIES = (Astraea(),)
