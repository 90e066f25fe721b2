"""Weights and floors of the tenants of a run, and how far the run kept to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from migrator.core.outcome import Tally
from migrator.core.profiles import Service

_MOST_NAMED = 16
"""Tenants whose weights are written out."""


@dataclass(frozen=True)
class Preferences:
    """What tenants count in plans, by name."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """Those other than 1."""
    floors: Mapping[str, float] = field(default_factory=dict)
    """Those above 0."""

    @staticmethod
    def of(services: Iterable[Service]) -> Preferences:
        """Those of tenants."""
        listed = list(services)
        return Preferences(
            {service.tenant: service.weight for service in listed if service.weight != 1},
            {service.tenant: service.floor for service in listed if service.floor > 0},
        )

    @staticmethod
    def recorded(facts: Mapping[str, Any]) -> Preferences:
        """Those among the facts that are recorded of a run."""
        return Preferences(facts.get("weights") or {}, facts.get("floors") or {})

    @property
    def facts(self) -> dict[str, Mapping[str, float]]:
        """What is recorded of them; nothing if every tenant has the defaults."""
        given = {"weights": self.weights, "floors": self.floors}
        return {name: dict(values) for name, values in given.items() if values}

    def weighted_goodput(self, tallies: Mapping[str, Tally]) -> float | None:
        """Goodput of tenants, each times its weight.

        None if they all have the same weight, or it is unknown whether some answers are correct.
        """
        weights = {name: self.weights.get(name, 1.0) for name in tallies}
        if len(set(weights.values())) < 2 or any(tally.unjudged for tally in tallies.values()):
            return None
        return sum(weights[name] * tally.goodput for name, tally in tallies.items())

    def words(self, tallies: Mapping[str, Tally]) -> list[str]:
        """What came of them, one line each."""
        lines = []
        weighted = self.weighted_goodput(tallies)
        if weighted is not None:
            named = [f"{name} {self.weights.get(name, 1.0):g}" for name in tallies]
            more = [] if len(named) <= _MOST_NAMED else [f"{len(named) - _MOST_NAMED} more"]
            weights = ", ".join(named[:_MOST_NAMED] + more)
            lines.append(f"goodput times weights {weighted:,.0f} (weights {weights})")
        for name, floor in self.floors.items():
            tally = tallies.get(name)
            if tally is not None and tally.received:
                reached = tally.slo_attainment
                side = "above" if reached >= floor else "below"
                share = f"{reached:.1%} of the requests of {name} were answered in time"
                lines.append(f"{share}, {side} its floor of {floor:.1%}")
        return lines
