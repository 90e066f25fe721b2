"""Where tenants go at once when their GPU went and nothing was thought out: wherever there is room.

The next placement at a window's edge puts right what this did badly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.core.catalogue import Board
from migrator.core.cluster import ClusterGpu, ClusterScenario, ClusterTenant
from migrator.core.placement import configurations
from migrator.core.service import Service
from migrator.workload.load import highest_rps


def refuge(
    scenario: ClusterScenario, names: Sequence[str], homes: Mapping[str, str]
) -> dict[str, str]:
    """Tenant -> GPU for those that find one; `homes` are of everybody else, on the scenario's GPUs.

    Units that must be together go together; the busiest go first, each to the least busy GPU.
    """
    living = dict(homes)
    tenants = {each.name: each for each in scenario.tenants}
    units = sorted(_units(scenario, names), key=lambda unit: -sum(_rps(tenants[e]) for e in unit))
    for unit in units:
        able = [each for each in scenario.gpus if _fits(scenario, unit, each, living)]
        if able:
            chosen = min(able, key=lambda gpu: _load(tenants, gpu, living))
            living |= dict.fromkeys(unit, chosen.name)
    return {name: living[name] for name in names if name in living}


def _units(scenario: ClusterScenario, names: Sequence[str]) -> list[tuple[str, ...]]:
    left = dict.fromkeys(names)
    units = []
    for group in scenario.rules.together:
        unit = tuple(each for each in left if each in group)
        if unit:
            units.append(unit)
            for each in unit:
                del left[each]
    return [*units, *((each,) for each in left)]


def room_for(scenario: ClusterScenario, names: Sequence[str], gpu: ClusterGpu) -> bool:
    """Whether these may share that GPU, and each has an instance's room on it."""
    board, here = gpu.board, [each for each in scenario.tenants if each.name in names]
    if any(len(group.intersection(names)) > 1 for group in scenario.rules.apart):
        return False
    if any(board.name not in each.served for each in here):
        return False
    return _at_once([_least_gpcs(each.served[board.name].service, board) for each in here], board)


def _least_gpcs(service: Service, board: Board) -> int:
    """The smallest instance that it may have to itself and that serves it."""
    able = service.capabilities_rps(board)
    return min(gpcs for gpcs, rps in able.items() if rps > 0 and gpcs >= service.min_gpcs)


def _at_once(least_gpcs: Sequence[int], board: Board) -> bool:
    """Whether a configuration has an instance for each, at least so large."""
    wanted = sorted(least_gpcs, reverse=True)
    return any(
        len(wanted) <= len(sizes)
        and all(gpcs <= size for gpcs, size in zip(wanted, sizes, strict=False))
        for sizes in configurations(board)
    )


def _fits(
    scenario: ClusterScenario,
    unit: Sequence[str],
    gpu: ClusterGpu,
    living: Mapping[str, str],
) -> bool:
    """Whether each has an instance's room there, and no rule is broken."""
    every = [*(name for name, home in living.items() if home == gpu.name), *unit]
    if not room_for(scenario, every, gpu):
        return False
    for group in scenario.rules.together:
        elsewhere = [e for e in group - set(every) if living.get(e) not in (None, gpu.name)]
        if group.intersection(unit) and elsewhere:
            return False
    return True


def _load(
    tenants: Mapping[str, ClusterTenant], gpu: ClusterGpu, living: Mapping[str, str]
) -> float:
    here = [tenants[name] for name, home in living.items() if home == gpu.name]
    return sum(
        _rps(each) / highest_rps(each.served[gpu.board.name].service, gpu.board) for each in here
    )


def _rps(tenant: ClusterTenant) -> float:
    served = next(iter(tenant.served.values()))
    return served.trace.mean_rps
