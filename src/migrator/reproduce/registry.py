"""Experiments by name. A module of this package offers its own in `EXPERIMENTS`."""

from __future__ import annotations

from functools import cache

from migrator.core.registry import found_in, pick
from migrator.reproduce.experiment import Experiment


@cache
def experiments() -> dict[str, Experiment]:
    """Every experiment by name, in the paper's order."""
    found: dict[str, Experiment] = found_in("migrator.reproduce", "EXPERIMENTS")
    return dict(sorted(found.items(), key=lambda item: item[1].place))


def experiment(name: str) -> Experiment:
    """The experiment called `name`; an unknown name is answered with the nearest ones."""
    return pick("experiment", name, experiments())
