"""Representatives of similar kinds of tenants, used if there are too many to consider every set.

The placement is chosen for one representative per cluster of kinds. All kinds of a cluster need
the same minimum instances, so a placement that has room for the representative has room for all of
them. Afterwards as many GPUs as the time allows are planned with their real tenants. The others are
estimated: the representatives' goodput, scaled by the ratio of the real tenants' potential to
theirs and by the mean error of these estimates on the planned GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.market import Market
from migrator.cluster.placement.moves import NamedPlacement
from migrator.cluster.placement.prices import TenantKind, observation_of, planned_goodput
from migrator.cluster.placement.solve import likely_values
from migrator.core.catalogue import Board
from migrator.core.cluster import ClusterGpu, ClusterScenario
from migrator.workload.arrivals import highest_rps, least_gpcs

MOST_CLASSES = 20

_LOAD_WEIGHT = 4.0
"""Weight of the load: it counts most because it decides which tenants fit together."""


def representatives(
    kinds: Sequence[TenantKind],
    boards: Mapping[str, Board],
    window_s: float,
    most: int = MOST_CLASSES,
) -> list[int]:
    """Kind -> its representative; the kind itself if there are at most `most` kinds.

    There are more than `most` representatives only if there are more combinations of minimum
    instances than that.
    """
    if len(kinds) <= most:
        return list(range(len(kinds)))
    points = np.array([_features(each, boards, window_s) for each in kinds])
    alike: dict[tuple[int | None, ...], list[int]] = {}
    for index, each in enumerate(kinds):
        views = each.views
        needed = [least_gpcs(views[b].service, boards[b]) if b in views else None for b in boards]
        alike.setdefault(tuple(needed), []).append(index)
    stands_for = list(range(len(kinds)))
    for members in alike.values():
        some = 1 + max(0, most - len(alike)) * len(members) // len(kinds)
        for index, chosen in zip(members, _nearest(points[members], some), strict=True):
            stands_for[index] = members[chosen]
    return stands_for


def _nearest(points: NDArray[np.float64], most: int) -> list[int]:
    """Point -> the medoid of its cluster, by nearest centre."""
    centres = _far_apart(points, most)
    nearest = np.array([np.abs(points - points[at]).sum(axis=1) for at in centres]).argmin(axis=0)
    chosen = {each: _middle(points, np.flatnonzero(nearest == each)) for each in set(nearest)}
    return [chosen[each] for each in nearest]


def _features(kind: TenantKind, boards: Mapping[str, Board], window_s: float) -> list[float]:
    """A kind's rate, and per board its load, accuracies, retraining time and minimum size."""
    features = [math.log1p(kind.mean_rps)]
    for name, board in boards.items():
        view = kind.views.get(name)
        if view is None:
            features += [-9.0, 0.0, 0.0, 0.0, 0.0]
            continue
        job = view.retraining
        smallest = board.sms_of(board.sizes[0])
        features += [
            _LOAD_WEIGHT * kind.mean_rps / max(highest_rps(view.service, board), 1e-9),
            view.accuracy,
            0.0 if job is None else job.accuracy_post,
            0.0 if job is None else min(2.0, job.seconds.at(smallest) / window_s),
            float(view.service.min_gpcs),
        ]
    return features


def _far_apart(points: NDArray[np.float64], most: int) -> list[int]:
    """Farthest-point sampling, starting with the first point."""
    chosen = [0]
    distance = np.abs(points - points[0]).sum(axis=1)
    while len(chosen) < most and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.abs(points - points[chosen[-1]]).sum(axis=1))
    return chosen


def _middle(points: NDArray[np.float64], members: NDArray[np.intp]) -> int:
    centre = np.median(points[members], axis=0)
    return int(members[np.abs(points[members] - centre).sum(axis=1).argmin()])


_AT_ONCE = 16
"""Number of GPUs planned between two checks of the time."""

Names = Mapping[str, tuple[str, ...]]


def representative_values(market: Market, homes: NamedPlacement) -> dict[str, tuple[float, bool]]:
    """GPU -> goodput of its set of items in a window, and whether it was planned."""
    values = likely_values(market)
    return {
        gpu: (
            float(values[each.board][each.index]),
            bool(market.sets[each.board].exact[each.index]),
        )
        for gpu, each in homes.given.items()
    }


def replan_real_tenants(
    scenario: ClusterScenario,
    market: Market,
    names: Names,
    homes: NamedPlacement,
    kind_of: Mapping[str, TenantKind],
) -> dict[str, tuple[float, bool]]:
    """GPU -> its goodput in a window, and whether that was planned with its own tenants."""
    guessed = {
        gpu: value * _more(market, homes, gpu, names[gpu], kind_of)
        for gpu, (value, _) in representative_values(market, homes).items()
    }
    gpus = _spread([each for each in scenario.gpus if names.get(each.name)])
    planned: dict[str, float] = {}
    for begin in range(0, len(gpus), _AT_ONCE):
        if market.budget.late:
            break
        some = gpus[begin : begin + _AT_ONCE]
        asked = [
            observation_of(
                gpu.board,
                scenario.slot_s,
                scenario.slots,
                [kind_of[name].views[gpu.board.name] for name in names[gpu.name]],
            )
            for gpu in some
        ]
        for gpu, value in zip(some, market.workers.map(planned_goodput, asked), strict=True):
            planned[gpu.name] = value
            market.on_planned()
    known = sum(guessed[gpu] for gpu in planned)
    realistic = sum(planned.values()) / known if known else 1.0
    return {
        gpu: (planned[gpu], True) if gpu in planned else (value * realistic, False)
        for gpu, value in guessed.items()
    }


def _spread(gpus: Sequence[ClusterGpu]) -> list[ClusterGpu]:
    """The GPUs ordered so that any prefix is representative, because neighbours are similar."""
    step = max(1, round(len(gpus) ** 0.5))
    return [gpu for first in range(step) for gpu in gpus[first::step]]


def _more(
    market: Market,
    homes: NamedPlacement,
    gpu: str,
    names: tuple[str, ...],
    kind_of: Mapping[str, TenantKind],
) -> float:
    """The potential of a GPU's real tenants relative to that of their representatives."""
    likes = market.weights(homes.given[gpu].counts)
    theirs = float(likes @ np.array([_potential(each) for each in market.kinds]))
    own = sum(_potential(kind_of[name]) for name in names)
    return own / theirs if theirs else 1.0


def _potential(kind: TenantKind) -> float:
    """Highest rate of correct answers, in requests per second."""
    view = next(iter(kind.views.values()))
    after = 0.0 if view.retraining is None else view.retraining.accuracy_post
    return kind.mean_rps * max(view.accuracy, after)
