"""Where nearly every tenant is a kind of its own: kinds that are near each other become one class.

A placement is then chosen for the classes' representatives, so that the sets to look at stay few;
what it is worth, and the bound, are still said of the tenants themselves. Kinds of one class need
the same minimum instances: where a representative has room, so has everybody it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from migrator.cluster.placement.demand import Kind
from migrator.core.catalogue import Board
from migrator.workload.load import highest_rps

MOST_CLASSES = 20

_LOAD_WEIGHT = 4.0
"""How much of a board a tenant needs matters most for who fits beside whom."""


def representatives(
    kinds: Sequence[Kind], boards: Mapping[str, Board], window_s: float, most: int = MOST_CLASSES
) -> list[int]:
    """Kind -> the kind that stands for it; each for itself where they are few enough.

    More than `most` stand for others only where that many minimum instances differ.
    """
    if len(kinds) <= most:
        return list(range(len(kinds)))
    points = np.array([_features(each, boards, window_s) for each in kinds])
    alike: dict[tuple[int | None, ...], list[int]] = {}
    for index, each in enumerate(kinds):
        alike.setdefault(_least_gpcs(each, boards), []).append(index)
    stands_for = list(range(len(kinds)))
    for members in alike.values():
        some = 1 + max(0, most - len(alike)) * len(members) // len(kinds)
        for index, chosen in zip(members, _nearest(points[members], some), strict=True):
            stands_for[index] = members[chosen]
    return stands_for


def _least_gpcs(kind: Kind, boards: Mapping[str, Board]) -> tuple[int | None, ...]:
    """Per board the smallest instance it must always hold; None: the board cannot serve it."""
    found: list[int | None] = []
    for name, board in boards.items():
        if name not in kind.views:
            found.append(None)
            continue
        service = kind.views[name].service
        rates = service.capabilities_rps(board)
        found.append(min(g for g, rps in rates.items() if rps > 0 and g >= service.min_gpcs))
    return tuple(found)


def _nearest(points: NDArray[np.float64], most: int) -> list[int]:
    """Point -> the one in the middle of those that are nearest to the same centre."""
    centres = _far_apart(points, most)
    nearest = np.array([np.abs(points - points[at]).sum(axis=1) for at in centres]).argmin(axis=0)
    chosen = {each: _middle(points, np.flatnonzero(nearest == each)) for each in set(nearest)}
    return [chosen[each] for each in nearest]


def _features(kind: Kind, boards: Mapping[str, Board], window_s: float) -> list[float]:
    """What decides how a kind is served: on every board its load, gain and work; its rate."""
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
    """The first one, then again and again the one that is farthest from all chosen so far."""
    chosen = [0]
    distance = np.abs(points - points[0]).sum(axis=1)
    while len(chosen) < most and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.abs(points - points[chosen[-1]]).sum(axis=1))
    return chosen


def _middle(points: NDArray[np.float64], members: NDArray[np.intp]) -> int:
    centre = np.median(points[members], axis=0)
    return int(members[np.abs(points[members] - centre).sum(axis=1).argmin()])
