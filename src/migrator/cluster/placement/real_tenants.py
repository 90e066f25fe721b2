"""What placed GPUs are worth with their real tenants.

As many GPUs as the time allows are planned. The others are estimated: the representatives' worth,
scaled by the ratio of the real tenants' potential to theirs and by the mean error of these
estimates on the planned GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from migrator.cluster.placement.assignment import NamedPlacement
from migrator.cluster.placement.kinds import TenantKind, observation_of, planned_worth
from migrator.cluster.placement.problem import PlacementProblem
from migrator.cluster.placement.solve import likely_values
from migrator.cluster.scenario import ClusterGpu, ClusterScenario, Worth

_AT_ONCE = 16
"""Number of GPUs planned between two checks of the time."""
Names = Mapping[str, tuple[str, ...]]


def representative_worths(problem: PlacementProblem, homes: NamedPlacement) -> dict[str, Worth]:
    """GPU -> what its set of items is worth in a window."""
    values = likely_values(problem)
    return {
        gpu: problem.sets[column.board].worth(
            column.index, float(values[column.board][column.index])
        )
        for gpu, column in homes.set_of.items()
    }


def replan_real_tenants(
    scenario: ClusterScenario,
    problem: PlacementProblem,
    names: Names,
    homes: NamedPlacement,
    kind_of: Mapping[str, TenantKind],
) -> dict[str, Worth]:
    """GPU -> what its own tenants are worth in a window."""
    guessed = {
        gpu: worth.scaled(_more(problem, homes, gpu, names[gpu], kind_of))
        for gpu, worth in representative_worths(problem, homes).items()
    }
    gpus = _spread([gpu for gpu in scenario.gpus if names.get(gpu.name)])
    planned: dict[str, Worth] = {}
    for begin in range(0, len(gpus), _AT_ONCE):
        if problem.budget.late:
            break
        batch = gpus[begin : begin + _AT_ONCE]
        observations = [
            observation_of(
                gpu.board,
                scenario.slot_s,
                scenario.slots,
                [kind_of[name].views[gpu.board.name] for name in names[gpu.name]],
            )
            for gpu in batch
        ]
        worths = problem.workers.map(
            partial(planned_worth, short_cost=problem.short_cost), observations
        )
        for gpu, worth in zip(batch, worths, strict=True):
            planned[gpu.name] = worth
            problem.on_planned()
    estimate = sum(guessed[gpu].value for gpu in planned)
    realistic = sum(worth.value for worth in planned.values()) / estimate if estimate else 1.0
    return {
        gpu: planned[gpu] if gpu in planned else replace(worth.scaled(realistic), planned=False)
        for gpu, worth in guessed.items()
    }


def _spread(gpus: Sequence[ClusterGpu]) -> list[ClusterGpu]:
    """The GPUs ordered so that any prefix is representative, because neighbours are similar."""
    step = max(1, round(len(gpus) ** 0.5))
    return [gpu for first in range(step) for gpu in gpus[first::step]]


def _more(
    problem: PlacementProblem,
    homes: NamedPlacement,
    gpu: str,
    names: tuple[str, ...],
    kind_of: Mapping[str, TenantKind],
) -> float:
    """The potential of a GPU's real tenants relative to that of their representatives."""
    likes = problem.weights(homes.set_of[gpu].counts)
    cost = problem.short_cost
    theirs = float(likes @ np.array([_potential(kind, cost) for kind in problem.kinds]))
    of_tenants = sum(_potential(kind_of[name], cost) for name in names)
    return of_tenants / theirs if theirs else 1.0


def _potential(kind: TenantKind, short_cost: float) -> float:
    """Highest value per second."""
    view = next(iter(kind.views.values()))
    after = 0.0 if view.retraining is None else view.retraining.accuracy_post
    per_request = view.service.weight * max(view.accuracy, after) + short_cost * view.service.floor
    return kind.mean_rps * per_request
