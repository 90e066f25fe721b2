"""A policy that decides beside the serving path, in a process of its own.

Whoever serves asks and goes on; the answer is taken when it is there. Until then what was decided
before holds. An answer that comes late has its first slots cut off, one for a window that is
over is dropped, and a process that dies is replaced: nothing here ever waits or raises.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

from migrator.policies.policy import Decision, Observation, Policy
from migrator.policies.registry import policy

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Question:
    window: int
    slot: int
    answer: Future[Decision]


class Aside:
    """One policy, asked from the serving path and answering from another process."""

    def __init__(self, name: str | Policy) -> None:
        """By name, or one that can be pickled."""
        self._policy = policy(name) if isinstance(name, str) else name
        self._pool: ProcessPoolExecutor | None = None
        self._asked: _Question | None = None

    def __enter__(self) -> Aside:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def busy(self) -> bool:
        """Whether it still thinks about what it was asked."""
        return self._asked is not None and not self._asked.answer.done()

    def ask(self, window: int, observation: Observation) -> bool:
        """Ask what to do from the observation on; False: it is busy, ask again later."""
        if self.busy:
            return False
        if self._pool is None:
            # spawned: a fork of a process with threads or a GPU context may hang
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        try:
            answer = self._pool.submit(_decided, self._policy, observation)
        except RuntimeError as error:  # the process died since; a new one is there next time
            self._give_up(error)
            return False
        self._asked = _Question(window, observation.slot, answer)
        return True

    def answer(self, window: int, slot: int) -> Decision | None:
        """What is decided from `slot` of `window` on; None: nothing new, what holds goes on."""
        if self._asked is None or self.busy:
            return None
        asked, self._asked = self._asked, None
        error = asked.answer.exception()
        if error is not None:
            self._give_up(error)
            return None
        if asked.window != window:
            _log.warning("a decision came after its window was over and is dropped")
            return None
        return _from(asked.answer.result(), slot - asked.slot)

    def close(self) -> None:
        """End the process, whatever it is at."""
        pool, self._pool, self._asked = self._pool, None, None
        if pool is None:
            return
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)

    def _give_up(self, error: BaseException) -> None:
        _log.warning("%s could not decide and is started again: %s", self._policy.name, error)
        self.close()


def _decided(asked: Policy, observation: Observation) -> Decision:
    return asked.decide(observation)


def _from(decision: Decision, late: int) -> Decision:
    """What is left of a decision so many slots later; its last slot goes on."""
    gone = min(max(0, late), len(decision.slots) - 1)
    return replace(decision, slots=decision.slots[gone:])
