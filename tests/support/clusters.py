"""Small clusters for tests: short windows on small boards, so that everything can be tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from migrator.cluster.file import parse_cluster
from migrator.cluster.placement.kinds import observation_of, planned_worth, tenant_kinds
from migrator.cluster.scenario import ClusterScenario
from migrator.core.errors import InfeasibleError

MODELS = ("resnet-50", "bert-base", "mobilenet-v2", "vit-b-16", "inception-v3")


def tenant(name: str, model: str = "resnet-50", rps: float = 700.0, **keys: Any) -> dict[str, Any]:
    """A tenant that retrains in three seconds or more, unless `keys` say otherwise."""
    return {
        "name": name,
        "model": model,
        "slo_ms": 100,
        "arrivals": {"generator": "azure", "mean_rps": rps},
        "retraining": {
            "windows": [
                {"accuracy_pre": 0.5, "accuracy_post": 0.9, "seconds": {"1": 5, "2": 3, "4": 2}}
            ]
        },
        **keys,
    }


def cluster(
    tenants: Sequence[Mapping[str, Any]],
    gpus: Sequence[Mapping[str, Any]],
    *,
    window_s: int = 8,
    seed: int = 0,
    **rules: Any,
) -> ClusterScenario:
    """The scenario of one short window."""
    data = {
        "version": 1,
        "window_s": window_s,
        "windows": 1,
        "seed": seed,
        "cluster": {"gpus": [dict(gpu) for gpu in gpus], **rules},
        "tenants": [dict(entry) for entry in tenants],
    }
    return parse_cluster(data, folder=Path(), name="small")


class Tried:
    """Every placement of a small cluster, each GPU planned by the single-GPU planner."""

    def __init__(self, scenario: ClusterScenario) -> None:
        self.scenario = scenario
        self.kinds = tenant_kinds(scenario)
        self._known: dict[tuple[str, tuple[int, ...]], float | None] = {}

    def placements(self) -> Iterator[tuple[dict[str, str], float]]:
        """(tenant -> GPU, value in requests per second) of every one that keeps all rules."""
        names = [placed.name for placed in self.scenario.tenants]
        gpus = [gpu.name for gpu in self.scenario.gpus]
        for homes in product(gpus, repeat=len(names)):
            placement = dict(zip(names, homes, strict=True))
            value = self.value(placement) if self._keeps_rules(placement) else None
            if value is not None:
                yield placement, value

    def value(self, placement: Mapping[str, str]) -> float | None:
        """Its value, which is its goodput without preferences; None where some GPU has no room."""
        total = 0.0
        for gpu in self.scenario.gpus:
            sharing = [t for t in self.scenario.tenants if placement.get(t.name) == gpu.name]
            if any(gpu.board.name not in t.served for t in sharing):
                return None
            goodput = self._gpu(gpu.board.name, tuple(sorted(t.entry for t in sharing)))
            if goodput is None:
                return None
            total += goodput
        return total / self.scenario.window_s

    def _gpu(self, board: str, entries: tuple[int, ...]) -> float | None:
        if not entries:
            return 0.0
        if (board, entries) not in self._known:
            self._known[board, entries] = self._planned(board, entries)
        return self._known[board, entries]

    def _planned(self, name: str, entries: tuple[int, ...]) -> float | None:
        board, slots = self.scenario.boards[name], self.scenario.slots
        views = tuple(self.kinds[entry].views[name] for entry in entries)
        try:
            now = observation_of(board, self.scenario.slot_s, slots, views)
            return planned_worth(now, self.scenario.short_cost).value
        except InfeasibleError:
            return None

    def _keeps_rules(self, placement: Mapping[str, str]) -> bool:
        groups = self.scenario.rules.apart
        return all(len({placement[name] for name in group}) == len(group) for group in groups)
