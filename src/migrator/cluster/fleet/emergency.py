"""A placement of lost tenants at once, without a search: wherever they fit by mean rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.cluster.placement.items import group_units
from migrator.cluster.scenario import ClusterGpu, ClusterScenario, ClusterTenant
from migrator.workload.capacity import fit_together, highest_rps, least_gpcs


def emergency_placement(
    scenario: ClusterScenario, names: Sequence[str], homes: Mapping[str, str]
) -> dict[str, str]:
    """Tenant -> GPU for tenants that fit; `homes` are the current GPUs of all other tenants.

    Units that must be together go together; the busiest go first, each to the least busy GPU.
    """
    placed = dict(homes)
    tenants = {tenant.name: tenant for tenant in scenario.tenants}
    units = group_units(names, scenario.rules.together)
    for unit in sorted(units, key=lambda unit: -sum(_rps(tenants[name]) for name in unit)):
        able = [gpu for gpu in scenario.gpus if _fits(scenario, unit, gpu, placed)]
        if able:
            chosen = min(able, key=lambda gpu: _load(tenants, gpu, placed))
            placed |= dict.fromkeys(unit, chosen.name)
    return {name: placed[name] for name in names if name in placed}


def room_for(scenario: ClusterScenario, names: Sequence[str], gpu: ClusterGpu) -> bool:
    """Whether these tenants may share the GPU and each has room for an instance."""
    board = gpu.board
    if any(len(group.intersection(names)) > 1 for group in scenario.rules.apart):
        return False
    needed = []
    for tenant in scenario.tenants:
        if tenant.name in names:
            served = tenant.served.get(board.name)
            size = None if served is None else least_gpcs(served.service, board)
            if size is None:
                return False
            needed.append(size)
    return fit_together(needed, board)


def _fits(
    scenario: ClusterScenario,
    unit: Sequence[str],
    gpu: ClusterGpu,
    placed: Mapping[str, str],
) -> bool:
    """Whether each tenant has room for an instance on the GPU and no rule is broken."""
    sharing = [*(name for name, home in placed.items() if home == gpu.name), *unit]
    if not room_for(scenario, sharing, gpu):
        return False
    together = (group for group in scenario.rules.together if group.intersection(unit))
    return not any(placed.get(name, gpu.name) != gpu.name for group in together for name in group)


def _load(
    tenants: Mapping[str, ClusterTenant], gpu: ClusterGpu, placed: Mapping[str, str]
) -> float:
    sharing = [tenants[name] for name, home in placed.items() if home == gpu.name]
    return sum(
        _rps(tenant) / highest_rps(tenant.served[gpu.board.name].service, gpu.board)
        for tenant in sharing
    )


def _rps(tenant: ClusterTenant) -> float:
    served = next(iter(tenant.served.values()))
    return served.trace.mean_rps
