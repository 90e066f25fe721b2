"""Policies by name, or by import path for a user's own. A module here lists its own in
`POLICIES`."""

from __future__ import annotations

from functools import cache
from inspect import getdoc, getmodule
from types import FunctionType
from typing import cast

from migrator.core.errors import InputError
from migrator.core.registry import found_in, import_class, pick
from migrator.policies.function_policy import FunctionPolicy, named
from migrator.policies.policy import Policy

_PARTS = ("summary", "sharing", "sight", "routing", "every_s", "on_completion", "decide")


@cache
def policies() -> dict[str, Policy]:
    """Every policy by name."""
    return found_in("migrator.policies", "POLICIES")


def about(name: str) -> str:
    """The description of a policy and its adaptations, from its module."""
    found = policy(name)
    described = found.function if isinstance(found, FunctionPolicy) else getmodule(type(found))
    return getdoc(described) or ""


def policy(name: str) -> Policy:
    """The policy called `name`, or the function or class at `package.module:NAME`.

    The error for an unknown name suggests the nearest ones.
    """
    if name.endswith(".py"):
        module = name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise InputError(f"policy: {name[:100]!r} is a file; name what is in it: {module}:NAME")
    return _own(name) if ":" in name else pick("policy", name, policies())


def _own(path: str) -> Policy:
    """A user's policy. Its name is its import path, so that other processes can load it."""
    kind = import_class("policy", path)
    if isinstance(kind, FunctionPolicy | FunctionType):
        return named(kind, path)
    if not isinstance(kind, type):
        raise InputError(
            f"policy: {path} is no function and no class; name a function that takes an "
            "observation, or a class that can be made without arguments"
        )
    try:
        made = kind()
    except Exception as error:
        raise InputError(
            f"policy: {path} cannot be made ({type(error).__name__}: {error}); it must take no "
            "arguments"
        ) from error
    missing = [each for each in _PARTS if not hasattr(made, each)]
    if missing:
        raise InputError(
            f"policy: {path} lacks {', '.join(missing)}; add what migrator.policies.policy.Policy "
            "lists"
        )
    own = cast("Policy", made)
    own.name = path
    own.estimates = getattr(made, "estimates", True)
    return own
