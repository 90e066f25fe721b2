"""The interface of a policy that answers later, and what is left of a late answer.

The daemon asks a process of its own (`policy_process`). A simulation answers after the planning
time of the scenario.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from migrator.core.problem import Kind
from migrator.policies.policy import Decision, Observation

WARM_UP = -1
"""Window number of a question that only loads and compiles what later questions need."""


class Decider(Protocol):
    """A policy that is asked and answers later, one question at a time."""

    @property
    def busy(self) -> bool:
        """Whether an answer is pending."""
        ...

    @property
    def is_warming_up(self) -> bool:
        """Whether the last question was the warm-up."""
        ...

    @property
    def unused(self) -> Mapping[str, int]:
        """Counts of unusable answers: "dropped" arrived too late, "lost" never arrived."""
        ...

    def ask(self, window: int, observation: Observation) -> bool:
        """Ask for a decision. Returns False if the decider is busy; ask again later."""
        ...

    def answer(self, window: int, slot: int) -> Decision | None:
        """The decision from `slot` of `window` on; None if there is none yet."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


def rest_of(decision: Decision, late_slots: int) -> Decision:
    """The remaining slots of a decision that arrives late; its last slot stays in force."""
    gone = min(max(0, late_slots), len(decision.slots) - 1)
    return replace(decision, slots=decision.slots[gone:])


def tenants_without_instance(
    observation: Observation, decision: Decision
) -> Iterator[tuple[str, int]]:
    """Tenants for whose inference a decision holds nothing, with the first slot of the window."""
    for view in observation.tenants:
        for slot, holdings in enumerate(decision.slots, observation.slot):
            tasks = (holding.task for holding in holdings if holding.task is not None)
            if not any(task.tenant == view.name and task.kind is Kind.INFERENCE for task in tasks):
                yield view.name, slot
                break
