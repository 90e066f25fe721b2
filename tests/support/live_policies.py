"""Policies of tests with real daemons: what changes all the time, lends, resizes, or fails."""

from __future__ import annotations

import os
import time
from pathlib import Path

import migrator
from migrator.core.problem import Instance, Kind, Share, Task
from migrator.policies.fixed_shares import Static
from migrator.policies.policy import Decision, Observation, Policy, Sharing

MOOD = "PYTHON_MOOD_FILE"
LATE_S = 2.5
"""Longer than the windows of the tests."""


def _tasks(observation: Observation) -> list[Task]:
    return [Task(tenant.name, Kind.INFERENCE) for tenant in observation.tenants]


@migrator.policy(every_s=2)
def alternating(observation: Observation) -> tuple[Instance, ...]:
    """Changes the tenant of the two middle slices of a board of shares every two slots."""
    first, second = _tasks(observation)
    middle = first if observation.slot % 4 < 2 else second
    return (
        Instance(0, 2, first),
        Instance(2, 1, middle),
        Instance(3, 1, middle),
        Instance(4, 4, second),
    )


@migrator.policy(every_s=2)
def moving(observation: Observation) -> tuple[Instance, ...]:
    """Moves its only tenant to the other half of the board every two slots."""
    (task,) = _tasks(observation)
    return (Instance(0 if observation.slot % 4 < 2 else 4, 3, task),)


class Lending(Policy):
    """The first tenant has one slice of a board of shares, the second one the others."""

    name, summary, lends = "lending", "one slice against seven", True

    def decide(self, observation: Observation) -> Decision:
        first, second = _tasks(observation)
        rest = tuple(Instance(start, 1, second) for start in range(1, 8))
        return Decision(((Instance(0, 1, first), *rest),))


class Resizing(Policy):
    """Half of the GPU serves under MPS; a retraining has a quarter of it, once begun a half."""

    name = "resizing"
    summary = "resizes a running retraining"
    sharing = Sharing.MPS
    every_s = 1.0

    def __init__(self) -> None:
        self.moved = False

    def decide(self, observation: Observation) -> Decision:
        (view,) = observation.tenants
        held = [Share(0, 50.0, Task(view.name, Kind.INFERENCE))]
        if view.retraining is not None:
            self.moved = self.moved or view.retraining.done > 0
            percent = 50.0 if self.moved else 25.0
            held.append(Share(0, percent, Task(view.name, Kind.RETRAINING)))
        return Decision((tuple(held),))


class Moody(Static):
    """As the static split, unless a file that the environment names says how it fails."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.summary = "fails on demand"

    def decide(self, observation: Observation) -> Decision:
        file = Path(os.environ[MOOD])
        mood = file.read_text(encoding="utf-8").strip()
        file.with_suffix(".shown").write_text(mood, encoding="utf-8")
        if mood == "raises":
            raise ValueError("no idea today")
        if mood == "overlaps":
            task = _tasks(observation)[0]
            return Decision(((Instance(0, 7, task), Instance(0, 4, task)),))
        if mood in ("late", "never"):
            time.sleep(LATE_S if mood == "late" else 600.0)
        return super().decide(observation)
