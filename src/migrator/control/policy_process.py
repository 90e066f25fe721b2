"""A policy that decides in a separate process.

The daemon sends a question and continues; it polls for the answer. Until then the previous decision
stays in force. A late answer loses its first slots, an answer for a window that has ended is
dropped, and a process that dies or exceeds the time limit is replaced. Asking and answering never
block and never raise. The process exits when its parent does.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from migrator.control.decider import WARM_UP, rest_of
from migrator.core.errors import PolicyError
from migrator.io.object_process import CallFailedError, ObjectProcess
from migrator.io.spawn import ChildLostError
from migrator.policies.policy import Decision, Observation, Policy

PATIENCE_S = 60.0
"""Seconds after which a process is given up, because its answer would be useless."""
WARM_UP_S = 600.0
"""Seconds that the warm-up may take: it imports and, once per machine, compiles everything."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Question:
    window: int
    slot: int
    asked_s: float


class PolicyProcess:
    """One policy, asked from the serving path and answering from another process."""

    def __init__(
        self,
        policy: Policy,
        patience_s: float = PATIENCE_S,
        report: Callable[[str], None] = _log.warning,
    ) -> None:
        """`policy`: it can be pickled. `report`: called with the reason if there is no answer."""
        self._policy = policy
        self._patience_s, self._report = patience_s, report
        self._process: ObjectProcess | None = None
        self._asked: _Question | None = None
        self.unused: Counter[str] = Counter()
        """Counts of questions without a usable answer: "dropped" answers came after their window,
        "lost" questions failed, died or took too long."""

    def __enter__(self) -> PolicyProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def busy(self) -> bool:
        if self._asked is None or self._process is None or self._process.has_answer():
            return False
        if not self._process.alive:
            return False
        patience_s = WARM_UP_S if self.is_warming_up else self._patience_s
        return time.monotonic() - self._asked.asked_s < patience_s

    @property
    def is_warming_up(self) -> bool:
        return self._asked is not None and self._asked.window == WARM_UP

    def ask(self, window: int, observation: Observation) -> bool:
        if self.busy:
            return False
        if self._asked is not None:
            self.answer(window, observation.slot)  # discards a stale answer
        if self._process is None:
            self._process = ObjectProcess(self._policy.name, _PolicyInProcess, self._policy)
        self._asked = _Question(window, observation.slot, time.monotonic())
        self._process.call("decide", observation)
        return True

    def answer(self, window: int, slot: int) -> Decision | None:
        if self._asked is None or self._process is None or self.busy:
            return None
        asked, self._asked = self._asked, None
        try:
            decision = self._decision(self._process)
        except CallFailedError as error:
            if asked.window != WARM_UP:
                self.unused["lost"] += 1
                self._report(f"{self._policy.name} could not decide: {error}")
            return None
        if decision is None or asked.window == WARM_UP:
            return None
        if asked.window != window:
            self.unused["dropped"] += 1
            self._report(
                f"a decision of {self._policy.name} came after its window was over and is dropped"
            )
            return None
        return rest_of(decision, slot - asked.slot)

    def _decision(self, process: ObjectProcess) -> Decision | None:
        """The answer; None if the process was given up. Raises CallFailedError."""
        if not process.has_answer():
            self._give_up("thinks for too long" if process.alive else "died")
            return None
        try:
            decision: object = process.answer(0.0)
        except ChildLostError:
            self._give_up("died")
            return None
        if not isinstance(decision, Decision):
            raise CallFailedError(f"it answered {type(decision).__name__}")
        return decision

    def close(self) -> None:
        """Kill the process, which has nothing to save."""
        process, self._process, self._asked = self._process, None, None
        if process is not None:
            process.kill()

    def _give_up(self, why: str) -> None:
        self.unused["lost"] += 1
        self._report(f"{self._policy.name} {why} and is started again")
        self.close()


class _PolicyInProcess:
    """The policy in its process."""

    def __init__(self, asked: Policy) -> None:
        self._policy = asked

    def decide(self, observation: Observation) -> Decision:
        try:
            return self._policy.decide(observation)
        except PolicyError as error:
            raise CallFailedError(error.reason) from error
