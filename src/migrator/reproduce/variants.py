"""Policies that only experiments need; they are not registered by name."""

from __future__ import annotations

from dataclasses import replace

from migrator.advise.fixed_layout import FixedLayout
from migrator.core.instance import Kind, Task
from migrator.core.problem import Charge
from migrator.policies.migrator import Migrator
from migrator.policies.policy import Decision, Observation, Sight


def serving_and_training(served: dict[str, int], trained: dict[str, int]) -> FixedLayout:
    """One instance for every model's inference and one for its retraining; values are GPCs."""
    tasks = [(Task(model, Kind.INFERENCE), gpcs) for model, gpcs in served.items()]
    tasks += [(Task(model, Kind.RETRAINING), gpcs) for model, gpcs in trained.items()]
    return FixedLayout("held-" + "-".join(str(gpcs) for gpcs in trained.values()), tuple(tasks))


class WithoutPass(Migrator):
    """The paper's plan without pre-initialization."""

    def decide(self, observation: Observation) -> Decision:
        """Plan the rest of the window."""
        decision = super().decide(observation)
        if decision.plan is None:
            return decision
        slots = (each.instances for each in decision.plan.slots)
        used = (tuple(each for each in slot if each.task is not None) for slot in slots)
        return replace(decision, slots=tuple(used))


PAPER_WITHOUT_PASS = WithoutPass(
    "migrator-paper-no-pass",
    "the paper's plan without pre-initialization",
    Sight.FORECAST,
    Charge.PAPER,
)
PAPER_WITH_TRUTH = Migrator(
    "migrator-paper-truth",
    "the paper's plan and pass on the arrivals that will come",
    Sight.TRUTH,
    Charge.PAPER,
)
