"""How evenly goodput is divided between tenants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from migrator.core.outcome import Tally


@dataclass(frozen=True)
class Fairness:
    """The tenant with the least goodput share, and how even the shares are."""

    worst_tenant: str | None
    """None if no tenant received a request."""
    worst_share: float
    """Its goodput over its requests."""
    jain_index: float
    """Of the tenants' goodput shares: 1 if they are equal, 1/n if one of n has everything."""

    @property
    def words(self) -> str:
        """One line for reports."""
        if self.worst_tenant is None:
            return "no tenant received a request"
        return (
            f"worst tenant {self.worst_tenant} with {self.worst_share:.1%} of its requests, "
            f"Jain's index {self.jain_index:.3f}"
        )


def fairness(tallies: Mapping[str, Tally]) -> Fairness:
    """Between the tenants that received requests, each with its goodput over its requests."""
    shares = {name: tally.goodput_share for name, tally in tallies.items() if tally.received}
    squares = len(shares) * sum(share * share for share in shares.values())
    worst = min(shares, key=lambda tenant: shares[tenant], default=None)
    return Fairness(
        worst,
        0.0 if worst is None else shares[worst],
        sum(shares.values()) ** 2 / squares if squares else 1.0,
    )
