"""The goodput of placed GPUs with their real tenants.

As many GPUs as the time allows are planned. The others are estimated: the representatives' goodput,
scaled by the ratio of the real tenants' potential to theirs and by the mean error of these
estimates on the planned GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from migrator.cluster.placement.assignment import NamedPlacement
from migrator.cluster.placement.kinds import TenantKind, observation_of, planned_goodput
from migrator.cluster.placement.problem import PlacementProblem
from migrator.cluster.placement.solve import likely_values
from migrator.cluster.scenario import ClusterGpu, ClusterScenario

_AT_ONCE = 16
"""Number of GPUs planned between two checks of the time."""
Names = Mapping[str, tuple[str, ...]]


def representative_values(
    problem: PlacementProblem, homes: NamedPlacement
) -> dict[str, tuple[float, bool]]:
    """GPU -> goodput of its set of items in a window, and whether it was planned."""
    values = likely_values(problem)
    return {
        gpu: (
            float(values[column.board][column.index]),
            bool(problem.sets[column.board].exact[column.index]),
        )
        for gpu, column in homes.set_of.items()
    }


def replan_real_tenants(
    scenario: ClusterScenario,
    problem: PlacementProblem,
    names: Names,
    homes: NamedPlacement,
    kind_of: Mapping[str, TenantKind],
) -> dict[str, tuple[float, bool]]:
    """GPU -> its goodput in a window, and whether that was planned with its own tenants."""
    guessed = {
        gpu: value * _more(problem, homes, gpu, names[gpu], kind_of)
        for gpu, (value, _) in representative_values(problem, homes).items()
    }
    gpus = _spread([gpu for gpu in scenario.gpus if names.get(gpu.name)])
    planned: dict[str, float] = {}
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
        values = problem.workers.map(planned_goodput, observations)
        for gpu, value in zip(batch, values, strict=True):
            planned[gpu.name] = value
            problem.on_planned()
    estimate = sum(guessed[gpu] for gpu in planned)
    realistic = sum(planned.values()) / estimate if estimate else 1.0
    return {
        gpu: (planned[gpu], True) if gpu in planned else (value * realistic, False)
        for gpu, value in guessed.items()
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
    theirs = float(likes @ np.array([_potential(kind) for kind in problem.kinds]))
    of_tenants = sum(_potential(kind_of[name]) for name in names)
    return of_tenants / theirs if theirs else 1.0


def _potential(kind: TenantKind) -> float:
    """Highest rate of correct answers, in requests per second."""
    view = next(iter(kind.views.values()))
    after = 0.0 if view.retraining is None else view.retraining.accuracy_post
    return kind.mean_rps * max(view.accuracy, after)
