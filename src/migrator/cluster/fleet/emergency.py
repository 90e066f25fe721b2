"""A placement of lost tenants at once, without a search: wherever they fit by mean rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.cluster.scenario import ClusterGpu, ClusterScenario, ClusterTenant
from migrator.workload.capacity import fit_together, highest_rps, least_gpcs


def emergency_placement(
    scenario: ClusterScenario, names: Sequence[str], homes: Mapping[str, str]
) -> dict[str, str]:
    """Tenant -> GPU for tenants that fit; `homes` are the current GPUs of all other tenants.

    Units that must be together go together; the busiest go first, each to the least busy GPU.
    """
    living = dict(homes)
    tenants = {tenant.name: tenant for tenant in scenario.tenants}
    units = sorted(_units(scenario, names), key=lambda unit: -sum(_rps(tenants[e]) for e in unit))
    for unit in units:
        able = [gpu for gpu in scenario.gpus if _fits(scenario, unit, gpu, living)]
        if able:
            chosen = min(able, key=lambda gpu: _load(tenants, gpu, living))
            living |= dict.fromkeys(unit, chosen.name)
    return {name: living[name] for name in names if name in living}


def _units(scenario: ClusterScenario, names: Sequence[str]) -> list[list[str]]:
    """The names grouped by the rules of tenants that must be together."""
    group_of = {name: group for group in scenario.rules.together for name in group}
    units: dict[frozenset[str], list[str]] = {}
    for name in names:
        units.setdefault(group_of.get(name, frozenset((name,))), []).append(name)
    return list(units.values())


def room_for(scenario: ClusterScenario, names: Sequence[str], gpu: ClusterGpu) -> bool:
    """Whether these tenants may share the GPU and each has room for an instance."""
    board, here = gpu.board, [tenant for tenant in scenario.tenants if tenant.name in names]
    if any(len(group.intersection(names)) > 1 for group in scenario.rules.apart):
        return False
    sizes = [
        least_gpcs(each.served[board.name].service, board) if board.name in each.served else None
        for each in here
    ]
    needed = [size for size in sizes if size is not None]
    return len(needed) == len(here) and fit_together(needed, board)


def _fits(
    scenario: ClusterScenario,
    unit: Sequence[str],
    gpu: ClusterGpu,
    living: Mapping[str, str],
) -> bool:
    """Whether each tenant has room for an instance on the GPU and no rule is broken."""
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
        _rps(tenant) / highest_rps(tenant.served[gpu.board.name].service, gpu.board)
        for tenant in here
    )


def _rps(tenant: ClusterTenant) -> float:
    served = next(iter(tenant.served.values()))
    return served.trace.mean_rps
