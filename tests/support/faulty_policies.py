"""Policies that fail on demand: a file, named in the environment, says how."""

from __future__ import annotations

import os
import time
from pathlib import Path

from migrator.core.problem import Instance, Kind, Task
from migrator.policies.fixed_shares import Static
from migrator.policies.policy import Decision, Observation

MOOD = "PYTHON_MOOD_FILE"
LATE_S = 2.5
"""Longer than the windows of the tests."""


class Moody(Static):
    """As the static split, unless its mood is another."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.summary = "fails on demand"

    def decide(self, observation: Observation) -> Decision:
        """In the mood of the moment."""
        file = Path(os.environ[MOOD])
        mood = file.read_text(encoding="utf-8").strip()
        file.with_suffix(".shown").write_text(mood, encoding="utf-8")
        if mood == "raises":
            raise ValueError("no idea today")
        if mood == "overlaps":
            task = Task(observation.tenants[0].name, Kind.INFERENCE)
            return Decision(((Instance(0, 7, task), Instance(0, 4, task)),))
        if mood in ("late", "never"):
            time.sleep(LATE_S if mood == "late" else 600.0)
        return super().decide(observation)
