"""Representatives of kinds, where there are too many kinds to consider every set.

The placement is chosen for one representative per cluster of kinds. All kinds of a cluster need
the same minimum instances, so a placement that has room for the representative has room for all of
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.kinds import TenantKind
from migrator.core.catalogue import Board
from migrator.workload.capacity import highest_rps, least_gpcs

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
    points = np.array([_features(kind, boards, window_s) for kind in kinds])
    alike: dict[tuple[int | None, ...], list[int]] = {}
    for index, kind in enumerate(kinds):
        views = kind.views
        needed = [least_gpcs(views[b].service, boards[b]) if b in views else None for b in boards]
        alike.setdefault(tuple(needed), []).append(index)
    stands_for = list(range(len(kinds)))
    for members in alike.values():
        number = 1 + max(0, most - len(alike)) * len(members) // len(kinds)
        for index, chosen in zip(members, _nearest(points[members], number), strict=True):
            stands_for[index] = members[chosen]
    return stands_for


def _nearest(points: NDArray[np.float64], most: int) -> list[int]:
    """Point -> the medoid of its cluster, by nearest centre."""
    distances = [np.abs(points - points[index]).sum(axis=1) for index in _far_apart(points, most)]
    nearest = np.array(distances).argmin(axis=0)
    chosen = {centre: _middle(points, np.flatnonzero(nearest == centre)) for centre in set(nearest)}
    return [chosen[centre] for centre in nearest]


def _features(kind: TenantKind, boards: Mapping[str, Board], window_s: float) -> list[float]:
    """A kind's rate, and per board its load, accuracies, retraining time, minimum size, weight and
    floor."""
    features = [math.log1p(kind.mean_rps)]
    for name, board in boards.items():
        view = kind.views.get(name)
        if view is None:
            features += [-9.0, *(0.0,) * 6]
            continue
        job = view.retraining
        smallest = board.sms_of(board.sizes[0])
        features += [
            _LOAD_WEIGHT * kind.mean_rps / max(highest_rps(view.service, board), 1e-9),
            view.accuracy,
            0.0 if job is None else job.accuracy_post,
            0.0 if job is None else min(2.0, job.seconds.at(smallest) / window_s),
            float(view.service.min_gpcs),
            math.log(view.service.weight),
            view.service.floor,
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
