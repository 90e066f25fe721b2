"""The paper's second motivation: the split between two models that serves most in each second.

Computed, not simulated: a split answers requests up to its capability, nothing is queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrator.core.catalogue import Board, Multiset, multisets
from migrator.core.profiles import Service
from migrator.core.scenario import Scenario
from migrator.report.page import Axis, Lines, Series, Table
from migrator.report.terminal import percent
from migrator.reproduce.experiment import (
    Experiment,
    Figures,
    Findings,
    Outcomes,
    Setting,
    bars,
    listed,
    table,
)
from migrator.reproduce.sources import (
    ALIBABA,
    AZURE,
    INCEPTION,
    RESNET,
    MotivationSource,
    TracedModel,
)

LOAD = 0.45
"""Load of each model as a share of the board: together they need 0.9 of it on average."""

_TIE = 1e-9
_Rates = NDArray[np.float64]
"""Requests per second, one value per second."""


@dataclass(frozen=True)
class AllocationChoice:
    """Requests that every split would serve, second by second."""

    splits: tuple[str, ...]
    """GPCs of the first and the second model, as text."""
    received: tuple[_Rates, _Rates]
    served: NDArray[np.float64]
    """[split, second]"""
    best: tuple[int, ...]
    """Per second, the split that serves most; see `best_splits` for ties."""

    def seconds(self, split: int) -> int:
        """Number of seconds in which the split is best."""
        return self.best.count(split)

    def share(self, split: int | None = None) -> float:
        """Served over received with one fixed split, or with the best split of each second."""
        total = float(sum(rates.sum() for rates in self.received))
        served = self.served.max(axis=0) if split is None else self.served[split]
        return float(served.sum()) / total if total else 0.0

    @property
    def best_held(self) -> int:
        """The split that serves most if it is held in all seconds."""
        return int(self.served.sum(axis=1).argmax())


def capability_pairs(board: Board, services: Sequence[Service]) -> dict[str, list[list[float]]]:
    """Split -> requests per second that both models can answer, for every legal layout."""
    rps = [service.capabilities_rps(board) for service in services]
    legal, whole = set(multisets(board)), board.compute_slices
    pairs: dict[str, list[list[float]]] = {}
    for first in range(1, whole):
        pairs[f"{first}-{whole - first}"] = [
            [sum(rps[0][size] for size in first_sizes), sum(rps[1][size] for size in other)]
            for first_sizes in legal
            for other in legal
            if sum(first_sizes) <= first
            and sum(other) <= whole - first
            and _joined(first_sizes, other) in legal
        ]
    return pairs


def _joined(one: Multiset, other: Multiset) -> Multiset:
    return tuple(sorted((*one, *other), reverse=True))


def best_splits(
    pairs: dict[str, list[list[float]]], received: tuple[_Rates, _Rates]
) -> AllocationChoice:
    """Find the split that serves most in each second.

    Of several, choose the split that leaves most spare capability to the model with the least.
    """
    layouts = [np.array(pair) for pair in pairs.values()]
    per_split = [_served_and_room(layout, received) for layout in layouts]
    served = np.stack([split[0] for split in per_split])
    room = np.stack([split[1] for split in per_split])
    leading = served >= served.max(axis=0) - _TIE
    best = np.where(leading, room, -np.inf).argmax(axis=0)
    return AllocationChoice(tuple(pairs), received, served, tuple(int(split) for split in best))


def _served_and_room(
    layouts: NDArray[np.float64], received: tuple[_Rates, _Rates]
) -> tuple[_Rates, _Rates]:
    """Requests that the best layout of a split serves, and the least capability over received."""
    arrivals = np.stack(received)[None]
    able = layouts[:, :, None]
    served = np.minimum(arrivals, able).sum(axis=1)
    room = (able / np.maximum(arrivals, 1.0)).min(axis=1)
    return served.max(axis=0), room.max(axis=0)


def _findings(setting: Setting, _: Outcomes) -> Findings:
    scenario = _scenario(setting)
    choice = _choice(scenario)
    splits = range(len(choice.splits))
    return Findings(
        paragraphs=(
            f"Which split of the 7 GPCs between two models serves most in each of the "
            f"{len(choice.best)} seconds of a window? Inception-v3 is asked by the Azure trace, "
            f"ResNet-50 by the Alibaba trace, each at a mean of {LOAD:g} of what the whole board "
            "could answer for it.",
            "A split serves what comes up to its capability, laid out as suits that second best; "
            "nothing is queued. Where several splits serve equally much, the one counts that "
            "leaves most room to the model that has least of it.",
        ),
        blocks=(
            Lines(
                title="Requests per second of both models",
                at=tuple(float(second) for second in range(len(choice.best))),
                series=tuple(
                    Series(tenant.name, tuple(received.tolist()))
                    for tenant, received in zip(scenario.tenants, choice.received, strict=True)
                ),
                x=Axis("time", "s"),
                y=Axis("requests per second"),
            ),
            bars(
                "How often each split serves most",
                choice.splits,
                {"seconds": [float(choice.seconds(at)) for at in splits]},
                Axis("GPCs of Inception-v3 and of ResNet-50"),
                Axis("seconds"),
            ),
            _table(choice),
        ),
        reported=(
            "The best allocation varies among all possible ones, from `6-1` to `1-6`, within one "
            "window of 200 s; therefore a static partition will not do.",
        ),
        differs=_differs(choice),
    )


def _figures(setting: Setting, _: Outcomes) -> Figures:
    choice = _choice(_scenario(setting))
    splits = list(enumerate(choice.splits))
    return {
        "load": LOAD,
        "seconds_best": {split: choice.seconds(at) for at, split in splits},
        "served_share_held": {split: choice.share(at) for at, split in splits},
        "served_share_best_each_second": choice.share(),
    }


def _scenario(setting: Setting) -> Scenario:
    tenants = (TracedModel(INCEPTION, AZURE, LOAD), TracedModel(RESNET, ALIBABA, LOAD))
    return MotivationSource("two models", tenants, setting.data)(setting.seeds[0], 1)


def _choice(scenario: Scenario) -> AllocationChoice:
    first, second = (
        tenant.trace.counts[tenant.offset_s : tenant.offset_s + int(scenario.window_s)].astype(
            float
        )
        for tenant in scenario.tenants
    )
    services = [tenant.service for tenant in scenario.tenants]
    return best_splits(capability_pairs(scenario.board, services), (first, second))


def _table(choice: AllocationChoice) -> Table:
    rows = [
        (
            split,
            str(choice.seconds(at)),
            f"{100 * choice.share(at):.1f}",
        )
        for at, split in enumerate(choice.splits)
    ]
    return table(
        "Every split: when it is best, and what it serves if it is held all the time",
        ("split", "best (s)", "served when held (%)"),
        (*rows, ("best of each second", "", f"{100 * choice.share():.1f}")),
        [(choice.best_held, 2)],
    )


def _differs(choice: AllocationChoice) -> tuple[str, ...]:
    used = [split for at, split in enumerate(choice.splits) if choice.seconds(at)]
    never = [split for split in choice.splits if split not in used]
    held = choice.splits[choice.best_held]
    lost = choice.share() - choice.share(choice.best_held)
    missing = f" Never best: {listed(never)}." if never else ""
    return (
        f"{len(used)} of the {len(choice.splits)} splits are best in some second "
        f"({listed(used)}).{missing}",
        f"What matters is what a fixed split loses: `{held}`, the best one to hold, serves "
        f"{percent(choice.share(choice.best_held))} of what comes, the best split of each second "
        f"{percent(choice.share())}. So knowing every second and changing for free is worth "
        f"{100 * lost:.1f} points here at most; a real change costs seconds of an instance.",
        "How often the extremes win depends on how bursty the traces are and how they are scaled. "
        "The paper does not say how its were scaled, nor how it counts ties.",
    )


BEST_ALLOCATION = Experiment(
    "best-allocation",
    "Two models: the best allocation of every second",
    lambda _: (),  # no runs: the result follows from arrivals and capabilities
    _findings,
    _figures,
)
