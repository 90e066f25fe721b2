"""What GPUs are worth whose tenants were placed by their likes: planned themselves, or estimated.

An estimate is the worth of the likes, by how much more or less the tenants themselves could bring,
and by how such estimates of the GPUs that were planned turned out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from migrator.cluster.placement.demand import Kind
from migrator.cluster.placement.market import Market
from migrator.cluster.placement.measure import Question, goodput
from migrator.cluster.placement.moves import Named
from migrator.cluster.placement.solve import likely_values
from migrator.core.cluster import ClusterGpu, ClusterScenario

_AT_ONCE = 16
"""GPUs planned between two looks at the clock."""

Names = Mapping[str, tuple[str, ...]]


def values_of(market: Market, homes: Named) -> dict[str, tuple[float, bool]]:
    """GPU -> requests of a window that its set of items is worth, and whether it was planned."""
    values = likely_values(market)
    return {
        gpu: (
            float(values[each.board][each.index]),
            bool(market.sets[each.board].exact[each.index]),
        )
        for gpu, each in homes.given.items()
    }


def planned_themselves(
    scenario: ClusterScenario,
    market: Market,
    names: Names,
    homes: Named,
    kind_of: Mapping[str, Kind],
) -> dict[str, tuple[float, bool]]:
    """GPU -> its goodput in a window, and whether it was planned for its own tenants."""
    guessed = {
        gpu: value * _more(market, homes, gpu, names[gpu], kind_of)
        for gpu, (value, _) in values_of(market, homes).items()
    }
    gpus = _spread([each for each in scenario.gpus if names.get(each.name)])
    planned: dict[str, float] = {}
    for begin in range(0, len(gpus), _AT_ONCE):
        if market.budget.late:
            break
        some = gpus[begin : begin + _AT_ONCE]
        asked = [_question(scenario, each, names[each.name], kind_of) for each in some]
        for gpu, value in zip(some, market.workers.map(goodput, asked), strict=True):
            planned[gpu.name] = value
            market.told()
    known = sum(guessed[gpu] for gpu in planned)
    realistic = sum(planned.values()) / known if known else 1.0
    return {
        gpu: (planned[gpu], True) if gpu in planned else (value * realistic, False)
        for gpu, value in guessed.items()
    }


def _spread(gpus: Sequence[ClusterGpu]) -> list[ClusterGpu]:
    """The GPUs in an order whose beginning stands for all: neighbours often hold the same set."""
    step = max(1, round(len(gpus) ** 0.5))
    return [gpu for first in range(step) for gpu in gpus[first::step]]


def _more(
    market: Market, homes: Named, gpu: str, names: tuple[str, ...], kind_of: Mapping[str, Kind]
) -> float:
    """How much more the tenants of a GPU could bring than those that stand for them."""
    likes = market.weights(homes.given[gpu].counts)
    theirs = float(likes @ np.array([_potential(each) for each in market.kinds]))
    own = sum(_potential(kind_of[name]) for name in names)
    return own / theirs if theirs else 1.0


def _potential(kind: Kind) -> float:
    """Requests per second that it could answer correctly at best."""
    view = next(iter(kind.views.values()))
    after = 0.0 if view.retraining is None else view.retraining.accuracy_post
    return kind.mean_rps * max(view.accuracy, after)


def _question(
    scenario: ClusterScenario, gpu: ClusterGpu, names: tuple[str, ...], kind_of: Mapping[str, Kind]
) -> Question:
    views = tuple(kind_of[name].views[gpu.board.name] for name in names)
    return Question(gpu.board, scenario.slot_s, scenario.slots, views)
