"""Policies by name. A module of this package offers its own in `POLICIES`."""

from __future__ import annotations

from functools import cache

from migrator.core.registry import found_in, pick
from migrator.policies.policy import Policy


@cache
def policies() -> dict[str, Policy]:
    """Every policy by name."""
    return found_in("migrator.policies", "POLICIES")


def policy(name: str) -> Policy:
    """The policy called `name`; an unknown name is answered with the nearest ones."""
    return pick("policy", name, policies())
