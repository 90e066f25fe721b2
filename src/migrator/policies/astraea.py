"""Astraea (ASPLOS'22): MPS, meets the latency objectives of the observed load, ignores the value of
retraining.

Every second inference gets the smallest shares that serve the observed rates within the objectives.
If they do not fit, the smallest ratio of capacity to load is maximised. Capacities are predicted
over the share, with the batch that the objective allows and with the bandwidth that everything on
the other SMs would take.

Our adaptations:
- The observed rate is the mean of the last three seconds, chosen among 1 to 20 in this policy's
  favour, in trials on real traces; its only margin is the rounding up.
- Retrainings split the rest in proportion to their compute, which is FLOPs times samples: the
  SM-seconds of their whole work. If nothing is left they wait.
- All shares lie on a grid, so that a small change of rate restarts no process. With the runtime's
  shares the grid is the smallest of them, and what retrainings cannot use of it goes to inference.
- A running retraining keeps its share, unless it ends sooner if it is restarted on a larger one; a
  restart loses what was learned since the last checkpoint.
- If there is nothing to retrain, inference gets the unused rest, by the same rule as under
  overload.
- Before any request has been observed, a tenant is assumed to need what an equal share of all tasks
  serves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.core.catalogue import Board
from migrator.core.problem import Share
from migrator.core.profiles import Service
from migrator.core.scenario import PeerLimits
from migrator.policies import mps_workers
from migrator.policies.mps_workers import PerService
from migrator.policies.policy import Decision, Observation, Policy, Sharing, TenantView

GRID_PERCENT = 5.0
SEEN_S = 3.0
"""Seconds over which the observed rate is averaged."""


class Astraea(Policy):
    """The smallest shares that suffice, every second."""

    name = "astraea"
    summary = "Astraea: every second the smallest MPS shares that serve the observed rates"
    sharing = Sharing.MPS
    every_s = 1.0

    def decide(self, observation: Observation) -> Decision:
        """Divide the GPU: inference first, retraining in proportion to compute."""
        board, limits = observation.board, observation.limits
        menus = [_menu(view.service, board, limits) for view in observation.tenants]
        steps = mps_workers.steps(board, limits, GRID_PERCENT)
        step = mps_workers.step_percent(board, limits, GRID_PERCENT)
        waiting = [view for view in observation.tenants if view.retraining]
        tasks = len(menus) + len(waiting)
        loads_rps = [
            _load_rps(view, menu, observation.slot_s, max(1, steps // tasks))
            for view, menu in zip(observation.tenants, menus, strict=True)
        ]
        reserved = math.ceil(mps_workers.reserved_percent(observation) / step - 1e-6)
        serving = _serving(
            menus, loads_rps, steps - reserved, enough=1 - 1e-9 if waiting else math.inf
        )
        left = steps - sum(level.steps for level in serving)
        parts = {name: many * step for name, many in _parts(waiting, left).items()}
        training = mps_workers.trainings(observation, parts)
        if waiting and not limits.allows_any_share(board):
            used = sum(math.ceil(share.percent * share.duty / step - 1e-6) for share in training)
            serving = _serving(menus, loads_rps, steps - used, enough=math.inf)
        shares = [share for level in serving for share in level.shares]
        return Decision(((*shares, *training),))


@dataclass(frozen=True)
class _Level:
    """A share that serves more than every smaller one."""

    steps: int
    capability_rps: float
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class _ShareMenu:
    """The possible shares of a tenant, ascending, on a GPU that is busy otherwise."""

    service: Service
    board: Board
    levels: tuple[_Level, ...]


def _made(service: Service, board: Board, limits: PeerLimits) -> _ShareMenu:
    step = mps_workers.step_percent(board, limits, GRID_PERCENT)
    least = math.ceil(limits.least_percent(board) / step - 1e-6)
    levels: list[_Level] = []
    for steps in range(least, mps_workers.steps(board, limits, GRID_PERCENT) + 1):
        level = _level(service, board, limits, steps, step)
        if not levels or level.capability_rps > levels[-1].capability_rps * (1 + 1e-9):
            levels.append(level)
    return _ShareMenu(service, board, tuple(levels))


_menu = PerService(_made)


def _level(service: Service, board: Board, limits: PeerLimits, steps: int, step: float) -> _Level:
    percent = steps * step
    slowed, slowdown = mps_workers.beside_busy(service, percent)
    capability_rps = mps_workers.capability_rps(slowed, board, percent, limits) / slowdown
    return _Level(steps, capability_rps, mps_workers.serving(slowed, board, percent, limits))


def _load_rps(view: TenantView, menu: _ShareMenu, slot_s: float, steps: int) -> float:
    """The observed rate in requests per second."""
    seen = view.history[-max(1, round(SEEN_S / slot_s)) :]
    if len(seen):
        return float(seen.mean()) / slot_s
    within = [level for level in menu.levels if level.steps <= steps]
    return (within or menu.levels[:1])[-1].capability_rps


def _serving(
    menus: Sequence[_ShareMenu], loads_rps: Sequence[float], steps: int, enough: float
) -> list[_Level]:
    """The level of each tenant: the one with the lowest ratio is raised until all have `enough`.

    Raising it by the smallest step that helps maximises the smallest ratio; stopping at `enough`
    keeps the shares as small as possible.
    """
    chosen = [0] * len(menus)
    left = steps - sum(menu.levels[0].steps for menu in menus)
    able = list(range(len(menus)))
    while able:
        ratio, worst = min(
            (_ratio(menus[place], chosen[place], loads_rps[place]), place) for place in able
        )
        if ratio >= enough:
            break
        levels, level = menus[worst].levels, chosen[worst]
        if level + 1 < len(levels) and levels[level + 1].steps - levels[level].steps <= left:
            left -= levels[level + 1].steps - levels[level].steps
            chosen[worst] += 1
        else:
            able.remove(worst)
    return [menu.levels[level] for menu, level in zip(menus, chosen, strict=True)]


def _ratio(menu: _ShareMenu, level: int, load_rps: float) -> float:
    """Capacity over load."""
    capability_rps = menu.levels[level].capability_rps
    if load_rps > 0:
        return capability_rps / load_rps
    return math.inf if capability_rps > 0 else 0.0


def _parts(waiting: Sequence[TenantView], steps: int) -> dict[str, int]:
    """Divide the rest by compute, step by step to the tenant that is furthest below its part.

    One step more or less then changes the share of one retraining only.
    """
    shares = [0] * len(waiting)
    compute = [_compute(view) for view in waiting]
    for _ in range(steps if waiting else 0):
        to = max(range(len(shares)), key=lambda place: compute[place] / max(shares[place], 1e-12))
        shares[to] += 1
    return {view.name: many for view, many in zip(waiting, shares, strict=True)}


def _compute(view: TenantView) -> float:
    """SM-seconds of the whole retraining, at the largest measured size."""
    assert view.retraining is not None
    sms, seconds = view.retraining.seconds.points[-1]
    return sms * seconds


POLICIES = (Astraea(),)
