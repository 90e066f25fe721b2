"""Policies by name. A module of this package offers its own in `POLICIES`."""

from __future__ import annotations

from functools import cache
from inspect import getdoc, getmodule

from migrator.core.registry import found_in, pick
from migrator.policies.policy import Policy


@cache
def policies() -> dict[str, Policy]:
    """Every policy by name."""
    return found_in("migrator.policies", "POLICIES")


def about(name: str) -> str:
    """How the policy works and what of it is our adaptation, as its module says."""
    return getdoc(getmodule(type(policy(name)))) or ""


def policy(name: str) -> Policy:
    """The policy called `name`; an unknown name is answered with the nearest ones."""
    return pick("policy", name, policies())
