"""Policies by name, or by import path for a user's own, which may be a function.

A module here lists its own in `POLICIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from inspect import getdoc, getmodule
from types import FunctionType
from typing import cast

from migrator.core.catalogue import Board, Multiset
from migrator.core.errors import InputError
from migrator.core.problem import Holding, Instance, Kind, Share, Task
from migrator.core.registry import found_in, import_class, make, pick, refuse_file
from migrator.policies.layouts import Wish, best_allocation
from migrator.policies.policy import Decision, Observation, Policy, Routing, Sharing, Sight, running

Layout = Mapping[str, int | Sequence[int]]
"""Task -> GPCs of its instance or instances. A tenant's name alone stands for its inference."""
Answer = Layout | Iterable[Holding] | Decision
PolicyFunction = Callable[[Observation], Answer]
_DERIVED = ("function", "summary")


class FunctionPolicy:
    """Asks a function at every window's start, and again as the attributes say."""

    routing = Routing.EARLIEST
    estimates = True

    def __init__(
        self,
        function: PolicyFunction,
        *,
        name: str | None = None,
        sight: Sight = Sight.FORECAST,
        sharing: Sharing = Sharing.MIG,
        every_s: float | None = None,
        on_completion: bool = True,
    ) -> None:
        self.function = function
        own: str = getattr(function, "__name__", type(function).__name__)
        self.name = name or own
        self.summary = (function.__doc__ or "").strip().partition("\n")[0]
        self.sight: Sight = sight
        self.sharing: Sharing = sharing
        self.every_s, self.on_completion = every_s, on_completion

    def __reduce__(self) -> tuple[Callable[..., FunctionPolicy], tuple[object, ...]]:
        """Send it by its import path if it has one: a decorated function cannot be pickled."""
        if ":" in self.name:
            return _imported, (self.name,)
        parts = {key: var for key, var in vars(self).items() if key not in _DERIVED}
        return partial(FunctionPolicy, self.function, **parts), ()

    def decide(self, observation: Observation) -> Decision:
        """The function's answer as a decision; InputError if it is no layout."""
        answer = self.function(observation)
        if isinstance(answer, Decision):
            return answer
        if isinstance(answer, Mapping):
            return Decision((self._placed(observation, answer),))
        if isinstance(answer, Iterable) and not isinstance(answer, str | bytes):
            holdings = tuple(answer)
            if all(isinstance(holding, Instance | Share) for holding in holdings):
                return Decision((holdings,))
        raise InputError(
            f"policy: {self.name} returned {type(answer).__name__}; return the GPCs of each task, "
            'such as {"TENANT/inference": 3, "TENANT/retraining": 1}'
        )

    def _placed(self, observation: Observation, layout: Layout) -> tuple[Instance, ...]:
        """The layout on slices, beside the retrainings that run."""
        kept = {Task(name, Kind.RETRAINING) for name in running(observation)}
        sizes = {
            self._task(key, observation): self._sizes(key, layout[key], observation.board)
            for key in layout
        }
        wishes = [Wish(task, (size,)) for task, size in sizes.items() if size and task not in kept]
        if not wishes:
            return tuple(running(observation).values())
        try:
            return best_allocation(observation, wishes, lambda _: ())
        except InputError as error:
            wanted = ", ".join(f"{task} {list(size)}" for task, size in sizes.items())
            busy = [f"{name} on {instance}" for name, instance in running(observation).items()]
            beside = f" beside the running retraining of {', '.join(busy)}" if busy else ""
            raise InputError(
                f"policy: {self.name} asks for {wanted}, which does not fit on "
                f"{observation.board.name}{beside}; ask for fewer GPCs, `migrator boards "
                f"{observation.board.name}` lists what fits"
            ) from error

    def _task(self, key: str, observation: Observation) -> Task:
        tenants = [tenant.name for tenant in observation.tenants]
        if key in tenants:
            return Task(key, Kind.INFERENCE)
        try:
            task = Task.parse(str(key))
        except ValueError:
            task = None
        if task is None or task.tenant not in tenants:
            raise InputError(
                f"policy: {self.name} returned the task {str(key)[:60]!r}; use TENANT/inference or "
                f"TENANT/retraining with {' or '.join(tenants)}"
            )
        return task

    def _sizes(self, key: str, given: int | Sequence[int], board: Board) -> Multiset:
        sizes = (given,) if isinstance(given, int) else tuple(given)
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            raise InputError(
                f"policy: {self.name} gives {key} {given!r}; give GPCs such as 3, or a list of them"
            )
        missing = [gpcs for gpcs in sizes if gpcs not in board.sizes]
        if missing:
            *smaller, largest = map(str, board.sizes)
            raise InputError(
                f"policy: {self.name} gives {key} {missing[0]} GPCs, and {board.name} has no "
                f"instance of that size; use {', '.join(smaller)} or {largest} GPCs"
            )
        return tuple(sorted(sizes, reverse=True))


def named(policy: FunctionPolicy | PolicyFunction, path: str) -> FunctionPolicy:
    """The policy at an import path, which becomes its name."""
    if not isinstance(policy, FunctionPolicy):
        return FunctionPolicy(policy, name=path)
    policy.name = path
    return policy


def _imported(path: str) -> FunctionPolicy:
    return named(cast("FunctionPolicy | PolicyFunction", import_class("policy", path)), path)


_PARTS = ("summary", "sharing", "sight", "routing", "every_s", "on_completion", "decide")


@cache
def policies() -> dict[str, Policy]:
    """Every policy by name."""
    return found_in("migrator.policies", "POLICIES")


def about(name: str) -> str:
    """The description of a policy and its adaptations, from its module."""
    chosen = policy(name)
    described = chosen.function if isinstance(chosen, FunctionPolicy) else getmodule(type(chosen))
    return getdoc(described) or ""


def policy(name: str) -> Policy:
    """The policy called `name`, or the function or class at `package.module:NAME`.

    The error for an unknown name suggests the nearest ones.
    """
    refuse_file("policy", name)
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
    made = make("policy", path, kind)
    missing = [part for part in _PARTS if not hasattr(made, part)]
    if missing:
        raise InputError(
            f"policy: {path} lacks {', '.join(missing)}; add what migrator.policies.policy.Policy "
            "lists"
        )
    own = cast("Policy", made)
    own.name = path
    own.estimates = getattr(made, "estimates", True)
    return own
